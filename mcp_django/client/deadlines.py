"""How long calls may take: clocks that stand still while somebody here answers a question of the server."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


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
