"""Blocking waits: plain functions that wait for a client on their own thread.

Before the wait the thread gives up its connections and its place in the pool. Afterwards it waits for a free place.
However many functions wait for users, the pool can run its full number of threads.
"""

import contextlib
from collections.abc import Iterator

from mcp_django.runtime.threads.pool import Lane, LanePool, end, here


class Parking:
    """Blocking wait of one pool thread. Use it on that thread only."""

    def __init__(self, pool: LanePool, lane: Lane) -> None:
        self._pool, self._lane = pool, lane

    @contextlib.contextmanager
    def wait(self) -> Iterator[None]:
        """Wrap the wait.

        Raises:
            Overloaded: too many threads are waiting.
        """
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
        """Wrap work that must be done in the middle of the wait."""
        here.parking = None
        self._pool.unpark(self._lane)
        try:
            yield
        finally:
            end(drop=True)
            self._pool.park(self._lane, again=True)
            here.parking = self


def current() -> Parking | None:
    """Return the blocking wait of the current thread, or None."""
    return getattr(here, "parking", None)
