"""What calls have left for when they are answered (`ctx.background`): counted, run once the answer is out, and waited
for when the process ends.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Sequence

from mcp_django.runtime.shutdown import Lifecycle
from mcp_django.server.calls.call import Call
from mcp_django.server.context.background import run_jobs
from mcp_django.server.ports import Overloaded

PATIENCE = 60.0
"""Seconds after which it is run though the client has not taken its answer."""


class Afterwards:
    """What the calls of one flight have left, in the air until it is done: made when they end, and told to begin when
    they are answered.
    """

    is_call = False
    answered = True

    def __init__(self, calls: Sequence[Call], lifecycle: Lifecycle) -> None:
        self.loop = asyncio.get_running_loop()
        self._calls, self._lifecycle = calls, lifecycle
        self._begun = asyncio.Event()
        # In a clean context: each job has its own, and that of the call may name a lane which goes back.
        self.task: asyncio.Task[None] | None = self.loop.create_task(self._run(), context=contextvars.Context())
        lifecycle.board(self)

    def begin(self) -> None:
        """The calls are answered. From any thread."""
        try:
            self.loop.call_soon_threadsafe(self._begun.set)
        except RuntimeError:
            pass  # the loop is closed

    def shut_down(self) -> None:
        """The process ends."""
        if self.task is not None:
            self.task.cancel()

    async def _run(self) -> None:
        try:
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._begun.wait()
            except TimeoutError:
                pass
            await run_jobs(self._calls)
        finally:
            self._lifecycle.flights.discard(self)


class CountedPlaces:
    """The places of a process for such work."""

    def __init__(self, most: Callable[[], int]) -> None:
        self._most, self._taken, self._lock = most, 0, threading.Lock()

    def take(self) -> "CountedPlace":
        """One more. Raises Overloaded."""
        with self._lock:
            if self._taken >= self._most():
                raise Overloaded("Too much background work waits; try again later")
            self._taken += 1
        return CountedPlace(self)

    def give_back(self) -> None:
        """One less."""
        with self._lock:
            self._taken -= 1


class CountedPlace:
    """One of them."""

    __slots__ = ("_places",)

    def __init__(self, places: CountedPlaces) -> None:
        self._places: CountedPlaces | None = places

    def leave(self) -> None:
        """It is free. May be said more than once."""
        places, self._places = self._places, None
        if places is not None:
            places.give_back()
