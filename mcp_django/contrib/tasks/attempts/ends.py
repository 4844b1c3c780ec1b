"""Ends of attempts, written to their rows.

The ends of tasks that arrive during a write are written together by the next one. A database that fails, for example
during its restart, costs no result and no question: each write is repeated until the database answers. A write whose
attempt has lost its lease meanwhile changes nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from mcp_django.contrib.tasks.models import Task
from mcp_django.contrib.tasks.publishing import publish_change, publish_row
from mcp_django.contrib.tasks.rows import leases, store
from mcp_django.extensions.calls import get_logger
from mcp_django.extensions.errors import find_database_failure
from mcp_django.extensions.event_loop import LoopLocal, start_task

logger = get_logger("mcp_django.tasks")
T = TypeVar("T")
MAX_ENDS = 64
"""Maximum ends of one transaction."""
RETRY_SECONDS = 1.0
"""Seconds between two writes to a database that fails."""


async def store_end(end: store.TaskEnd) -> None:
    """Store the end of a task, and publish it. Nothing changes if the attempt has lost its lease.

    Raises DatabaseError if the database refuses the row.
    """
    await repeat_write(lambda: _writers.get().write(end))


async def return_task(task: Task, *, delay: float) -> None:
    """Return a claimed task, whose tool has not begun, to the waiting ones for at least `delay` seconds."""
    await repeat_write(lambda: store.run_on_rows(leases.return_task, task, delay=delay))
    await publish_change(task.pk)


async def repeat_write(write: Callable[[], Awaitable[T]]) -> T:
    """Return the value of `write`, which is repeated while the database is unavailable.

    Other exceptions of `write` are raised. A write may have been committed although it failed, so each write requires
    the name of the worker in the row.
    """
    while True:
        try:
            return await write()
        except Exception as problem:
            if find_database_failure(problem) is None:
                raise
            logger.warning("A change of a task could not be stored; it is repeated: %s", problem)
            await asyncio.sleep(RETRY_SECONDS)


class EndWriter:
    """Writes of one loop, one at a time. A write takes all ends that have arrived."""

    def __init__(self) -> None:
        self._waiting: list[tuple[store.TaskEnd, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def write(self, end: store.TaskEnd) -> None:
        """Write an end. It is written even if the caller is cancelled."""
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((end, written))
        if self._writing is None:
            self._writing = start_task(self._write_waiting())
        await written

    async def _write_waiting(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[:MAX_ENDS]
                del self._waiting[:MAX_ENDS]
                await _write_batch(batch)
        finally:
            self._writing = None


_writers = LoopLocal(EndWriter)


async def _write_batch(batch: Sequence[tuple[store.TaskEnd, "asyncio.Future[None]"]]) -> None:
    try:
        await store.run_on_rows(_write_ends, [end for end, _ in batch])
    except Exception as problem:
        if len(batch) == 1:
            _, written = batch[0]
            if not written.done():
                written.set_exception(problem)
            return
        # A row that the database refuses spoils no other one.
        for each in batch:
            await _write_batch([each])
        return
    for _, written in batch:
        if not written.done():
            written.set_result(None)


def _write_ends(ends: Sequence[store.TaskEnd]) -> None:
    for row in store.finish_attempts(ends):
        try:
            publish_row(row)
        except Exception:  # clients poll as well
            logger.warning("A change of a task was not published", exc_info=True)
