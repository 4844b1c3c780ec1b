"""Validation by jsonschema-rs: compiled schemas and descriptions of errors.

Only this module uses jsonschema-rs. Formats are annotations and are not checked, references are never fetched, and
patterns run in linear time where possible.
"""

from typing import Any

import jsonschema_rs

from mcp_django.schema.errors import DeclarationError
from mcp_django.schema.validation import messages
from mcp_django.schema.validation.complexity import Structure
from mcp_django.schema.validation.truncation import excerpt

SHOWN = 5
"""Maximum number of problems described; a model can fix the remaining ones later."""
MISFITS = 50
"""Maximum number of paths returned."""
_BEYOND = "beyond its first items or levels; check every one"


class Checker:
    """A compiled schema."""

    __slots__ = ("_depth", "_schema", "_validator", "is_valid")

    def __init__(self, schema: dict[str, Any]) -> None:
        """Compile `schema`, which must not change afterwards.

        Raises:
            DeclarationError: when the schema is invalid in its dialect, or has a reference outside itself.
        """
        self._schema = schema
        self._validator = _compile(schema)
        self._depth = Structure(schema).explained_depth()
        self.is_valid = self._validator.is_valid
        """Function that returns True for a valid JSON value. Called on the hot path."""

    def problems(self, value: Any, noun: str = "argument") -> str:
        """Describe up to five problems of a value, joined by "; ". Empty if it is valid.

        `noun` names a property of the root. A large value is described from its beginning, a deep one from its top.
        """
        if self.is_valid(value):
            return ""
        part = excerpt(value, self._depth)
        told: dict[str, None] = {}
        for error in self._validator.iter_errors(part.value):
            told.update(dict.fromkeys(messages.explain(error, self._schema, noun, part.cut)))
            if len(told) >= SHOWN:
                break
        return "; ".join(list(told)[:SHOWN]) or self._beyond(value, part.value, noun)

    def misfits(self, value: Any) -> list[tuple[str | int, ...]]:
        """Return the paths of some invalid parts of a value.

        A large value is truncated first.
        """
        part = excerpt(value, self._depth)
        found: dict[tuple[str | int, ...], None] = {}
        for error in self._validator.iter_errors(part.value):
            found[tuple(error.instance_path)] = None
            if len(found) >= MISFITS:
                break
        return list(found)

    def _beyond(self, value: Any, part: Any, noun: str) -> str:
        """Name the property whose truncated part violates the schema."""
        if isinstance(value, dict):
            for name, item in value.items():
                if name in part and not self.is_valid({**part, name: item}):
                    return f"{messages.shorten(name, 60)}: breaks its schema {_BEYOND}"
        return f"a large {noun} breaks the schema {_BEYOND}"


def _compile(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    try:
        return _validator(schema, jsonschema_rs.RegexOptions())
    except jsonschema_rs.ValidationError:
        # Lookaround needs the backtracking engine. Its steps are bounded, and exceeding them rejects the value.
        pass
    try:
        return _validator(schema, jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000))
    except jsonschema_rs.ValidationError as error:
        place = "/".join(str(step) for step in error.instance_path)
        raise DeclarationError(f"not a valid JSON Schema{f' at {place}' if place else ''}: {error.message}") from error


def _validator(schema: dict[str, Any], patterns: Any) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(schema, validate_formats=False, offline=True, pattern_options=patterns)
