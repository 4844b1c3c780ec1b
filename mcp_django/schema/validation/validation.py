"""Validation by jsonschema-rs: compiled schemas, descriptions of errors, and the errors of schemas.

Only this module uses jsonschema-rs. Formats are annotations and are not checked, references are never fetched, and
patterns run in linear time where possible.

The errors are distinguished by the party at fault:

    ArgumentError      the caller: arguments or form content that violate the advertised schema
    OutputError        the handler: a result that violates the advertised output schema
    DeclarationError   the author: a signature or schema that cannot be used, found at registration

None of them is a protocol error. The server turns the first into a tool result or an invalid-params error, logs the
second as a bug, and reports the third when the project starts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jsonschema_rs

from mcp_django.protocol.display_text import truncate
from mcp_django.schema.validation import messages
from mcp_django.schema.validation.complexity import SchemaGraph
from mcp_django.schema.validation.truncation import truncate_value


class ArgumentError(ValueError):
    """Invalid arguments.

    The text names the argument and the rule, for a language model.
    """

    errors: Mapping[str, Sequence[str]] = {}
    """Texts by field of a form, without those of the whole form."""

    def __init__(self, *args: object, errors: Mapping[str, Sequence[str]] | None = None) -> None:
        super().__init__(*args)
        if errors:
            self.errors = errors


class OutputError(Exception):
    """A result that violates the output schema of its own tool.

    It is a bug, so its text is for the log only.
    """


class DeclarationError(Exception):
    """An unusable signature or schema.

    The text names the function, the parameter and the remedy.
    """

    hint = "Correct the declaration. Until then it is not served."
    """Next step for the author, for system checks."""
    has_own_check = False
    """True if a system check of its own reports it, with another id than E004."""


class ConflictError(DeclarationError):
    """A declaration whose name or model another declaration already uses."""

    hint = "Give one of the two another name or prefix, or remove it."


MAX_PROBLEMS = 5
"""Maximum number of problems described; a model can fix the remaining ones later."""
MAX_FAILING_PATHS = 50
"""Maximum number of paths returned."""
_BEYOND_EXCERPT = "beyond its first items or levels; check every one"


class SchemaChecker:
    """A compiled JSON Schema, which checks values and describes their problems.

        checker = SchemaChecker({"type": "object", "required": ["name"]})
        if not checker.is_valid(arguments):
            raise ArgumentError(checker.describe_problems(arguments))

    `check_schema` also refuses schemas that are unfit for a tool.
    """

    __slots__ = ("_explained_depth", "_schema", "_validator", "is_valid")

    def __init__(self, schema: dict[str, Any]) -> None:
        """Compile `schema`, which must not change afterwards.

        Raises:
            DeclarationError: when the schema is invalid in its dialect, or has a reference outside itself.
        """
        self._schema = schema
        self._validator = _compile_validator(schema)
        self._explained_depth: int | None = None
        self.is_valid = self._validator.is_valid
        """Function that returns True for a valid JSON value. Called on the hot path."""

    @property
    def _depth(self) -> int:
        """Depth to which problems are described; found for the first invalid value, as it takes time."""
        if self._explained_depth is None:
            self._explained_depth = SchemaGraph(self._schema).max_explained_depth()
        return self._explained_depth

    def describe_problems(self, value: Any, noun: str = "argument") -> str:
        """Describe up to five problems of a value, joined by "; ". Empty if it is valid.

        `noun` names a property of the root. A large value is described from its beginning, a deep one from its top.
        """
        if self.is_valid(value):
            return ""
        part = truncate_value(value, self._depth)
        texts: dict[str, None] = {}
        for error in self._validator.iter_errors(part.value):
            texts.update(dict.fromkeys(messages.describe_error(error, self._schema, noun, part.cut_paths)))
            if len(texts) >= MAX_PROBLEMS:
                break
        return "; ".join(list(texts)[:MAX_PROBLEMS]) or self._describe_beyond(value, part.value, noun)

    def find_failing_paths(self, value: Any) -> list[tuple[str | int, ...]]:
        """Return the paths of some invalid parts of a value.

        A large value is truncated first.
        """
        part = truncate_value(value, self._depth)
        paths: dict[tuple[str | int, ...], None] = {}
        for error in self._validator.iter_errors(part.value):
            paths[tuple(error.instance_path)] = None
            if len(paths) >= MAX_FAILING_PATHS:
                break
        return list(paths)

    def _describe_beyond(self, value: Any, truncated: Any, noun: str) -> str:
        """Name the property whose truncated part violates the schema."""
        if isinstance(value, dict):
            for name, item in value.items():
                if name in truncated and not self.is_valid({**truncated, name: item}):
                    return f"{truncate(name, messages.MAX_ECHO_CHARACTERS)}: breaks its schema {_BEYOND_EXCERPT}"
        return f"a large {noun} breaks the schema {_BEYOND_EXCERPT}"


def _compile_validator(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    try:
        return _build_validator(schema, jsonschema_rs.RegexOptions())
    except jsonschema_rs.ValidationError:
        # Lookaround needs the backtracking engine. Its steps are bounded, and exceeding them rejects the value.
        pass
    try:
        return _build_validator(schema, jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000))
    except jsonschema_rs.ValidationError as error:
        place = "/".join(str(step) for step in error.instance_path)
        raise DeclarationError(f"not a valid JSON Schema{f' at {place}' if place else ''}: {error.message}") from error


def _build_validator(schema: dict[str, Any], patterns: Any) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(schema, validate_formats=False, offline=True, pattern_options=patterns)
