"""The one door to jsonschema-rs: schemas compiled to checkers, and failures told in words.

Formats are annotations and are not asserted, nothing is ever fetched, and patterns run in linear time where they can.
"""

from typing import Any

import jsonschema_rs

from mcp_django.schema.errors import DeclarationError
from mcp_django.schema.validation import messages
from mcp_django.schema.validation.complexity import Structure
from mcp_django.schema.validation.truncation import excerpt

SHOWN = 5
"""Problems told at most; a model that has five to mend does not need the rest yet."""
MISFITS = 50
"""Places named at most."""
_BEYOND = "beyond its first items or levels; check every one"


class Checker:
    """A compiled schema."""

    __slots__ = ("_depth", "_schema", "_validator", "is_valid")

    def __init__(self, schema: dict[str, Any]) -> None:
        """Compile `schema`, which must not change afterwards.

        Raises:
            DeclarationError: when the schema is not valid in its dialect, or refers to something outside itself.
        """
        self._schema = schema
        self._validator = _compile(schema)
        self._depth = Structure(schema).explained_depth()
        self.is_valid = self._validator.is_valid
        """Does a JSON value fit? The hot path."""

    def problems(self, value: Any, noun: str = "argument") -> str:
        """What is wrong with a value, for its reader: up to five problems joined by "; ", empty when it fits.

        `noun` is what a property of the root is called.
        A large value is explained from its beginning, a deep one from its top.
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
        """Where a value breaks the schema: the steps to some of the places, of an excerpt where it is large."""
        part = excerpt(value, self._depth)
        found: dict[tuple[str | int, ...], None] = {}
        for error in self._validator.iter_errors(part.value):
            found[tuple(error.instance_path)] = None
            if len(found) >= MISFITS:
                break
        return list(found)

    def _beyond(self, value: Any, part: Any, noun: str) -> str:
        """Name the property whose part left out breaks the schema."""
        if isinstance(value, dict):
            for name, item in value.items():
                if name in part and not self.is_valid({**part, name: item}):
                    return f"{messages.shorten(name, 60)}: breaks its schema {_BEYOND}"
        return f"a large {noun} breaks the schema {_BEYOND}"


def _compile(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    try:
        return _validator(schema, jsonschema_rs.RegexOptions())
    except jsonschema_rs.ValidationError:
        # Look-around needs the backtracking engine; its steps are bounded, and running out of them is a refusal.
        pass
    try:
        return _validator(schema, jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000))
    except jsonschema_rs.ValidationError as error:
        place = "/".join(str(step) for step in error.instance_path)
        raise DeclarationError(f"not a valid JSON Schema{f' at {place}' if place else ''}: {error.message}") from error


def _validator(schema: dict[str, Any], patterns: Any) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(schema, validate_formats=False, offline=True, pattern_options=patterns)
