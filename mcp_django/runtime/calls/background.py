"""Background jobs of calls (`ctx.background`), run after the answer is sent.

Waiting jobs are limited per process, and shutdown waits for running ones.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mcp_django.aio.tasks import call_threadsafe, start_task, wait_for_event
from mcp_django.runtime.shutdown import Lifecycle
from mcp_django.server.calls.background import run_background_jobs
from mcp_django.server.calls.call import Call
from mcp_django.server.ports import Overloaded

ANSWER_TIMEOUT_SECONDS = 60.0
"""Maximum seconds to wait for the answer to be sent before the jobs run."""


class BackgroundJobRunner:
    """Background jobs of the calls of one `CallTask`.

    Created when the calls end, started when they are answered, and registered for shutdown until all jobs are done.
    """

    is_call = False
    is_answered = True

    def __init__(self, calls: Sequence[Call], lifecycle: Lifecycle) -> None:
        self.loop = asyncio.get_running_loop()
        self._calls = calls
        self._lifecycle = lifecycle
        self._started = asyncio.Event()
        # In a clean context: each job has its own, and the call's context may refer to a thread that returns to the
        # pool.
        self.task: asyncio.Task[None] | None = start_task(self._run())
        lifecycle.register(self)

    def start(self) -> None:
        """Start the jobs, because the calls are answered. Thread-safe."""
        call_threadsafe(self.loop, self._started.set)

    def abort(self) -> None:
        """Cancel the jobs, because the process ends."""
        if self.task is not None:
            self.task.cancel()

    async def _run(self) -> None:
        try:
            await wait_for_event(self._started, ANSWER_TIMEOUT_SECONDS)
            await run_background_jobs(self._calls)
        finally:
            self._lifecycle.active.discard(self)


@dataclass(eq=False, repr=False)
class LimitedBackgroundSlots:
    """Limit on waiting background jobs in this process."""

    limit: int
    _acquired_count: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def acquire(self) -> "LimitedBackgroundSlot":
        """Reserve a slot for a job.

        Raises:
            Overloaded: all slots are in use.
        """
        with self._lock:
            if self._acquired_count >= self.limit:
                raise Overloaded("Too many background jobs are waiting; try again later")
            self._acquired_count += 1
        return LimitedBackgroundSlot(self._decrement)

    def _decrement(self) -> None:
        with self._lock:
            self._acquired_count -= 1


@dataclass(slots=True, eq=False, repr=False)
class LimitedBackgroundSlot:
    """Slot of one background job."""

    _on_release: Callable[[], None] | None

    def release(self) -> None:
        """Release the slot. Idempotent."""
        on_release = self._on_release
        self._on_release = None
        if on_release is not None:
            on_release()
