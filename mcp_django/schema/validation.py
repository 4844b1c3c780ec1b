"""The one door to jsonschema-rs: schemas compiled to checkers, and failures told in words.

Formats are annotations and are not asserted, nothing is ever fetched, and patterns run in linear time where they can.
"""

from typing import Any

import jsonschema_rs
from jsonschema_rs import ValidationErrorKind as Kind

from . import wording
from .errors import DeclarationError
from .excerpt import excerpt

SHOWN = 5
"""Problems told at most; a model that has five to mend does not need the rest yet."""
_BY_ABSENCE = (Kind.Required, Kind.MinItems, Kind.MinProperties, Kind.Contains)
"""Rules that a value may break merely because it was cut."""


class Checker:
    """A compiled schema."""

    __slots__ = ("_schema", "_validator", "is_valid")

    def __init__(self, schema: dict[str, Any]) -> None:
        """Compile `schema`, which must not change afterwards.

        Raises:
            DeclarationError: when the schema is not valid in its dialect, or refers to something outside itself.
        """
        self._schema = schema
        self._validator = _compile(schema)
        self.is_valid = self._validator.is_valid
        """Does a JSON value fit? The hot path."""

    def problems(self, value: Any, noun: str = "argument") -> str:
        """What is wrong with a value, for its reader: up to five problems joined by "; ", empty when it fits.

        `noun` is what a property of the root is called. A large value is explained from its beginning.
        """
        if self.is_valid(value):
            return ""
        part = excerpt(value)
        told: dict[str, None] = {}
        for error in self._validator.iter_errors(part.value):
            if isinstance(error.kind, _BY_ABSENCE) and tuple(error.instance_path) in part.cut:
                continue
            told.update(dict.fromkeys(wording.explain(error, self._schema, noun)))
            if len(told) >= SHOWN:
                break
        return "; ".join(list(told)[:SHOWN]) or self._beyond(value, part.value, noun)

    def _beyond(self, value: Any, part: Any, noun: str) -> str:
        """Name the property whose part left out breaks the schema."""
        if isinstance(value, dict):
            for name, item in value.items():
                if name in part and not self.is_valid({**part, name: item}):
                    return f"{wording.shorten(name, 60)}: breaks its schema beyond its first items; check every item"
        return f"a large {noun} breaks the schema beyond its first items; check every item"


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
