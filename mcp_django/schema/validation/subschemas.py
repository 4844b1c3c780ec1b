"""Subschemas of a JSON Schema, in all dialects from draft 4 to 2020-12."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_SINGLE_KEYWORDS = frozenset(
    {"additionalProperties", "additionalItems", "unevaluatedProperties", "unevaluatedItems", "items"}
)
_SINGLE_KEYWORDS |= {"contains", "not", "if", "then", "else", "propertyNames", "contentSchema"}
_LIST_KEYWORDS = frozenset(["allOf", "anyOf", "oneOf", "prefixItems", "items"])
_MAPPING_KEYWORDS = frozenset(
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"]
)


@dataclass(frozen=True, slots=True)
class Subschema:
    """A schema inside another schema."""

    schema: dict[str, Any]
    pointer: tuple[str, ...]
    """Path from the root, empty for the root."""
    properties: tuple[str, ...] | None
    """Property names of the path if it has only `properties` keywords, else None."""
    depth: int
    """Number of surrounding schemas."""


def iter_subschemas(schema: dict[str, Any]) -> Iterator[Subschema]:
    """Yield every object-valued schema inside `schema`, the root first.

    Works without recursion at any depth.
    """
    pending = [Subschema(schema, (), (), 0)]
    while pending:
        current = pending.pop()
        yield current
        for keyword, step, inner in iter_children(current.schema):
            names = (*current.properties, step) if keyword == "properties" and current.properties is not None else None
            steps = (keyword, step) if step else (keyword,)
            pending.append(Subschema(inner, (*current.pointer, *steps), names, current.depth + 1))


def iter_children(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the object-valued schemas one level down.

    Each has its keyword, and its name or number under the keyword.
    """
    for keyword, value in schema.items():
        found: list[tuple[str, Any]] = []
        if keyword in _MAPPING_KEYWORDS and isinstance(value, dict):
            found = list(value.items())
        elif keyword in _LIST_KEYWORDS and isinstance(value, list):
            found = [(str(number), inner) for number, inner in enumerate(value)]
        elif keyword in _SINGLE_KEYWORDS:
            found = [("", value)]
        for name, inner in found:
            if isinstance(inner, dict):
                yield keyword, name, inner
