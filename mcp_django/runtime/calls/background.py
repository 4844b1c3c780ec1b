"""Background jobs of calls (`ctx.background`), run after the answer is sent.

Waiting jobs are limited per process, and shutdown waits for running ones.
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
"""Maximum seconds to wait for the answer to be sent before the jobs run."""


class Afterwards:
    """Background jobs of the calls of one `CallTask`.

    Created when the calls end, started when they are answered, and registered for shutdown until all jobs are done.
    """

    is_call = False
    answered = True

    def __init__(self, calls: Sequence[Call], lifecycle: Lifecycle) -> None:
        self.loop = asyncio.get_running_loop()
        self._calls, self._lifecycle = calls, lifecycle
        self._begun = asyncio.Event()
        # In a clean context: each job has its own, and the call's context may refer to a thread that returns to the
        # pool.
        self.task: asyncio.Task[None] | None = self.loop.create_task(self._run(), context=contextvars.Context())
        lifecycle.board(self)

    def begin(self) -> None:
        """Start the jobs, because the calls are answered. Thread-safe."""
        try:
            self.loop.call_soon_threadsafe(self._begun.set)
        except RuntimeError:
            pass  # the loop is closed

    def shut_down(self) -> None:
        """Cancel the jobs, because the process ends."""
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
    """Limit on waiting background jobs in this process."""

    def __init__(self, most: Callable[[], int]) -> None:
        self._most, self._taken, self._lock = most, 0, threading.Lock()

    def take(self) -> "CountedPlace":
        """Reserve a slot for a job.

        Raises:
            Overloaded: all slots are in use.
        """
        with self._lock:
            if self._taken >= self._most():
                raise Overloaded("Too many background jobs are waiting; try again later")
            self._taken += 1
        return CountedPlace(self)

    def give_back(self) -> None:
        """Release a slot."""
        with self._lock:
            self._taken -= 1


class CountedPlace:
    """Slot of one background job."""

    __slots__ = ("_places",)

    def __init__(self, places: CountedPlaces) -> None:
        self._places: CountedPlaces | None = places

    def leave(self) -> None:
        """Release the slot. Idempotent."""
        places, self._places = self._places, None
        if places is not None:
            places.give_back()
