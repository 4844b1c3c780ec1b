"""How long to wait before the next attempt, and how many attempts there are."""

import asyncio
import random

from ..clock import monotonic

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
