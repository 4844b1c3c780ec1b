"""Truncation of large values for explanations.

Deciding validity is fast at any size. Collecting errors takes about 20 us for each one, alternatives included, so a
body of a few megabytes would block a worker for many seconds. A value is therefore truncated before it is explained.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

MAX_NODES = 500
"""Maximum number of values, including nested ones, that are explained in full."""
_MAX_ITEMS = 50


@dataclass(slots=True)
class TruncatedValue:
    """A value without its long or deep parts."""

    value: Any
    cut_paths: set[tuple[str | int, ...]] = field(default_factory=set)
    """Paths of the truncated parts."""


def truncate_value(value: Any, depth: int) -> TruncatedValue:
    """Truncate a JSON value to `MAX_NODES` nodes and `depth` levels.

    A smaller value is returned unchanged.
    """
    if _remaining_budget(value, MAX_NODES, depth) >= 0:
        return TruncatedValue(value)
    cutter = _Truncator(depth)
    return TruncatedValue(cutter.copy(value, ()), cutter.cut_paths)


def _remaining_budget(value: Any, budget: int, depth: int) -> int:
    """Return the rest of a budget of nodes after `value`.

    Negative if the budget or the depth is exceeded.
    """
    budget -= 1
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return budget
    if budget < len(value) or (value and depth == 0):
        return -1
    for item in value:
        budget = _remaining_budget(item, budget, depth - 1)
        if budget < 0:
            break
    return budget


@dataclass(slots=True, eq=False)
class _Truncator:
    depth: int
    left: int = MAX_NODES
    cut_paths: set[tuple[str | int, ...]] = field(default_factory=set)

    def copy(self, value: Any, path: tuple[str | int, ...]) -> Any:
        self.left -= 1
        if isinstance(value, dict):
            return {key: self.copy(item, (*path, key)) for key, item in self._take_items(value.items(), path)}
        if isinstance(value, list):
            items = list(enumerate(value[: _MAX_ITEMS + 1]))
            return [self.copy(item, (*path, index)) for index, item in self._take_items(items, path)]
        return value

    def _take_items(self, items: Collection[Any], path: tuple[str | int, ...]) -> Iterator[Any]:
        for taken, item in enumerate(items):
            if taken == _MAX_ITEMS or self.left <= 0 or len(path) >= self.depth:
                self.cut_paths.add(path)
                return
            yield item
