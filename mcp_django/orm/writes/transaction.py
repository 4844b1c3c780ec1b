"""Transactions of writes: atomicity, dry runs, and idempotency keys.

A repeated write under an idempotency key runs once and returns the stored result. A key is a row with a unique name
that also stores the result. If it is in the same database as the written rows, it is part of their transaction. A
failed write then leaves no key and can be retried.

In another database the key is claimed before the write and completed afterwards. If the process dies in between, the
outcome stays unknown.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, OperationalError, connections, transaction
from django.db.models import ProtectedError, RestrictedError
from django.utils import timezone

from mcp_django.models import OnceResult
from mcp_django.models.session import Session
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.log_text import get_logger
from mcp_django.schema import to_json
from mcp_django.server.context.context import Context
from mcp_django.server.context.idempotency import OutcomeUnknown

logger = get_logger("mcp_django.orm")

BUSY_MESSAGE = "The database is busy with other writes, and nothing was changed. Try again in a moment"
_RETRYABLE_SQLSTATES = ("40001", "40P01", "55P03")
"""PostgreSQL's serialization_failure, deadlock_detected and lock_not_available."""
KEY_LIFETIME = timedelta(days=1)
"""Time for which a repeated write with the same key gets the stored result."""
MAX_KEY_CHARACTERS = 200
"""Maximum length of a key in characters."""
_UNKNOWN_OUTCOME_MESSAGE = (
    "A write under this idempotency_key is running or has failed, and it is not repeated. Check whether the write took "
    "effect"
)


class IdempotentWrite:
    """Write under an idempotency key of the client.

    The key is valid for one caller, server, set of captured URL arguments, and `operation` (a model and a tool).
    """

    def __init__(self, ctx: Context, key: str, operation: str, arguments: JSONObject) -> None:
        key_scope = [ctx.server.alias, ctx.principal.key, {name: str(value) for name, value in ctx.url_kwargs.items()}]
        self._key_hash = _digest(["idempotency key", *key_scope, operation, key])
        self._arguments_hash = _digest(to_json(arguments))
        self._owner = ctx.principal.key
        self.using: str = OnceResult.objects.all().db

    def find_result(self) -> object:
        """Return the stored result, or None for a new key.

        Raises:
            ToolError: the key was used with other arguments.
            OutcomeUnknown: an earlier write has no stored result.
        """
        row = OnceResult.objects.filter(key_hash=self._key_hash, expires__gt=timezone.now()).first()
        if row is None:
            return None
        stored = row.result or {}
        if stored.get("payload") != self._arguments_hash:
            raise ToolError("This idempotency_key was used with other arguments before; use a new key for a new write")
        if "value" not in stored:
            raise OutcomeUnknown(_UNKNOWN_OUTCOME_MESSAGE)
        return jsonrpc.loads(stored["value"])

    def get_result(self) -> object:
        """Return the stored result of a key that is taken.

        Raises:
            ToolError: as for `find_result`.
            OutcomeUnknown: the write has no stored result.
        """
        answer = self.find_result()
        if answer is None:
            raise OutcomeUnknown(_UNKNOWN_OUTCOME_MESSAGE)
        return answer

    def claim(self) -> bool:
        """Claim the key; return False if it is taken."""
        now = timezone.now()
        row = OnceResult(
            key_hash=self._key_hash,
            owner=Session.encode_owner(self._owner),
            expires=now + KEY_LIFETIME,
            result={"payload": self._arguments_hash},
        )

        try:
            with transaction.atomic(using=self.using):
                OnceResult.objects.filter(key_hash=self._key_hash, expires__lte=now).delete()
                row.save(force_insert=True, using=self.using)
        except IntegrityError:
            return False
        return True

    def store_result(self, value: object) -> None:
        """Store the result as JSON, for repetitions of the write with the same key."""
        # Stored as text, because JSON in PostgreSQL does not support NUL.
        result = {"payload": self._arguments_hash, "value": jsonrpc.dumps(value).decode()}
        OnceResult.objects.filter(key_hash=self._key_hash).update(done_at=timezone.now(), result=result)

    def release(self) -> None:
        """Release the key after a write that changed nothing."""
        OnceResult.objects.filter(key_hash=self._key_hash, done_at=None).delete()


def _digest(content: object) -> str:
    return hashlib.sha256(jsonrpc.dumps_sorted(content)).hexdigest()


def run_write(
    work: Callable[[], object],
    *,
    using: str,
    dry_run: bool = False,
    idempotent_write: IdempotentWrite | None = None,
    atomic: bool = True,
) -> object:
    """Run `work` in one transaction, and return its result as JSON.

    `using` is the database. With `atomic=False` the work runs outside of a transaction. A dry run is rolled back, so
    its writes are undone and functions registered for the commit are never called. With an `idempotent_write` the work
    runs once for its key.

    Raises:
        ToolError: other rows forbid the write, or the database is busy.
        Exception: any exception of `work`, or that of a database that rejects its values.
    """
    try:
        if dry_run:
            return _run_dry(work, using)
        if atomic and idempotent_write is not None and idempotent_write.using == using:
            with _open_transaction(using):
                if not idempotent_write.claim():
                    return idempotent_write.get_result()
                value = to_json(work())
                idempotent_write.store_result(value)
                return value

        transaction_context = _open_transaction(using) if atomic else contextlib.nullcontext()
        if idempotent_write is not None:
            return _run_outside_transaction(idempotent_write, work, transaction_context, atomic)

        with transaction_context:
            return to_json(work())
    except (ProtectedError, RestrictedError):
        raise ToolError("Other rows refer to this row and forbid the write. Nothing was changed") from None
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


def _run_dry(work: Callable[[], object], using: str) -> object:
    with _open_transaction(using):
        value = to_json(work())
        if connections[using].vendor == "postgresql":
            # Check deferred constraints now, because a rolled back transaction never reaches the check at commit.
            connections[using].check_constraints()
        transaction.set_rollback(True, using=using)
    return value


def _run_outside_transaction(
    idempotent_write: IdempotentWrite,
    work: Callable[[], object],
    transaction_context: AbstractContextManager[object],
    atomic: bool,
) -> object:
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
