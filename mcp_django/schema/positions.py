"""Where schemas sit inside a JSON Schema, in every dialect from draft 4 to 2020-12."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_ONE = frozenset({"additionalProperties", "additionalItems", "unevaluatedProperties", "unevaluatedItems", "items"})
_ONE |= {"contains", "not", "if", "then", "else", "propertyNames", "contentSchema"}
_MANY = frozenset(["allOf", "anyOf", "oneOf", "prefixItems", "items"])
_NAMED = frozenset(["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"])


@dataclass(frozen=True, slots=True)
class Position:
    """One schema inside another."""

    schema: dict[str, Any]
    pointer: tuple[str, ...]
    """The steps that lead here from the root, empty for the root."""
    properties: tuple[str, ...] | None
    """The property names on the way, if `properties` keywords alone lead here; else None."""
    depth: int
    """Schemas around this one."""


def positions(schema: dict[str, Any]) -> Iterator[Position]:
    """Every object-valued schema inside `schema`, the root first; works without recursion at any depth."""
    waiting = [Position(schema, (), (), 0)]
    while waiting:
        here = waiting.pop()
        yield here
        for keyword, step, inner in _inner(here.schema):
            if isinstance(inner, dict):
                names = (*here.properties, step) if keyword == "properties" and here.properties is not None else None
                steps = (keyword,) if step is None else (keyword, step)
                waiting.append(Position(inner, (*here.pointer, *steps), names, here.depth + 1))  # type: ignore[arg-type]


def _inner(schema: dict[str, Any]) -> Iterator[tuple[str, str | None, Any]]:
    for keyword, value in schema.items():
        if keyword in _NAMED and isinstance(value, dict):
            yield from ((keyword, name, inner) for name, inner in value.items())
        elif keyword in _MANY and isinstance(value, list):
            yield from ((keyword, str(index), inner) for index, inner in enumerate(value))
        elif keyword in _ONE:
            yield keyword, None, value
