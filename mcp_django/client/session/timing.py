"""Timing of requests: the delays between attempts, and timeouts that pause while a callback runs."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager

from mcp_django.aio.clock import monotonic

FIRST, LONGEST = 0.2, 10.0
"""Seconds before the first repetition, and at most before any."""
STEADY = 10.0
"""Seconds that a connection has to hold before what failed earlier is forgotten."""
FOREVER = 1 << 30
"""Repetitions of what is tried until it is there."""
AT_ONCE, SPACE = 5, 1.0
"""How often in succession another server is obeyed at once, and the seconds between the times after that."""


class Backoff:
    """Counts the repetitions of something that fails: each waits up to twice as long as the one before, at random."""

    def __init__(self, repetitions: int) -> None:
        self._repetitions, self._done = repetitions, 0

    def delay(self) -> float | None:
        """Seconds to wait before the next attempt; None when there is to be none."""
        if self._done >= self._repetitions:
            return None
        longest: float = min(FIRST * 2 ** min(self._done, 16), LONGEST)
        self._done += 1
        # Half of it is fixed, so that a server that starts has some time; half is random, so that clients part.
        return longest / 2 + random.uniform(0, longest / 2)  # noqa: S311

    def reset(self) -> None:
        """Forget what failed."""
        self._done = 0


class Haste:
    """Slows down what another server asks for again and again: a few times at once, then once a second."""

    __slots__ = ("_began", "_count")

    def __init__(self) -> None:
        self._count, self._began = 0, -SPACE

    async def pause(self) -> None:
        """Wait until it may begin."""
        self._count = self._count + 1 if monotonic() < self._began + SPACE else 0
        if self._count > AT_ONCE:
            await asyncio.sleep(SPACE)
        self._began = monotonic()


class Deadlines:
    """The clocks of the calls that wait on one server.

    Over most transports a question does not say which call it belongs to, so all of them stand still.
    """

    def __init__(self) -> None:
        self._running: dict[asyncio.Timeout, float | None] = {}
        """Each clock, and the seconds that it had left when it was stopped."""
        self._questions = 0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While a question is answered."""
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
        """While a call with this clock, which was entered, waits for its answer."""
        self._running[clock] = seconds if self._questions else None
        if self._questions:
            clock.reschedule(None)
        try:
            yield
        finally:
            del self._running[clock]
