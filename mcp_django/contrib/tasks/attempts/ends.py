"""Ends of attempts, written to their rows.

The ends that arrive during a write are written together by the next one. A database that fails, for example during its
restart, costs no result: the write is repeated until the lease is over.
"""

import asyncio
import logging
from collections.abc import Sequence

from django.db import InterfaceError, OperationalError

from mcp_django.aio.loop_local import LoopLocal
from mcp_django.aio.tasks import start_task
from mcp_django.contrib.tasks.options import get_settings
from mcp_django.contrib.tasks.publishing import publish_row
from mcp_django.contrib.tasks.rows import store

logger = logging.getLogger("mcp_django.tasks")
MAX_ENDS = 64
"""Maximum ends of one transaction."""
RETRY_SECONDS = 1.0
"""Seconds between two writes to a database that fails."""


async def store_end(end: store.TaskEnd) -> None:
    """Store the end of an attempt, and publish it. Nothing changes if the attempt has lost its lease.

    Raises DatabaseError.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + get_settings().lease
    while True:
        try:
            await _writers.get().write(end)
        except (OperationalError, InterfaceError):
            if loop.time() >= until:
                raise
            logger.warning("The end of an attempt could not be stored; it is repeated", exc_info=True)
            await asyncio.sleep(RETRY_SECONDS)
        else:
            return


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
