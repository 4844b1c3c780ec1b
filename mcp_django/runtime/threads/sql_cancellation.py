"""Cancellation of SQL statements that outlast their call.

A thread cannot be stopped, but its running statement can be cancelled and the next one rejected. A `StatementGuard`
does both, for a pool thread or for the caller's thread. A cancellation must never hit another call. Therefore:

- A thread returns to its pool only after `wait_for_cancellation`, when the cancelling thread has ended.
- The cancelling thread accesses the connections of its own pool thread only, and none of them can be closed
  concurrently. With Django's `OPTIONS["pool"]` (`django/db/backends/postgresql/base.py`, `DatabaseWrapper._close`)
  closing passes the raw connection to another thread.
- A connection of a closed guard is closed permanently before it is returned. PostgreSQL processes a cancellation
  asynchronously, so it may arrive late. psycopg's pool discards closed connections (`psycopg_pool/pool.py`,
  `ConnectionPool._return_connection`).

psycopg's `cancel_safe` is thread-safe and lets other threads run while it waits, unless libpq is older than 17
(`psycopg/connection.py`). `sqlite3.Connection.interrupt` only sets a flag.
"""

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import OperationalError

from mcp_django.protocol.log_text import get_logger
from mcp_django.server.ports import AttemptControl

logger = get_logger("mcp_django.threads")

MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.01, 0.08
"""Minimum and maximum seconds between two attempts; the pause doubles each time.

The first attempt may come before the statement reaches the database, which then has nothing to cancel.
"""
CANCEL_TIMEOUT_SECONDS = 2.0
"""Maximum seconds for a database server to accept a cancellation."""
_ACTIVE_TRANSACTION_STATUS: Final = 1
"""Value of `info.transaction_status` in psycopg and psycopg2 while a command runs.

It is libpq's PQTRANS_ACTIVE.
"""


class CallEndedError(OperationalError):
    """Error of a statement that was rejected because its call has ended.

    A database error, so that `atomic()` and other cleanup code handle it correctly.
    """


@dataclass(slots=True, eq=False, repr=False)
class StatementGuard:
    """Guard between a thread and its database connections.

    It is open while a call uses the thread, and closed when the call ends before the thread is done. A pool thread has
    a permanent guard; each use of a caller's thread has its own.
    """

    connections: dict[str, BaseDatabaseWrapper] = field(default_factory=dict)
    """Connections opened by the thread, by alias.

    Other threads may inspect them, but never use them.
    """
    is_closed: bool = False
    attempt: AttemptControl | None = None
    """Attempt of a task that uses the thread. Nothing is written after its end."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stop_event: threading.Event = field(default_factory=threading.Event)
    _interrupt_thread: threading.Thread | None = None

    def attach(self, connection: BaseDatabaseWrapper) -> None:
        """Guard a connection that the thread has just opened."""
        is_own = any(own is connection for own in connections.all(initialized_only=True))
        if self.connections.get(connection.alias) is connection or not is_own:
            return  # guarded already, or a copy for another purpose
        self.connections[connection.alias] = connection
        # Insert it first, as outermost wrapper; `with connection.execute_wrapper()` removes the last one.
        connection.execute_wrappers.insert(0, self)
        close: Callable[[], None] = getattr(connection, "_close")  # noqa: B009 - not in the type stubs
        vars(connection)["_close"] = functools.partial(self._close_connection, connection, close)

    def detach(self, connection: BaseDatabaseWrapper) -> None:
        """Stop guarding a connection, after a call on the caller's thread."""
        connection.execute_wrappers.remove(self)
        del vars(connection)["_close"]

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        """Execute a statement (Django's database instrumentation).

        Raises:
            CallEndedError: the guard is closed, or the attempt of the task is over.
        """
        if self.is_closed or (self.attempt is not None and self.attempt.is_over()):
            connection = context["connection"]
            # Code that ignores the error must not commit the first half of the transaction.
            connection.needs_rollback = connection.in_atomic_block
            raise CallEndedError("The statement was not run: its call has ended")
        return execute(sql, params, many, context)

    def cancel(self) -> None:
        """Close the guard and cancel running statements until `wait_for_cancellation`.

        Returns at once.
        """
        self.is_closed = True
        if not any(
            connection.connection is not None and connection.vendor in ("postgresql", "sqlite")
            for connection in list(self.connections.values())
        ):
            return  # no statement is running, and new ones are rejected
        self._stop_event.clear()
        interrupt_thread = threading.Thread(target=self._interrupt_until_stopped, name="mcp-interrupt", daemon=True)
        try:
            interrupt_thread.start()
        except RuntimeError as problem:
            logger.warning("Failed to start the cancellation of SQL; it runs to its end: %s", problem)
        else:
            self._interrupt_thread = interrupt_thread

    def wait_for_cancellation(self) -> None:
        """Wait until no further cancellation can occur.

        Call it on the guarded thread after the call.
        """
        if self._interrupt_thread is not None:
            self._stop_event.set()
            self._interrupt_thread.join()
            self._interrupt_thread = None
        if self.is_closed:
            logger.info("SQL of a finished call was cancelled and its connections were closed")

    def _interrupt_until_stopped(self) -> None:
        pause = MIN_PAUSE_SECONDS
        while True:
            with self._lock:
                if self._stop_event.is_set():
                    return
                for connection in list(self.connections.values()):
                    _interrupt_connection(connection)
            if self._stop_event.wait(pause):
                return
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    def _close_connection(self, connection: BaseDatabaseWrapper, close: Callable[[], None]) -> None:
        """Replacement of a connection's `_close`, which every way of closing it calls."""
        with self._lock:
            if self.is_closed and connection.connection is not None:
                _close_permanently(connection.connection)
            close()


def _close_permanently(raw: Any) -> None:
    # psycopg's own close() returns a live connection to a pool with `close_returns` (`psycopg/connection.py`).
    libpq = getattr(raw, "pgconn", None)
    if libpq is None:
        raw.close()
    else:
        libpq.finish()


def _interrupt_connection(connection: BaseDatabaseWrapper) -> None:
    """Cancel the running statement of a connection, if its engine can.

    Harmless when idle.
    """
    raw: Any = connection.connection
    if raw is None:
        return

    try:
        if connection.vendor == "sqlite":
            raw.interrupt()
        elif connection.vendor == "postgresql" and raw.info.transaction_status == _ACTIVE_TRANSACTION_STATUS:
            if hasattr(raw, "cancel_safe"):
                raw.cancel_safe(timeout=CANCEL_TIMEOUT_SECONDS)
            else:  # psycopg2, and psycopg before 3.2
                raw.cancel()
    except Exception as problem:
        # The next attempt follows while the statement runs.
        logger.info("Failed to cancel SQL on %r: %s", connection.alias, problem)
