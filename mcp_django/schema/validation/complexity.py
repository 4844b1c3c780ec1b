"""How much work a schema can make of a small value.

Whether a value fits is decided fast, and remembered where a schema meets itself again. Three things are not so kind:
the reasons why a value does not fit, which are collected for every alternative; pydantic's choice between
alternatives, which tries them all; and schemas multiplied by references on one and the same value.
"""

from collections.abc import Iterator
from functools import cached_property
from math import log
from typing import Any

from mcp_django.schema.validation.subschemas import inner_schemas, positions

Schema = dict[str, Any]

UNBOUNDED = 64
_EXPLAINED = 500
"""Alternatives that may be gone through for one explanation."""
_SAME_VALUE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})


class Structure:
    """A schema as a graph: which schemas it holds, and where its references lead."""

    def __init__(self, schema: Schema) -> None:
        self.root = schema
        self._targets: dict[str, Schema] = {}
        for position in positions(schema):
            steps = (step.replace("~", "~0").replace("/", "~1") for step in position.pointer)
            self._targets["/".join(("#", *steps))] = position.schema
            for keyword in ("$anchor", "$dynamicAnchor"):
                self._targets.setdefault(f"#{position.schema.get(keyword)}", position.schema)
            for keyword in ("$id", "id"):
                self._targets.setdefault(str(position.schema.get(keyword)), position.schema)

    def repetition(self) -> float:
        """How many schemas can be applied to one value, at the schema where they are most; infinite for a loop."""
        weights: dict[int, float] = {}
        waiting = [(position.schema, False) for position in positions(self.root)]
        while waiting:
            node, weighed = waiting.pop()
            if weighed:
                weights[id(node)] = 1 + sum(weights[id(inner)] for inner in self._same_value(node))
            elif id(node) not in weights:
                # Met again before it is weighed, a schema applies itself to the same value without end.
                weights[id(node)] = float("inf")
                waiting.append((node, True))
                waiting.extend((inner, False) for inner in self._same_value(node))
        return max(weights.values())

    def returning(self, *keywords: str) -> Iterator[list[Schema]]:
        """For each choice under one of `keywords`, the alternatives that lead back to it, if they are several."""
        for position in positions(self.root):
            for keyword in keywords:
                choice = position.schema.get(keyword)
                if isinstance(choice, list) and len(choice) > 1:
                    alternatives = [inner for inner in choice if isinstance(inner, dict)]
                    here = self._circles[id(position.schema)]
                    back = [inner for inner in alternatives if self._circles[id(inner)] == here]
                    if len(back) > 1:
                        yield back

    def explained_depth(self) -> int:
        """Levels of a value that can be explained in bounded time."""
        fan = max((len(back) for back in self.returning("anyOf", "oneOf", "allOf")), default=1)
        return UNBOUNDED if fan < 2 else max(2, int(log(_EXPLAINED, fan)))

    def type_of(self, schema: Schema) -> Any:
        """The `type` of a schema, a reference followed."""
        return (self._referred(schema) or schema).get("type")

    def _same_value(self, node: Schema) -> Iterator[Schema]:
        """The schemas that the same value is checked against next."""
        referred = self._referred(node)
        if referred is not None:
            yield referred
        for keyword, _, inner in inner_schemas(node):
            if keyword in _SAME_VALUE:
                yield inner

    @cached_property
    def _circles(self) -> dict[int, int]:
        """For each schema the circle of references it is in: two schemas lead to each other if it is the same one."""
        onward = {id(place.schema): [id(i) for i in self._onward(place.schema)] for place in positions(self.root)}
        backward: dict[int, list[int]] = {node: [] for node in onward}
        for node, inner in onward.items():
            for target in inner:
                backward[target].append(node)
        circles: dict[int, int] = {}
        for start in reversed(_finished(onward)):
            waiting = [start]
            while waiting:
                node = waiting.pop()
                if node not in circles:
                    circles[node] = start
                    waiting.extend(backward[node])
        return circles

    def _onward(self, node: Schema) -> Iterator[Schema]:
        """The schemas that a value, or a part of it, is checked against next; definitions are not by themselves."""
        referred = self._referred(node)
        if referred is not None:
            yield referred
        for keyword, _, inner in inner_schemas(node):
            if keyword not in ("$defs", "definitions"):
                yield inner

    def _referred(self, node: Schema) -> Schema | None:
        reference = node.get("$ref", node.get("$dynamicRef"))
        return self._targets.get(reference) if isinstance(reference, str) else None


def _finished(onward: dict[int, list[int]]) -> list[int]:
    """The nodes of a graph in the order a search in depth is done with them (Kosaraju's first pass)."""
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
