"""Layout of a tool's arguments: names that hosts accept, and groups of filters.

Parameters of HTTP APIs have names such as `filter[name]` and `$top`. Anthropic's API rejects a whole request if a key
of a tool's properties does not match `^[a-zA-Z0-9_.-]{1,64}$`. It checks the keys at the top of a schema, not those of
nested objects (measured: github.com/aws-solutions-library-samples/accelerated-intelligent-document-processing-on-aws,
issue 709). A layout gives other arguments names that depend only on the names of the operation, and maps calls back.

Some lists have hundreds of filters, such as `name__ic`. Beyond `MAX_FILTER_ARGUMENTS` these become keys of one
argument. Its description is short.
"""

import contextlib
import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mcp_django.contrib.http_tools.filter_descriptions import LOOKUP_PATTERN, describe_filters
from mcp_django.contrib.http_tools.tools import Schema
from mcp_django.extensions.errors import ArgumentError
from mcp_django.extensions.primitives import NAME_PATTERN
from mcp_django.extensions.schemas import HeaderParam, SchemaChecker

MAX_NAME_CHARACTERS = 64
MAX_FILTER_ARGUMENTS = 50
"""Maximum optional query parameters that are separate arguments."""
GROUP_ARGUMENT = "filters"
COMMON_FILTERS = frozenset(
    {"page", "page_size", "per_page", "limit", "offset", "cursor", "after", "before", "q", "query", "search", "filter"}
    | {"ordering", "order", "order_by", "sort", "sort_by", "direction", "id", "name", "status", "type", "fields"}
    | {"expand", "include", "since", "until"}
)
"""Query parameters that stay separate arguments before all others."""
_COMPARISONS = {"<": "_lt_", ">": "_gt_", "!": "_not_"}
"""Characters that carry a meaning at the end of a name, such as `StartTime>`."""
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


class ArgumentValueError(ArgumentError):
    """An invalid value of one argument, named as in the operation."""

    def __init__(self, argument: str, problem: str, path: str = "") -> None:
        """Store the parts of the text; `path` is the place inside the value, such as "[0].content"."""
        super().__init__(f"{argument}{path}: {problem}")
        self.argument = argument
        self.problem = problem
        self.path = path


