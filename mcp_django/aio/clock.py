"""Monotonic clock for caches, expiry, back-off and poll intervals, and periodic visits to many items.

Tests replace `source`. Timers of asyncio use the loop's clock, which is the same: `time.monotonic`.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from mcp_django.aio.tasks import start_timer

PART_COUNT = 15
"""Number of parts into which the items of a visitor are divided."""

T = TypeVar("T")
source: Callable[[], float] = time.monotonic
"""Function that returns seconds since an arbitrary point, and never goes back."""


def monotonic() -> float:
    """Return the seconds since an arbitrary point; they never go back."""
    return source()


class PeriodicVisitor(Generic[T]):
    """Items of the running loop, each of which is visited once per interval, with one timer.

    Each tick visits a part of the items, so that the loop is never blocked for long.
    """

    def __init__(self, interval: float, visit: Callable[[T], None]) -> None:
        self._part_interval = interval / PART_COUNT
        self._visit = visit
        self._parts: tuple[set[T], ...] = tuple(set() for _ in range(PART_COUNT))
        self._current_part = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[T]:
        return iter([item for part in self._parts for item in part])

    def add(self, item: T) -> None:
        """Visit an item from now on."""
        min(self._parts, key=len).add(item)
        if self._timer is None:
            self._schedule_visit()

    def remove(self, item: T) -> None:
        """Stop visiting an item. Idempotent."""
        for part in self._parts:
            part.discard(item)
        if self._timer is not None and not len(self):
            self._timer.cancel()
            self._timer = None

    def _schedule_visit(self) -> None:
        self._timer = start_timer(self._part_interval, self._visit_part)

    def _visit_part(self) -> None:
        self._schedule_visit()
        self._current_part = (self._current_part + 1) % PART_COUNT
        for item in tuple(self._parts[self._current_part]):
            self._visit(item)
