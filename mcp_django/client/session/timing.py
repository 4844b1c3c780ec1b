"""Timing of requests: retry delays, and timeouts that pause while a callback runs."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager

from mcp_django.aio.clock import monotonic

FIRST, LONGEST = 0.2, 10.0
"""Delay in seconds before the first retry, and the maximum delay."""
STEADY = 10.0
"""Seconds after which an open connection resets the backoff."""
FOREVER = 1 << 30
"""Number of retries for operations that are retried until they succeed."""
AT_ONCE, SPACE = 5, 1.0
"""Number of immediate refreshes, and seconds between later ones."""


class Backoff:
    """Randomized exponential backoff with a maximum number of retries."""

    def __init__(self, repetitions: int) -> None:
        self._repetitions, self._done = repetitions, 0

    def delay(self) -> float | None:
        """Return the seconds before the next attempt; None when no retries are left."""
        if self._done >= self._repetitions:
            return None
        longest: float = min(FIRST * 2 ** min(self._done, 16), LONGEST)
        self._done += 1
        # Half of the delay is fixed to give a starting server time; half is random to spread clients.
        return longest / 2 + random.uniform(0, longest / 2)  # noqa: S311

    def reset(self) -> None:
        """Reset the number of retries."""
        self._done = 0


class Haste:
    """Limits refreshes caused by a server: a few at once, then one per second."""

    __slots__ = ("_began", "_count")

    def __init__(self) -> None:
        self._count, self._began = 0, -SPACE

    async def pause(self) -> None:
        """Wait until the next refresh may start."""
        self._count = self._count + 1 if monotonic() < self._began + SPACE else 0
        if self._count > AT_ONCE:
            await asyncio.sleep(SPACE)
        self._began = monotonic()


class Deadlines:
    """The timeouts of all calls to one server, which pause while a callback runs.

    Over most transports a server's request does not identify its call, so all timeouts pause.
    """

    def __init__(self) -> None:
        self._running: dict[asyncio.Timeout, float | None] = {}
        """Each timeout, with the seconds left when it was paused."""
        self._questions = 0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause all timeouts while a callback runs."""
        now = asyncio.get_running_loop().time()
        self._questions += 1
        if self._questions == 1:
            for clock, _ in list(self._running.items()):
                if (when := clock.when()) is not None and not clock.expired():
                    self._running[clock] = when - now
                    clock.reschedule(None)

        try:
            yield
        finally:
            self._questions -= 1
            if not self._questions:
                now = asyncio.get_running_loop().time()
                for clock, left in list(self._running.items()):
                    if left is not None:
                        self._running[clock] = None
                        clock.reschedule(now + left)

    @contextmanager
    def counted(self, clock: asyncio.Timeout, seconds: float) -> Iterator[None]:
        """Include the entered timeout of a call in the pauses until the call ends."""
        self._running[clock] = seconds if self._questions else None
        if self._questions:
            clock.reschedule(None)
        try:
            yield
        finally:
            del self._running[clock]
