"""What must not happen twice, as rows: steps of `ctx.once(durable=True)`, and states that are good for one use.

Both are decided by a unique column, so they hold however many workers try at the same moment. Nothing here is for the
inside of a transaction: what it rolled back would be forgotten.
"""

import asyncio
import logging
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from mcp_django.aio.clock import monotonic
from mcp_django.models import OnceResult, SpentState
from mcp_django.models.session import Session
from mcp_django.protocol import jsonrpc
from mcp_django.runtime.events.follower import run_apart
from mcp_django.server.ports import Executor

logger = logging.getLogger("mcp_django.server")

PURGE_EVERY = 60.0
"""Seconds between two looks for rows that have expired."""
SLICE = 200


class DatabaseLedger:
    """`ports.Ledger` on OnceResult and SpentState.

    Its SQL runs through `executor`, on the lane of the call; what is written when the call may not be waited for runs
    through `aside`.
    """

    def __init__(self, executor: Executor, *, aside: Executor | None = None) -> None:
        self._executor, self._aside = executor, aside or executor
        self._next_purge = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    async def claim(self, name: str, *, owner: str, ttl: float) -> bool:
        """Take the right to do what is called `name`, for good. False when somebody has had it; kept `ttl` seconds."""
        row = OnceResult(key_hash=name, owner=Session.owner_name(owner), expires=_in(ttl))
        return await self._executor.run(self._insert, row)

    async def record(self, name: str, outcome: dict[str, Any]) -> None:
        """Write down what came of it. Is done also when the caller is cancelled meanwhile."""
        try:
            await self._executor.run(_record, name, outcome)
        except asyncio.CancelledError:
            self._record_later(name, outcome)
            raise

    def give_up(self, name: str) -> None:
        """Nobody will know what came of it. Written down without waiting for that."""
        self._record_later(name, {})

    async def outcome(self, name: str) -> dict[str, Any] | None:
        """What came of it; None while nothing was written down."""
        return await self._executor.run(_outcome, name)

    async def spend(self, digest: str, *, ttl: float) -> bool:
        """Use something up that is good for `ttl` seconds at most. False when it was used before."""
        return await self._executor.run(self._insert, SpentState(digest=digest, expires=_in(ttl)))

    def _record_later(self, name: str, outcome: dict[str, Any]) -> None:
        # Not on the lane of the call that is being cancelled: what it was doing there may go on for long.
        task = asyncio.get_running_loop().create_task(run_apart(self._aside, _record, name, outcome))
        self._tasks.add(task)
        task.add_done_callback(self._recorded)

    def _recorded(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("The outcome of a step could not be written", exc_info=task.exception())

    def _insert(self, row: OnceResult | SpentState) -> bool:
        if monotonic() >= self._next_purge:
            self._next_purge = monotonic() + PURGE_EVERY
            purge(most=SLICE)
        using = type(row).objects.all().db
        try:
            with transaction.atomic(using=using):
                row.save(force_insert=True, using=using)
        except IntegrityError:
            return False
        return True


def purge(*, most: int) -> int:
    """Delete steps and states that have expired, `most` of each. Returns how many."""
    now, deleted = timezone.now(), 0
    for rows in (OnceResult.objects, SpentState.objects):
        keys = list(rows.filter(expires__lte=now).order_by("expires").values_list("pk", flat=True)[:most])
        deleted += rows.filter(pk__in=keys).delete()[0] if keys else 0
    return deleted


def _record(name: str, outcome: dict[str, Any]) -> None:
    # As text, because PostgreSQL's JSON has no NUL. What is known is not replaced by what is not.
    said = {key: jsonrpc.dumps(value).decode() for key, value in outcome.items()}
    OnceResult.objects.filter(key_hash=name, done_at=None).update(done_at=timezone.now(), result=said)


def _outcome(name: str) -> dict[str, Any] | None:
    row = OnceResult.objects.filter(key_hash=name).first()
    if row is None:
        return {}  # it was purged, and with it all that was known
    if row.done_at is None:
        return None
    return {key: jsonrpc.loads(value) for key, value in (row.result or {}).items()}


def _in(seconds: float) -> Any:
    return timezone.now() + timedelta(seconds=seconds)
