"""Transactions of writes: atomicity, dry runs, and idempotency keys."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from django.db import DataError, IntegrityError, OperationalError, connections, transaction
from django.db.models import ProtectedError, RestrictedError

from mcp_django.orm.writes.idempotency import IdempotentWrite, run_in_transaction
from mcp_django.protocol.errors import ToolError
from mcp_django.schema import to_json

logger = logging.getLogger("mcp_django.orm")

CONFLICT_MESSAGE = (
    "The database rejected the write: a value conflicts with another row or a rule of the table. Nothing was changed"
)
BUSY_MESSAGE = "The database is busy with other writes, and nothing was changed. Try again in a moment"
_RETRYABLE_SQLSTATES = ("40001", "40P01", "55P03")
"""PostgreSQL's serialization_failure, deadlock_detected and lock_not_available."""


def run_write(
    work: Callable[[], Any],
    *,
    using: str,
    dry_run: bool = False,
    idempotent_write: IdempotentWrite | None = None,
    atomic: bool = True,
) -> Any:
    """Run `work` in one transaction, and return its result as JSON.

    `using` is the database. With `atomic=False` the work runs outside of a transaction. A dry run is rolled back, so
    its writes are undone and functions registered for the commit are never called. With an `idempotent_write` the work
    runs once for its key.

    Raises:
        ToolError: the database refused the write or is busy.
        Exception: any exception of `work`.
    """
    try:
        if dry_run:
            return _run_dry(work, using)
        if atomic and idempotent_write is not None and idempotent_write.using == using:
            with _open_transaction(using):
                return run_in_transaction(idempotent_write, work)

        transaction_context = _open_transaction(using) if atomic else contextlib.nullcontext()
        if idempotent_write is not None:
            return _run_outside_transaction(idempotent_write, work, transaction_context, atomic)

        with transaction_context:
            return to_json(work())
    except (ProtectedError, RestrictedError):
        raise ToolError("Other rows refer to this row and forbid the write. Nothing was changed") from None
    except (IntegrityError, DataError) as problem:
        # The database's message names columns and values that clients may not see.
        logger.debug("Write rejected by the database", exc_info=problem)
        raise ToolError(CONFLICT_MESSAGE) from None
    except OperationalError as problem:
        if not atomic or not _is_lock_conflict(problem):
            raise
        logger.warning("Write failed, because the database was busy: %s", problem)
        raise ToolError(BUSY_MESSAGE) from None


@contextlib.contextmanager
def _open_transaction(using: str) -> Iterator[None]:
    """Open a transaction that waits for the write lock at its start, on SQLite.

    It uses `transaction_mode` IMMEDIATE. Otherwise SQLite fails at once, ignoring the timeout, if another connection
    has written since the first read.
    """
    connection: Any = connections[using]
    if connection.vendor != "sqlite" or connection.in_atomic_block:
        with transaction.atomic(using=using):
            yield
        return
    connection.ensure_connection()  # connecting sets the mode from the options
    mode, connection.transaction_mode = connection.transaction_mode, connection.transaction_mode or "IMMEDIATE"
    try:
        with transaction.atomic(using=using):
            yield
    finally:
        connection.transaction_mode = mode


def _is_lock_conflict(problem: OperationalError) -> bool:
    cause = problem.__cause__
    return (
        getattr(cause, "sqlite_errorname", "").startswith("SQLITE_BUSY")
        or getattr(cause, "sqlstate", "") in _RETRYABLE_SQLSTATES
    )


def _run_dry(work: Callable[[], Any], using: str) -> Any:
    with _open_transaction(using):
        value = to_json(work())
        if connections[using].vendor == "postgresql":
            # Check deferred constraints now, because a rolled back transaction never reaches the check at commit.
            connections[using].check_constraints()
        transaction.set_rollback(True, using=using)
    return value


def _run_outside_transaction(
    idempotent_write: IdempotentWrite,
    work: Callable[[], Any],
    transaction_context: AbstractContextManager[Any],
    atomic: bool,
) -> Any:
    """Run a write whose key is not part of a transaction with the written rows."""
    if not idempotent_write.claim():
        return idempotent_write.get_result()
    may_be_written = not atomic
    try:
        with transaction_context:
            value = to_json(work())
            may_be_written = True
    except BaseException:
        if not may_be_written:
            idempotent_write.release()
        raise
    idempotent_write.store_result(value)
    return value
