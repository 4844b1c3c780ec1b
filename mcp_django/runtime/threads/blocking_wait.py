"""Plain functions that wait for somebody: their thread has to stay, its place among the lanes need not.

Such a thread gives up its connections and its place before it waits, and takes a place again before it goes on. So
however many people think, as many functions run as there are lanes.
"""

import contextlib
from collections.abc import Iterator

from mcp_django.runtime.threads.pool import Lane, LanePool, end, here


class Parking:
    """One wait of one lane's thread. Everything here is for that thread."""

    def __init__(self, pool: LanePool, lane: Lane) -> None:
        self._pool, self._lane = pool, lane

    @contextlib.contextmanager
    def wait(self) -> Iterator[None]:
        """Around the wait. Raises Overloaded when too many wait already."""
        self._pool.park(self._lane)
        end(drop=True)
        here.parking = self
        try:
            yield
        finally:
            here.parking = None
            self._pool.unpark(self._lane)

    @contextlib.contextmanager
    def interrupted(self) -> Iterator[None]:
        """Around something that has to be done in the middle of the wait."""
        here.parking = None
        self._pool.unpark(self._lane)
        try:
            yield
        finally:
            end(drop=True)
            self._pool.park(self._lane, again=True)
            here.parking = self


def current() -> Parking | None:
    """The wait that the current thread is in."""
    return getattr(here, "parking", None)
