"""Subschemas of a JSON Schema, in all dialects from draft 4 to 2020-12."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_ONE = frozenset({"additionalProperties", "additionalItems", "unevaluatedProperties", "unevaluatedItems", "items"})
_ONE |= {"contains", "not", "if", "then", "else", "propertyNames", "contentSchema"}
_MANY = frozenset(["allOf", "anyOf", "oneOf", "prefixItems", "items"])
_NAMED = frozenset(["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"])


@dataclass(frozen=True, slots=True)
class Position:
    """A schema inside another schema."""

    schema: dict[str, Any]
    pointer: tuple[str, ...]
    """Path from the root, empty for the root."""
    properties: tuple[str, ...] | None
    """Property names of the path if it has only `properties` keywords, else None."""
    depth: int
    """Number of surrounding schemas."""


def positions(schema: dict[str, Any]) -> Iterator[Position]:
    """Yield every object-valued schema inside `schema`, the root first.

    Works without recursion at any depth.
    """
    waiting = [Position(schema, (), (), 0)]
    while waiting:
        here = waiting.pop()
        yield here
        for keyword, step, inner in inner_schemas(here.schema):
            names = (*here.properties, step) if keyword == "properties" and here.properties is not None else None
            steps = (keyword, step) if step else (keyword,)
            waiting.append(Position(inner, (*here.pointer, *steps), names, here.depth + 1))


def inner_schemas(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the object-valued schemas one level down.

    Each has its keyword, and its name or number under the keyword.
    """
    for keyword, value in schema.items():
        found: list[tuple[str, Any]] = []
        if keyword in _NAMED and isinstance(value, dict):
            found = list(value.items())
        elif keyword in _MANY and isinstance(value, list):
            found = [(str(number), inner) for number, inner in enumerate(value)]
        elif keyword in _ONE:
            found = [("", value)]
        for name, inner in found:
            if isinstance(inner, dict):
                yield keyword, name, inner
