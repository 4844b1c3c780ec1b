"""Arguments of a schema: its properties as a tree, each with the values that a form can offer.

References, null and titles of choices are resolved here. Schemas come from servers elsewhere as well, so malformed
parts count as absent, and the tree has limits. A part beyond them has no properties.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

MAX_REFERENCES = 20
"""Maximum references that are followed from one schema to another."""
MAX_DEPTH = 4
"""Maximum levels of objects with properties of their own."""
MAX_NESTED_FIELDS = 200
"""Maximum properties inside objects. Objects above this number have no properties."""
SCALARS = ("string", "integer", "number", "boolean")
_BRANCHES = ("anyOf", "oneOf")
_CONDITIONS = ("anyOf", "oneOf", "allOf", "not", "if", "enum", "const")
_EMPTY: Mapping[str, Any] = {}


class AllowedValue(NamedTuple):
    """Allowed value with its title."""

    value: Any
    title: str = ""


@dataclass(frozen=True, slots=True)
class Argument:
    """Property of a schema."""

    path: tuple[str, ...]
    schema: Mapping[str, Any]
    """Schema without a reference and without null."""
    is_required: bool
    is_nullable: bool
    items: Mapping[str, Any]
    """Schema of the items of an array."""
    properties: tuple["Argument", ...] = ()
    """Properties of an object that a form shows one by one."""

    @property
    def name(self) -> str:
        """Name of the property."""
        return self.path[-1]

    @property
    def title(self) -> str:
        """Title for people."""
        return str(self.schema.get("title") or self.name)

    @property
    def description(self) -> str:
        """Description for the model."""
        return str(self.schema.get("description") or "")

    @property
    def type(self) -> str:
        """JSON type; empty if the schema allows several."""
        found = self.schema.get("type")
        return found if isinstance(found, str) else ""

    @property
    def format(self) -> str:
        """Format of a string, such as "date"."""
        return str(self.schema.get("format") or "") if self.type == "string" else ""

    @property
    def is_secret(self) -> bool:
        """True for a value that belongs in no URL."""
        return self.schema.get("format") == "password" or self.schema.get("writeOnly") is True

    @property
    def is_plain(self) -> bool:
        """True for scalars, choices, and lists of them."""
        return self.type in SCALARS or self.choices is not None or bool(self.item_type or self.item_choices)

    @property
    def choices(self) -> list[AllowedValue] | None:
        """Allowed values, or None."""
        found = _find_choices(self.schema)
        return [AllowedValue(True), AllowedValue(False)] if found is None and self.type == "boolean" else found

    @property
    def item_choices(self) -> list[AllowedValue] | None:
        """Allowed items of an array, or None."""
        return _find_choices(self.items) if self.type == "array" else None

    @property
    def item_type(self) -> str:
        """Type of the items of an array of scalars; empty for any other value."""
        found = self.items.get("type")
        return str(found) if self.type == "array" and found in SCALARS else ""


def list_arguments(schema: Mapping[str, Any]) -> list[Argument]:
    """Return the properties of an object schema, the required ones first."""
    return list(_SchemaReader(schema).read_properties(schema, ()))


class _SchemaReader:
    """Reader of one schema, with the number of nested properties that it may still return."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._fields_left = MAX_NESTED_FIELDS

    def read_properties(self, schema: Mapping[str, Any], path: tuple[str, ...]) -> tuple[Argument, ...]:
        """Return the properties of an object at a path."""
        properties, required = _get_mapping(schema, "properties"), schema.get("required")
        names = required if isinstance(required, list) else []
        found = [self._read_property(raw, (*path, name), name in names) for name, raw in properties.items()]
        return tuple(sorted(found, key=lambda argument: not argument.is_required))

    def _read_property(self, raw: Any, path: tuple[str, ...], is_required: bool) -> Argument:
        schema, is_nullable = self._split_null(self._resolve(raw))
        inner: tuple[Argument, ...] = ()
        if self._has_own_fields(schema, len(path)):
            self._fields_left -= len(schema["properties"])
            inner = self.read_properties(schema, path)
        items = self._resolve(schema["items"]) if isinstance(schema.get("items"), Mapping) else _EMPTY
        return Argument(path, schema, is_required, is_nullable, items, inner)

    def _has_own_fields(self, schema: Mapping[str, Any], depth: int) -> bool:
        """Return True for an object whose properties are shown one by one."""
        properties = _get_mapping(schema, "properties")
        if not properties or schema.get("type", "object") != "object" or any(key in schema for key in _CONDITIONS):
            return False
        return depth <= MAX_DEPTH and len(properties) <= self._fields_left

    def _resolve(self, raw: Any) -> Mapping[str, Any]:
        """Return a schema without its reference, and without an `allOf` of one. Keywords beside them stay."""
        schema: Mapping[str, Any] = raw if isinstance(raw, Mapping) else _EMPTY
        for _number in range(MAX_REFERENCES):
            reference, parts = schema.get("$ref"), schema.get("allOf")
            if isinstance(reference, str) and reference.startswith("#"):
                keyword, target = "$ref", self._find_target(reference)
            elif isinstance(parts, list) and len(parts) == 1 and isinstance(parts[0], Mapping):
                keyword, target = "allOf", parts[0]
            else:
                break
            schema = {**target, **{key: value for key, value in schema.items() if key != keyword}}
        return schema

    def _find_target(self, reference: str) -> Mapping[str, Any]:
        target: Any = self._root
        for part in filter(None, reference.removeprefix("#").split("/")):
            target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, Mapping) else None
        return target if isinstance(target, Mapping) else _EMPTY

    def _split_null(self, schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
        """Return a schema without null, and True if it allowed null."""
        kinds = schema.get("type")
        if isinstance(kinds, list) and "null" in kinds:
            others = [each for each in kinds if each != "null"]
            return {**schema, "type": others[0] if len(others) == 1 else others}, True
        for keyword in _BRANCHES:
            branches = schema.get(keyword)
            if not isinstance(branches, list):
                continue
            resolved = [self._resolve(branch) for branch in branches]
            others = [branch for branch in resolved if not _is_null(branch)]
            beside = {key: value for key, value in schema.items() if key != keyword}
            if len(others) == 1:
                return {**others[0], **beside}, len(others) < len(resolved)
            return {**beside, keyword: others}, len(others) < len(resolved)
        return schema, False


def _is_null(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "null" or ("const" in schema and schema["const"] is None)


def _find_choices(schema: Mapping[str, Any]) -> list[AllowedValue] | None:
    """Return the values of an enum, a const, or alternatives of constants."""
    if "const" in schema:
        return [AllowedValue(schema["const"])]
    values = schema.get("enum")
    if isinstance(values, list):
        names = schema.get("enumNames")
        titles: Sequence[Any] = names if isinstance(names, list) and len(names) == len(values) else [""] * len(values)
        return [AllowedValue(value, str(title)) for value, title in zip(values, titles, strict=True)]
    for keyword in _BRANCHES:
        branches = schema.get(keyword)
        if (
            isinstance(branches, list)
            and branches
            and all(isinstance(one, Mapping) and "const" in one for one in branches)
        ):
            return [AllowedValue(one["const"], str(one.get("title") or "")) for one in branches]
    return None


def _get_mapping(schema: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = schema.get(key)
    return found if isinstance(found, Mapping) else _EMPTY
