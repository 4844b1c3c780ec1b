"""Visits: a plain function on a thread that is not ours, where the loop belongs to `async_to_sync`.

The thread goes on with its caller's work when the function is done, so a call that is over before it must stop its
SQL as on a lane, and leave no trace. A transaction of the caller's is not ours to break: inside one nothing is stopped.
Neither is it on connections that threads share, as those of Django's LiveServerTestCase may be
(`BaseDatabaseWrapper.inc_thread_sharing`).
"""

import logging
import threading

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from mcp_django.runtime.threads.pool import here
from mcp_django.runtime.threads.sql_cancellation import Gate

logger = logging.getLogger("mcp_django.lanes")


class Visit:
    """One function's time on its caller's thread. The thread says `begin` and `end`, the event loop `close`."""

    __slots__ = ("_gate", "_guarded", "_lock", "_over")

    def __init__(self) -> None:
        self._gate = Gate()
        self._lock = threading.Lock()
        self._guarded = self._over = False

    def begin(self) -> None:
        """Stand before the connections of this thread, unless they are another's business: a surrounding visit has
        its own gate.
        """
        opened = connections.all(initialized_only=True)
        if getattr(here, "gate", None) is not None or any(map(_is_taken, opened)):
            return
        self._guarded = True
        here.gate = self._gate
        for connection in opened:
            if connection.connection is not None:
                self._gate.watch(connection)

    def end(self) -> None:
        """Leave the thread as it was found; with fresh connections when something was interrupted."""
        with self._lock:
            self._over = True
        if not self._guarded:
            return
        gate, here.gate = self._gate, None
        gate.settle()
        if gate.shut:
            logger.info("A call was over before its thread; its SQL has been stopped and its connections closed")
        for connection in gate.connections.values():
            try:
                if gate.shut:
                    # Django keeps the last error of a transaction, and with it the frames of the call that it ended.
                    vars(connection)["rollback_exc"] = None  # not in the type stubs
                    connection.close()
            except Exception:
                # The call that is over has nobody to tell; Django has forgotten the connection.
                logger.exception("The connection %r could not be closed; it is dropped", connection.alias)
            finally:
                gate.unwatch(connection)

    def close(self) -> None:
        """Nobody waits for the function any more: if it still runs, its SQL is interrupted and what follows refused."""
        with self._lock:
            if not self._over:
                self._gate.stop()


def _is_taken(connection: BaseDatabaseWrapper) -> bool:
    """Is it inside a transaction, Django's own or one by hand, or does another thread use it?"""
    if connection.in_atomic_block or connection.allow_thread_sharing:
        return True
    return connection.connection is not None and not connection.autocommit
