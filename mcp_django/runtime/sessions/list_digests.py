"""Digests of the lists that sessions received, stored in their rows.

A worker of a newer release uses them to notify sessions of the older release about changed lists.
"""

import asyncio
import contextvars
import logging
from collections.abc import Mapping

from django.db import Error, transaction

from mcp_django.models import Session as SessionRow
from mcp_django.runtime.events.follower import run_apart
from mcp_django.server.calls.session import Session
from mcp_django.server.ports import Executor, Overloaded

logger = logging.getLogger("mcp_django.sessions")

AFTER = 1.0
"""Seconds to wait for further lists: clients request all lists when they start."""


class SessionLists:
    """Implementation of `ports.ListDigestStore` on the Session model."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._waiting: dict[Session, asyncio.AbstractEventLoop] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def keep(self, session: Session) -> None:
        if session not in self._waiting:
            # Timers of a closed loop never fire.
            for other, theirs in list(self._waiting.items()):
                if theirs.is_closed():
                    self._waiting.pop(other, None)
            loop = self._waiting[session] = asyncio.get_running_loop()
            loop.call_later(AFTER, self._begin, session, context=contextvars.Context())

    def _begin(self, session: Session) -> None:
        self._waiting.pop(session, None)
        task = asyncio.get_running_loop().create_task(self._write(session))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, session: Session) -> None:
        try:
            await run_apart(self._executor, _merge, session.pk, dict(session.lists))
        except (Error, Overloaded):
            logger.warning("Failed to write the list digests of a session", exc_info=True)

    async def given(self, session: Session) -> Mapping[str, str]:
        return await self._executor.run(_read, session.pk)


def _read(pk: int) -> dict[str, str]:
    return SessionRow.objects.filter(pk=pk).values_list("lists", flat=True).first() or {}


def _merge(pk: int, lists: dict[str, str]) -> None:
    """Write the digests of these lists, unless unchanged.

    Digests of other lists, written by other processes, are kept.
    """
    if _read(pk).items() >= lists.items():
        return
    rows = SessionRow.objects.filter(pk=pk, terminated_at=None)
    with transaction.atomic(using=rows.db):
        # Changes no value, but locks the row against concurrent merges.
        if rows.update(terminated_at=None):
            rows.update(lists={**_read(pk), **lists})
