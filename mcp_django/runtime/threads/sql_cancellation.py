"""Stopping the SQL of a call that is over while its thread is not.

A thread cannot be stopped, but the statement it waits for can, and the next one can be refused. Both are the work of
a `Gate`: a lane's, or that of a visit to the caller's thread. An interruption must never hit another call, so:

- the lane goes back to its pool only after `settle`, when the gate's interrupter has ended;
- the interrupter looks at the connections of its own lane only, and none of them can be closed under its hands: with
  Django's `OPTIONS["pool"]` (`django/db/backends/postgresql/base.py`, `DatabaseWrapper._close`) closing gives the raw
  connection to whoever waits for one;
- a connection of a shut gate is closed for good before it is given back. PostgreSQL handles a cancellation
  asynchronously, so that one may arrive late; psycopg's pool throws a closed connection away
  (`psycopg_pool/pool.py`, `ConnectionPool._return_connection`).

psycopg's `cancel_safe` may be called from any thread and lets others run while it waits, unless libpq is older than 17
(`psycopg/connection.py`). `sqlite3.Connection.interrupt` only sets a flag.
"""

import functools
import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import OperationalError

logger = logging.getLogger("mcp_django.lanes")

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.08
"""Seconds between two attempts: the first may come before the statement has reached the database, which then has
nothing to interrupt. Each pause is twice the one before.
"""
CANCEL_TIMEOUT = 2.0
"""Seconds that a server may take to accept a cancellation."""
_ACTIVE: Final = 1
"""libpq's PQTRANS_ACTIVE, the `info.transaction_status` of psycopg and psycopg2 while a command runs."""


class CallOver(OperationalError):
    """The call that this statement belongs to is over; it was not run.

    A database error, so that `atomic()` and whoever else cleans up after one do the right thing.
    """


class Gate:
    """Between a thread and its databases: open while a call uses the thread, shut when that call is over before the
    thread is. A lane has one for good, a visit to the caller's thread one of its own.
    """

    __slots__ = ("_interrupter", "_lock", "_over", "connections", "shut")

    def __init__(self) -> None:
        self.connections: dict[str, BaseDatabaseWrapper] = {}
        """The connections that the thread has opened, by alias. Other threads may look at them, never use them."""
        self.shut = False
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._interrupter: threading.Thread | None = None

    def watch(self, connection: BaseDatabaseWrapper) -> None:
        """Stand before a connection that the lane's thread has just opened."""
        if self.connections.get(connection.alias) is connection or not _is_own(connection):
            return  # known, or a copy that somebody made for a purpose of their own
        self.connections[connection.alias] = connection
        # First, so outermost; and `with connection.execute_wrapper()` takes away the last.
        connection.execute_wrappers.insert(0, self)
        close: Callable[[], None] = getattr(connection, "_close")  # noqa: B009 - not in the type stubs
        vars(connection)["_close"] = functools.partial(self._close, connection, close)

    def unwatch(self, connection: BaseDatabaseWrapper) -> None:
        """Step aside. For a thread that is not a lane's, when it is done with the call."""
        connection.execute_wrappers.remove(self)
        del vars(connection)["_close"]

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        """Let a statement pass (Django's database instrumentation); raises CallOver when the gate is shut."""
        if self.shut:
            connection = context["connection"]
            # Whoever swallows the error must not commit the half that came before.
            connection.needs_rollback = connection.in_atomic_block
            raise CallOver("The call is over, so this statement was not run")
        return execute(sql, params, many, context)

    def stop(self) -> None:
        """Shut the gate, and interrupt what runs behind it until `settle`. Does not wait for any of it."""
        self.shut = True
        if not any(_is_open(connection) for connection in list(self.connections.values())):
            return  # nothing runs, and what comes is refused
        self._over.clear()
        interrupter = threading.Thread(target=self._interrupt, name="mcp-interrupt", daemon=True)
        try:
            interrupter.start()
        except RuntimeError as problem:
            logger.warning("The SQL of a call that is over runs to its end: %s", problem)
        else:
            self._interrupter = interrupter

    def settle(self) -> None:
        """Wait until no interruption can come any more. For the lane's thread, when it is done with the call."""
        if self._interrupter is not None:
            self._over.set()
            self._interrupter.join()
            self._interrupter = None

    def open(self) -> None:
        """Let the next call's statements pass."""
        self.shut = False

    def _interrupt(self) -> None:
        pause = FIRST_PAUSE
        while True:
            with self._lock:
                if self._over.is_set():
                    return
                for connection in list(self.connections.values()):
                    _interrupt(connection)
            if self._over.wait(pause):
                return
            pause = min(2 * pause, LONGEST_PAUSE)

    def _close(self, connection: BaseDatabaseWrapper, close: Callable[[], None]) -> None:
        """In place of a connection's `_close`, through which every way of closing it leads."""
        with self._lock:
            if self.shut and connection.connection is not None:
                _close_for_good(connection.connection)
            close()


def _close_for_good(raw: Any) -> None:
    # psycopg's own close() gives a connection alive to a pool with `close_returns` (`psycopg/connection.py`).
    libpq = getattr(raw, "pgconn", None)
    if libpq is None:
        raw.close()
    else:
        libpq.finish()


def _is_own(connection: BaseDatabaseWrapper) -> bool:
    return any(own is connection for own in connections.all(initialized_only=True))


def _is_open(connection: BaseDatabaseWrapper) -> bool:
    return connection.connection is not None and connection.vendor in ("postgresql", "sqlite")


def _interrupt(connection: BaseDatabaseWrapper) -> None:
    """Interrupt what a connection is doing, if its engine can. Harmless when it does nothing."""
    raw: Any = connection.connection
    if raw is None:
        return
    try:
        if connection.vendor == "sqlite":
            raw.interrupt()
        elif connection.vendor == "postgresql" and raw.info.transaction_status == _ACTIVE:
            if hasattr(raw, "cancel_safe"):
                raw.cancel_safe(timeout=CANCEL_TIMEOUT)
            else:  # psycopg2, and psycopg before 3.2
                raw.cancel()
    except Exception as problem:
        # It is tried again as long as the statement runs.
        logger.info("SQL on %r could not be interrupted: %s", connection.alias, problem)
