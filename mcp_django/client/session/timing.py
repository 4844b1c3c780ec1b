"""Timing of requests: retry delays, and timeouts that pause while a callback runs."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mcp_django.aio.clock import monotonic

FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS = 0.2, 10.0
"""Delay in seconds before the first retry, and the maximum delay."""
STABLE_AFTER_SECONDS = 10.0
"""Seconds after which an open connection resets the backoff."""
UNLIMITED_RETRIES = 1 << 30
"""Number of retries for operations that are retried until they succeed."""
UNDELAYED_REFRESHES, REFRESH_INTERVAL_SECONDS = 5, 1.0
"""Number of immediate refreshes, and seconds between later ones."""


class Backoff:
    """Randomized exponential backoff with a maximum number of retries."""

    def __init__(self, max_retries: int) -> None:
        self._max_retries = max_retries
        self._retries = 0

    def next_delay(self) -> float | None:
        """Return the seconds before the next attempt; None when no retries are left."""
        if self._retries >= self._max_retries:
            return None
        longest: float = min(FIRST_DELAY_SECONDS * 2 ** min(self._retries, 16), MAX_DELAY_SECONDS)
        self._retries += 1
        # Half of the delay is fixed to give a starting server time; half is random to spread clients.
        return longest / 2 + random.uniform(0, longest / 2)  # noqa: S311

    def reset(self) -> None:
        """Reset the number of retries."""
        self._retries = 0


@dataclass(slots=True, eq=False)
class RefreshThrottle:
    """Limits refreshes caused by a server: a few at once, then one per second."""

    _count: int = 0
    _started_at: float = -REFRESH_INTERVAL_SECONDS

    async def wait(self) -> None:
        """Wait until the next refresh may start."""
        self._count = self._count + 1 if monotonic() < self._started_at + REFRESH_INTERVAL_SECONDS else 0
        if self._count > UNDELAYED_REFRESHES:
            await asyncio.sleep(REFRESH_INTERVAL_SECONDS)
        self._started_at = monotonic()


class PausableTimeouts:
    """The timeouts of all calls to one server, which pause while a callback runs.

    Over most transports a server's request does not identify its call, so all timeouts pause.
    """

    def __init__(self) -> None:
        self._timeouts: dict[asyncio.Timeout, float | None] = {}
        """Each timeout, with the seconds left when it was paused."""
        self._running_callbacks = 0

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Pause all timeouts while a callback runs."""
        now = asyncio.get_running_loop().time()
        self._running_callbacks += 1
        if self._running_callbacks == 1:
            for clock, _ in list(self._timeouts.items()):
                if (when := clock.when()) is not None and not clock.expired():
                    self._timeouts[clock] = when - now
                    clock.reschedule(None)

        try:
            yield
        finally:
            self._running_callbacks -= 1
            if not self._running_callbacks:
                now = asyncio.get_running_loop().time()
                for clock, left in list(self._timeouts.items()):
                    if left is not None:
                        self._timeouts[clock] = None
                        clock.reschedule(now + left)

    @contextmanager
    def track(self, timeout: asyncio.Timeout, seconds: float) -> Iterator[None]:
        """Include the entered timeout of a call in the pauses until the call ends."""
        self._timeouts[timeout] = seconds if self._running_callbacks else None
        if self._running_callbacks:
            timeout.reschedule(None)
        try:
            yield
        finally:
            del self._timeouts[timeout]
