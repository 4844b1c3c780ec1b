"""Subschemas of a JSON Schema, and its complexity: bounds on the work for a small value.

Deciding validity is fast, and cached where a schema applies again. Three things are slow: collecting the errors of an
invalid value for every alternative, pydantic's choice between alternatives, which tries them all, and schemas that
references multiply on one value.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import log
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


def convert_children(schema: dict[str, Any], convert: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Return a schema with the object-valued schemas one level down converted.

    Without changes, the same object is returned.
    """
    changed: dict[str, Any] = {}
    for keyword, name, inner in iter_children(schema):
        converted, container = convert(inner), schema[keyword]
        if converted is inner:
            continue
        if container is inner:
            changed[keyword] = converted
        else:
            changed.setdefault(keyword, container.copy())[int(name) if isinstance(container, list) else name] = (
                converted
            )
    return {**schema, **changed} if changed else schema


Schema = dict[str, Any]

UNLIMITED_DEPTH = 64
_MAX_EXPLAINED_ALTERNATIVES = 500
"""Maximum number of alternatives examined for one explanation."""
_SAME_VALUE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})


class SchemaGraph:
    """A schema as a graph: its subschemas and the targets of its references."""

    def __init__(self, schema: Schema) -> None:
        self.root = schema
        self._targets: dict[str, Schema] = {}
        for position in iter_subschemas(schema):
            steps = (step.replace("~", "~0").replace("/", "~1") for step in position.pointer)
            self._targets["/".join(("#", *steps))] = position.schema
            for keyword in ("$anchor", "$dynamicAnchor"):
                self._targets.setdefault(f"#{position.schema.get(keyword)}", position.schema)
            for keyword in ("$id", "id"):
                self._targets.setdefault(str(position.schema.get(keyword)), position.schema)

    def max_schemas_per_value(self) -> float:
        """Return the maximum number of schemas applied to one value, infinite for a loop."""
        weights: dict[int, float] = {}
        pending = [(position.schema, False) for position in iter_subschemas(self.root)]
        while pending:
            node, is_weighed = pending.pop()
            if is_weighed:
                weights[id(node)] = 1 + sum(
                    weights[id(inner)] for inner in self._find_successors(node, same_value=True)
                )
            elif id(node) not in weights:
                # A schema visited again before it is weighed applies to the same value without end.
                weights[id(node)] = float("inf")
                pending.append((node, True))
                pending.extend((inner, False) for inner in self._find_successors(node, same_value=True))
        return max(weights.values())

    def find_recursive_choices(self, *keywords: str) -> Iterator[list[Schema]]:
        """Yield the recursive alternatives of each choice under `keywords`, if several.

        An alternative is recursive if it leads back to its choice.
        """
        for position in iter_subschemas(self.root):
            for keyword in keywords:
                choice = position.schema.get(keyword)
                if isinstance(choice, list) and len(choice) > 1:
                    alternatives = [inner for inner in choice if isinstance(inner, dict)]
                    cycle = self._cycles[id(position.schema)]
                    recursive = [inner for inner in alternatives if self._cycles[id(inner)] == cycle]
                    if len(recursive) > 1:
                        yield recursive

    def max_explained_depth(self) -> int:
        """Return the number of levels of a value that can be explained in bounded time."""
        fan = max((len(back) for back in self.find_recursive_choices("anyOf", "oneOf", "allOf")), default=1)
        return UNLIMITED_DEPTH if fan < 2 else max(2, int(log(_MAX_EXPLAINED_ALTERNATIVES, fan)))

    def get_type(self, schema: Schema) -> Any:
        """Return the `type` of a schema, following a reference."""
        return (self._resolve_reference(schema) or schema).get("type")

    def _find_successors(self, node: Schema, *, same_value: bool = False) -> Iterator[Schema]:
        """Yield the schemas that apply next to a value or its parts.

        With `same_value`, schemas of parts are left out. Definitions do not apply.
        """
        referred = self._resolve_reference(node)
        if referred is not None:
            yield referred
        for keyword, _, inner in iter_children(node):
            if keyword in _SAME_VALUE or not (same_value or keyword in ("$defs", "definitions")):
                yield inner

    @cached_property
    def _cycles(self) -> dict[int, int]:
        """Schema id to the cycle of references that contains it.

        Two schemas lead to each other if they have the same cycle.
        """
        onward = {
            id(place.schema): [id(i) for i in self._find_successors(place.schema)]
            for place in iter_subschemas(self.root)
        }
        backward: dict[int, list[int]] = {node: [] for node in onward}
        for node, inner in onward.items():
            for target in inner:
                backward[target].append(node)

        circles: dict[int, int] = {}
        for start in reversed(_order_by_finish(onward)):
            waiting = [start]
            while waiting:
                node = waiting.pop()
                if node not in circles:
                    circles[node] = start
                    waiting.extend(backward[node])
        return circles

    def _resolve_reference(self, node: Schema) -> Schema | None:
        reference = node.get("$ref", node.get("$dynamicRef"))
        return self._targets.get(reference) if isinstance(reference, str) else None


def _order_by_finish(onward: dict[int, list[int]]) -> list[int]:
    """Return the nodes of a graph in finishing order (Kosaraju's first pass)."""
    order: list[int] = []
    seen: set[int] = set()
    for start in onward:
        waiting = [(start, False)]
        while waiting:
            node, done = waiting.pop()
            if done:
                order.append(node)
            elif node not in seen:
                seen.add(node)
                waiting.append((node, True))
                waiting.extend((inner, False) for inner in onward[node])
    return order
