"""Idempotency rows: steps of `ctx.run_once(durable=True)` and single-use states.

Unique columns guarantee at most one winner among concurrent workers. Do not use these operations inside a transaction:
a rollback would delete their rows.
"""

import asyncio
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from mcp_django.aio.clock import monotonic
from mcp_django.aio.tasks import BackgroundTasks
from mcp_django.models import OnceResult, SpentState
from mcp_django.models.session import Session
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.threads.executor import run_on_own_thread
from mcp_django.server.ports import Executor

logger = get_logger("mcp_django.server")

PURGE_INTERVAL_SECONDS = 60.0
"""Minimum seconds between two deletions of expired rows."""
MAX_PURGED_ROWS = 200


class DatabaseIdempotencyStore:
    """Implementation of `ports.IdempotencyStore` on OnceResult and SpentState.

    SQL runs through `executor`, on the thread of the call. Writes that must not block the call run through
    `background_executor`.
    """

    def __init__(self, executor: Executor, *, background_executor: Executor | None = None) -> None:
        self._executor = executor
        self._background_executor = background_executor or executor
        self._next_purge = 0.0
        self._tasks = BackgroundTasks(on_error=_log_record_failure)

    async def claim(self, name: str, *, owner: str, ttl: float) -> bool:
        """Claim the right to run the step `name`; False if it was claimed before.

        The claim is kept for `ttl` seconds.
        """
        row = OnceResult(key_hash=name, owner=Session.encode_owner(owner), expires=_expiry_after(ttl))
        return await self._executor.run(self._insert, row)

    async def record_outcome(self, name: str, outcome: dict[str, Any]) -> None:
        """Write the outcome of a step, also if the caller is cancelled."""
        try:
            await self._executor.run(_write_outcome, name, outcome)
        except asyncio.CancelledError:
            self._record_in_background(name, outcome)
            raise

    def mark_unknown(self, name: str) -> None:
        """Record, without waiting, that the outcome of a step is unknown."""
        self._record_in_background(name, {})

    async def get_outcome(self, name: str) -> dict[str, Any] | None:
        """Return the recorded outcome of a step; None if nothing is recorded yet."""
        return await self._executor.run(_read_outcome, name)

    async def consume(self, digest: str, *, ttl: float) -> bool:
        """Consume a state valid for at most `ttl` seconds; False if it was used before."""
        return await self._executor.run(self._insert, SpentState(digest=digest, expires=_expiry_after(ttl)))

    def _record_in_background(self, name: str, outcome: dict[str, Any]) -> None:
        # Not on the thread of the cancelled call: its current work may take long.
        self._tasks.spawn_in(None, run_on_own_thread(self._background_executor, _write_outcome, name, outcome))

    def _insert(self, row: OnceResult | SpentState) -> bool:
        if monotonic() >= self._next_purge:
            self._next_purge = monotonic() + PURGE_INTERVAL_SECONDS
            delete_expired(limit=MAX_PURGED_ROWS)
        return insert_once(row)


def _log_record_failure(error: BaseException) -> None:
    logger.error("Failed to record the outcome of an idempotent step", exc_info=error)


def insert_once(row: OnceResult | SpentState) -> bool:
    """Insert a row; return False if it exists."""
    using = type(row).objects.all().db
    try:
        with transaction.atomic(using=using):
            row.save(force_insert=True, using=using)
    except IntegrityError:
        return False
    return True


def delete_expired(*, limit: int) -> int:
    """Delete expired steps and states, at most `limit` of each; return their number."""
    now, deleted = timezone.now(), 0
    for rows in (OnceResult.objects, SpentState.objects):
        keys = list(rows.filter(expires__lte=now).order_by("expires").values_list("pk", flat=True)[:limit])
        deleted += rows.filter(pk__in=keys).delete()[0] if keys else 0
    return deleted


def _write_outcome(name: str, outcome: dict[str, Any]) -> None:
    # As text, because PostgreSQL's JSON rejects NUL. A known outcome is never overwritten.
    encoded = {key: jsonrpc.dumps(value).decode() for key, value in outcome.items()}
    OnceResult.objects.filter(key_hash=name, done_at=None).update(done_at=timezone.now(), result=encoded)


def _read_outcome(name: str) -> dict[str, Any] | None:
    row = OnceResult.objects.filter(key_hash=name).first()
    if row is None:
        return {}  # the row was purged, so the outcome is unknown
    if row.done_at is None:
        return None
    return {key: jsonrpc.loads(value) for key, value in (row.result or {}).items()}


def _expiry_after(seconds: float) -> Any:
    return timezone.now() + timedelta(seconds=seconds)
