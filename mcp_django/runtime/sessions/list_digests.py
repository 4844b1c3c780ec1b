"""Digests of the lists that sessions received, stored in their rows.

A worker of a newer release uses them to notify sessions of the older release about changed lists.
"""

import asyncio
from collections.abc import Mapping

from django.db import Error, transaction

from mcp_django.aio.tasks import BackgroundTasks, start_timer
from mcp_django.models import Session as SessionRow
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.threads.executor import run_on_own_thread
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.ports import Executor, Overloaded

logger = get_logger("mcp_django.sessions")

WRITE_DELAY_SECONDS = 1.0
"""Seconds to wait for further lists: clients request all lists when they start."""


class DatabaseListDigestStore:
    """Implementation of `ports.ListDigestStore` on the Session model."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._pending_writes: dict[ServerSession, asyncio.AbstractEventLoop] = {}
        self._tasks = BackgroundTasks()

    def save(self, session: ServerSession) -> None:
        if session not in self._pending_writes:
            # Timers of a closed loop never fire.
            for waiting_session, waiting_loop in list(self._pending_writes.items()):
                if waiting_loop.is_closed():
                    self._pending_writes.pop(waiting_session, None)
            self._pending_writes[session] = asyncio.get_running_loop()
            start_timer(WRITE_DELAY_SECONDS, self._start_write, session)

    def _start_write(self, session: ServerSession) -> None:
        self._pending_writes.pop(session, None)
        self._tasks.spawn(self._write(session))

    async def _write(self, session: ServerSession) -> None:
        try:
            await run_on_own_thread(self._executor, _merge_digests, session.pk, dict(session.list_digests))
        except (Error, Overloaded):
            logger.warning("Failed to write the list digests of a session", exc_info=True)

    async def load(self, session: ServerSession) -> Mapping[str, str]:
        return await self._executor.run(_read_digests, session.pk)


def _read_digests(pk: int) -> dict[str, str]:
    return SessionRow.objects.filter(pk=pk).values_list("lists", flat=True).first() or {}


def _merge_digests(pk: int, digests: dict[str, str]) -> None:
    """Write the digests of these lists, unless unchanged.

    Digests of other lists, written by other processes, are kept.
    """
    if _read_digests(pk).items() >= digests.items():
        return
    rows = SessionRow.objects.filter(pk=pk, terminated_at=None)
    with transaction.atomic(using=rows.db):
        # Changes no value, but locks the row against concurrent merges.
        if rows.update(terminated_at=None):
            rows.update(lists={**_read_digests(pk), **digests})