@dataclass(frozen=True, slots=True, eq=False)
class ArgumentLayout:
    """Mapping between the arguments of an operation and the arguments of its tool."""

    names: Mapping[str, str]
    """Names for clients by argument of the operation."""
    grouped: Collection[str] = ()
    """Arguments of the operation that are keys of the group."""
    group: str = ""
    """Argument of the tool that holds the grouped ones."""
    _originals: Mapping[str, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_originals", {name: original for original, name in self.names.items()})

    def arrange(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments of the operation as arguments of the tool."""
        arranged: dict[str, Any] = {}
        for original, value in arguments.items():
            target = arranged.setdefault(self.group, {}) if original in self.grouped else arranged
            target[self.names.get(original, original)] = value
        return arranged

    def restore(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return checked arguments of the tool as arguments of the operation."""
        own = {name: value for name, value in arguments.items() if not self.group or name != self.group}
        given = {**own, **(arguments.get(self.group) or {})} if self.group else own
        return {self._originals.get(name, name): value for name, value in given.items()}

    def arrange_schema(self, schema: Schema) -> Schema:
        """Return the schema of the operation's arguments as the schema of the tool's."""
        properties: dict[str, Schema] = {}
        filters: dict[str, Schema] = {}
        for original, inner in schema.get("properties", {}).items():
            name = self.names[original]
            arranged = inner if name == original else _add_original_name(inner, original)
            (filters if original in self.grouped else properties)[name] = arranged
        if filters:
            properties[self.group] = {
                "type": "object",
                "description": describe_filters(filters),
                "properties": filters,
                "additionalProperties": False,
            }
        arranged = {**schema, "properties": properties}
        if "required" in schema:
            arranged["required"] = [self.names[original] for original in schema["required"]]
        return arranged

    def shorten_schema(self, schema: Schema) -> Schema:
        """Return the arranged schema for clients, with a description in place of the keys."""
        if not self.group:
            return schema
        filters = schema["properties"][self.group]
        short = {"type": "object", "description": filters["description"], "additionalProperties": True}
        return {**schema, "properties": {**schema["properties"], self.group: short}}

    def check_places(self, arguments: Mapping[str, Any]) -> None:
        """Raise ArgumentError for names of the operation or the group used as arguments."""
        for name in arguments:
            original = self._originals.get(name, name)
            if name != self.group and original in self.grouped:
                raise ArgumentError(
                    f"{name[:200]}: is not an argument; give {self.names[original]!r} as a key of {self.group!r}"
                )
            if name not in self._originals and name in self.names:
                raise ArgumentError(f"{name[:200]}: is not an argument; its name here is {self.names[name]!r}")

    @contextlib.contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Raise errors of values again with the names of the tool's arguments."""
        try:
            yield
        except ArgumentValueError as error:
            name = self.names.get(error.argument, error.argument)
            place = f"{self.group}.{name}" if error.argument in self.grouped else name
            raise ArgumentValueError(place, error.problem, error.path) from None


@dataclass(frozen=True, slots=True)
class OperationParameters:
    """The arguments of a tool (`server.primitives.ToolParameters`), arranged by a layout.

    The handler receives the arguments of the operation as one argument, `arguments`.
    """

    schema: Schema
    """Schema for clients."""
    layout: ArgumentLayout
    _checker: SchemaChecker
    """Schema that is checked."""
    header_params: tuple[HeaderParam, ...] = ()

    def check(self, arguments: dict[str, Any]) -> None:
        """Raise ArgumentError for arguments that the checker rejects."""
        self.layout.check_places(arguments)
        if not self._checker.is_valid(arguments):
            raise ArgumentError(self._checker.describe_problems(arguments))

    def convert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return one argument, which has the arguments of the operation without their groups."""
        return {"arguments": self.layout.restore(arguments)}


def build_argument_layout(names: Iterable[str], filters: Sequence[str] = ()) -> ArgumentLayout:
    """Build the layout of an operation.

    `names` are all its arguments. `filters` are those that may be grouped: optional query parameters, in their order.
    """
    argument_names = build_argument_names(names)
    grouped = frozenset(_select_grouped(filters))
    separate = {name for original, name in argument_names.items() if original not in grouped}
    return ArgumentLayout(argument_names, grouped, _pick_group_name(separate) if grouped else "")


def build_argument_names(originals: Iterable[str]) -> dict[str, str]:
    """Build a valid, unique name for each name.

    Valid names stay. The result does not depend on the order of the names.
    """
    originals = list(dict.fromkeys(originals))
    valid = {name for name in originals if NAME_PATTERN.fullmatch(name)}
    plain_names = {name: _simplify(name) for name in originals if name not in valid}
    uses = Counter(plain_names.values())

    names = {name: name for name in valid}
    taken = set(valid)
    for original in sorted(plain_names):
        name = plain_names[original]
        is_ambiguous = not name or len(name) > MAX_NAME_CHARACTERS or uses[name] > 1
        if is_ambiguous or name in taken:
            name = _add_digest(name, original, taken)
        taken.add(name)
        names[original] = name
    return {original: names[original] for original in originals}


def _simplify(name: str) -> str:
    """Simplify a name to letters, digits and `_ . -`: `filter[name]` becomes filter_name."""
    text = "".join(_COMPARISONS.get(char) or _to_ascii(char) for char in name)
    return re.sub(r"[^A-Za-z0-9_.\-]+", "_", text).strip("_")


def _to_ascii(char: str) -> str:
    """Return a letter without its accent; "_" for other characters that are not ASCII."""
    if char.isascii():
        return char
    forms = unicodedata.normalize("NFKD", char), char.casefold()
    return next((letters for form in forms if (letters := _NOT_ASCII.sub("", form))), "_")


def _add_digest(name: str, original: str, taken: Collection[str]) -> str:
    digest = hashlib.sha256(original.encode(errors="surrogatepass")).hexdigest()
    for size in range(6, MAX_NAME_CHARACTERS - 1, 2):
        found = f"{(name or 'argument')[: MAX_NAME_CHARACTERS - 1 - size].rstrip('_')}_{digest[:size]}"
        if found not in taken:
            return found
    raise AssertionError("two names with the same digest")


def _select_grouped(filters: Sequence[str]) -> list[str]:
    """Select the filters for the group: lookups first, then the least common ones."""
    if len(filters) <= MAX_FILTER_ARGUMENTS:
        return []
    plain = [name for name in filters if _is_common(name) or not LOOKUP_PATTERN.fullmatch(name)]
    by_use = sorted(plain, key=lambda name: not _is_common(name))
    separate = set(by_use[:MAX_FILTER_ARGUMENTS])
    return [name for name in filters if name not in separate]


def _is_common(name: str) -> bool:
    return name.lower() in COMMON_FILTERS or name.lower().startswith("page[")


def _pick_group_name(taken: Collection[str]) -> str:
    name, number = GROUP_ARGUMENT, 2
    while name in taken:
        name, number = f"{GROUP_ARGUMENT}_{number}", number + 1
    return name


def _add_original_name(schema: Schema, original: str) -> Schema:
    note = f'Named "{original[:200]}" in the API.'
    description = str(schema.get("description", "")).strip()
    return {**schema, "description": f"{description} {note}".strip()}
