"""The event loop of processes that have none of their own: WSGI servers, Celery, Django's tasks.

A loop of `async_to_sync` runs blocking code on the thread of its caller. A blocking tool there would prevent the
heartbeats of its own attempt. So attempts run on a loop in a thread of its own, which lasts as long as the process.
"""

import asyncio
import os
import threading

from asgiref.sync import async_to_sync
from django.db import connections

from mcp_django.contrib.tasks import upkeep
from mcp_django.contrib.tasks.attempts.runner import run_attempt
from mcp_django.contrib.tasks.rows import store
from mcp_django.extensions.event_loop import call_threadsafe

UNWIND_SECONDS = 3.0
"""Maximum seconds for an interrupted attempt to store its end."""


class LoopThread:
    """A daemon thread with an event loop, started at the first use in each process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop. A forked process gets a new one."""
        with self._lock:
            if self._loop is None or self._loop.is_closed() or self._pid != os.getpid():
                self._loop = asyncio.new_event_loop()
                self._pid = os.getpid()
                threading.Thread(target=self._loop.run_forever, name="mcp-tasks", daemon=True).start()
            return self._loop


LOOP_THREAD = LoopThread()
"""The thread of this process."""


def start_maintenance_in_thread() -> None:
    """Maintain the tasks on the loop of this process, before it has run an attempt."""
    call_threadsafe(LOOP_THREAD.get_loop(), upkeep.start_maintenance)


def run_attempt_from_thread(id: str) -> bool:
    """Run an attempt of a task, and block until it has ended; return False if the task does not wait.

    An exception on the calling thread, such as a time limit of its worker, stops the attempt.
    """
    if connections[store.get_alias()].in_atomic_block:
        # Only this thread sees the row, as in a test case.
        return async_to_sync(run_attempt)(id)

    ended = threading.Event()

    async def run() -> bool:
        upkeep.start_maintenance()
        try:
            return await run_attempt(id)
        finally:
            ended.set()

    future = asyncio.run_coroutine_threadsafe(run(), LOOP_THREAD.get_loop())
    try:
        return future.result()
    except BaseException:
        if not future.done():
            future.cancel()
            ended.wait(UNWIND_SECONDS)
        raise
