"""Periodic visits to many items of a loop, spread over time with one timer.

Each tick visits a part of the items, so that the loop is never blocked for long.
"""

import asyncio
import contextvars
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

PARTS = 15

T = TypeVar("T")


class Rounds(Generic[T]):
    """Items of the running loop, each of which is visited once per interval."""

    def __init__(self, every: float, visit: Callable[[T], None]) -> None:
        self._pause, self._visit = every / PARTS, visit
        self._parts: tuple[set[T], ...] = tuple(set() for _ in range(PARTS))
        self._next = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[T]:
        return iter([thing for part in self._parts for thing in part])

    def add(self, thing: T) -> None:
        """Visit an item from now on."""
        min(self._parts, key=len).add(thing)
        if self._timer is None:
            self._wait()

    def discard(self, thing: T) -> None:
        """Stop visiting an item. Idempotent."""
        for part in self._parts:
            part.discard(thing)
        if self._timer is not None and not len(self):
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._pause, self._go_round, context=contextvars.Context())

    def _go_round(self) -> None:
        self._wait()
        self._next = (self._next + 1) % PARTS
        for thing in tuple(self._parts[self._next]):
            self._visit(thing)
