"""How much work a schema can make of a small value.

Whether a value fits is decided fast, and remembered where a schema meets itself again. Three things are not so kind: the
reasons why a value does not fit, which are collected for every alternative; pydantic's choice between alternatives,
which tries them all; and alternatives multiplied by references on one and the same value.
"""

from collections.abc import Iterator
from functools import cached_property
from math import log
from typing import Any

from .positions import inner_schemas, positions

Schema = dict[str, Any]

UNBOUNDED = 64
_EXPLAINED = 500
"""Alternatives that may be gone through for one explanation."""
_SAME_VALUE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})
_CHOICES = ("anyOf", "oneOf", "allOf")


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
        done: set[int] = set()
        waiting = [(position.schema, False) for position in positions(self.root)]
        while waiting:
            node, weighed = waiting.pop()
            if weighed:
                weights[id(node)] = 1 + sum(weights[id(inner)] for inner in self._same_value(node))
                done.add(id(node))
            elif id(node) not in weights:
                # Met again before it is weighed, a schema applies itself to the same value without end.
                weights[id(node)] = float("inf")
                waiting.append((node, True))
                waiting.extend((inner, False) for inner in self._same_value(node))
        return max(weights.values())

    @cached_property
    def returning(self) -> list[list[Schema]]:
        """For each choice inside, the alternatives that lead back to it; choices with fewer than two are left out."""
        found = []
        for position in positions(self.root):
            for keyword in _CHOICES:
                choice = position.schema.get(keyword)
                if isinstance(choice, list) and len(choice) > 1:
                    back = [
                        inner for inner in choice if isinstance(inner, dict) and self._leads(inner, position.schema)
                    ]
                    if len(back) > 1:
                        found.append(back)
        return found

    def explained_depth(self) -> int:
        """Levels of a value that can be explained in bounded time."""
        fan = max((len(back) for back in self.returning), default=1)
        return UNBOUNDED if fan < 2 else max(2, int(log(_EXPLAINED, fan)))

    def types_of(self, schema: Schema) -> Any:
        """The `type` of a schema, a reference followed."""
        return (self._referred(schema) or schema).get("type")

    def _same_value(self, node: Schema) -> Iterator[Schema]:
        referred = self._referred(node)
        if referred is not None:
            yield referred
        for keyword, _, inner in inner_schemas(node):
            if keyword in _SAME_VALUE:
                yield inner

    def _leads(self, start: Schema, goal: Schema) -> bool:
        seen: set[int] = set()
        waiting = [start]
        while waiting:
            node = waiting.pop()
            if node is goal:
                return True
            if id(node) not in seen:
                seen.add(id(node))
                referred = self._referred(node)
                waiting.extend([] if referred is None else [referred])
                waiting.extend(
                    inner for keyword, _, inner in inner_schemas(node) if keyword not in ("$defs", "definitions")
                )
        return False

    def _referred(self, node: Schema) -> Schema | None:
        reference = node.get("$ref", node.get("$dynamicRef"))
        return self._targets.get(reference) if isinstance(reference, str) else None
