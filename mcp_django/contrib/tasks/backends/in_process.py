"""The backend of the serving process: attempts run on the event loop that serves the call.

At most `CONCURRENCY` attempts run on a loop; others wait in their rows. Shutdown waits for running attempts as for
calls. Under WSGI a loop ends with its request, so attempts run on a loop in a thread of their own.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any

from mcp_django import wiring
from mcp_django.contrib.tasks import upkeep
from mcp_django.contrib.tasks.attempts import runner
from mcp_django.contrib.tasks.attempts.attempt import Attempt, AttemptResult
from mcp_django.contrib.tasks.backend import TaskBackend
from mcp_django.contrib.tasks.backends.loop_thread import LOOP_THREAD
from mcp_django.contrib.tasks.models import Task
from mcp_django.contrib.tasks.options import get_settings
from mcp_django.extensions.calls import get_logger
from mcp_django.extensions.event_loop import LoopLocal, call_threadsafe, is_async_to_sync_loop, start_task

logger = get_logger("mcp_django.tasks")


class RunningAttempt:
    """An attempt that shutdown waits for, as `runtime.shutdown.Drainable`."""

    is_call = False
    is_answered = True

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.loop = asyncio.get_running_loop()
        self.task: asyncio.Task[Any] | None = start_task(coroutine)

    def abort(self) -> None:
        """Cancel the attempt, because the process ends. Its row is released or failed."""
        if self.task is not None:
            self.task.cancel()


class _LoopAttempts:
    def __init__(self) -> None:
        self.running: set[RunningAttempt] = set()
        self.waiting: deque[str] = deque()


class InProcessBackend(TaskBackend):
    """Attempts on the loop of the serving process.

    With `wsgi_thread=False` attempts stay on the loop of the request, even if it ends with the request. For tests.
    """

    delivers_to_workers = False

    def __init__(self, *, wsgi_thread: bool = True) -> None:
        self._wsgi_thread = wsgi_thread
        self._loops = LoopLocal(_LoopAttempts)

    async def enqueue(self, task: Task) -> None:
        """Run an attempt as soon as fewer than `CONCURRENCY` attempts run."""
        loop = self._choose_loop()
        if loop is asyncio.get_running_loop():
            self._add(task.pk)
        else:
            call_threadsafe(loop, self._add, task.pk)

    def begin(self, attempt: Attempt) -> "asyncio.Task[AttemptResult] | None":
        """Start the first attempt of a call that may still get a plain result; None if all places are taken."""
        attempts = self._loops.get()
        if self._choose_loop() is not asyncio.get_running_loop() or len(attempts.running) >= get_settings().concurrency:
            return None
        return self._run(attempts, attempt.execute())

    def supervise(self, attempt: Attempt, execution: "asyncio.Task[AttemptResult]") -> None:
        """Store the end of an attempt that `begin` started, because its call has become a task."""
        attempts = self._loops.get()
        upkeep.start_maintenance()
        self._run(attempts, runner.supervise(attempt, execution))

    def _add(self, id: str) -> None:
        attempts = self._loops.get()
        if id not in attempts.waiting:
            attempts.waiting.append(id)
        upkeep.start_maintenance()
        self._start_waiting(attempts)

    def _start_waiting(self, attempts: _LoopAttempts) -> None:
        while attempts.waiting and len(attempts.running) < get_settings().concurrency:
            self._run(attempts, runner.run_attempt(attempts.waiting.popleft()))

    def _run(self, attempts: _LoopAttempts, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        item, lifecycle = RunningAttempt(coroutine), wiring.get_services().lifecycle
        attempts.running.add(item)
        lifecycle.register(item)
        assert item.task is not None

        def on_done(task: asyncio.Task[Any]) -> None:
            attempts.running.discard(item)
            lifecycle.active.discard(item)
            if not task.cancelled() and task.exception() is not None:
                logger.error("An attempt of a task failed", exc_info=task.exception())
            if not lifecycle.is_draining():
                self._start_waiting(attempts)

        item.task.add_done_callback(on_done)
        return item.task

    def _choose_loop(self) -> asyncio.AbstractEventLoop:
        if not self._wsgi_thread or not is_async_to_sync_loop():
            return asyncio.get_running_loop()
        return LOOP_THREAD.get_loop()
