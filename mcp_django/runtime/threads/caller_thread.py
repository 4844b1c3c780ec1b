"""Plain functions on the caller's thread.

Used where the loop belongs to `async_to_sync`.
The thread continues with its caller's work after the function. A call that ends before must therefore cancel its SQL,
as on a pool thread, and leave the thread unchanged. SQL is not cancelled inside a transaction of the caller. Neither is
it on connections shared between threads, as in Django's LiveServerTestCase (`BaseDatabaseWrapper.inc_thread_sharing`).
"""

import logging
import threading

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from mcp_django.runtime.threads.pool import here
from mcp_django.runtime.threads.sql_cancellation import Gate

logger = logging.getLogger("mcp_django.lanes")


class Visit:
    """Use of the caller's thread by one function.

    The thread calls `enter` and `exit`, the event loop calls `close`.
    """

    __slots__ = ("_gate", "_guarded", "_lock", "_over")

    def __init__(self) -> None:
        self._gate = Gate()
        self._lock = threading.Lock()
        self._guarded = self._over = False

    def begin(self) -> None:
        """Guard the connections of this thread, unless they are in use elsewhere.

        A surrounding `CallerThread` has its own guard.
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
        """Restore the thread; with closed connections after a cancellation."""
        with self._lock:
            self._over = True
        if not self._guarded:
            return

        gate, here.gate = self._gate, None
        gate.settle()
        if gate.shut:
            logger.info("SQL of a finished call was cancelled and its connections were closed")
        for connection in gate.connections.values():
            try:
                if gate.shut:
                    # Django keeps the last error of a transaction, and with it the frames of the finished call.
                    vars(connection)["rollback_exc"] = None  # not in the type stubs
                    connection.close()
            except Exception:
                # No caller is left to receive the error; Django has dropped the connection.
                logger.exception("Failed to close connection %r; dropping it", connection.alias)
            finally:
                gate.unwatch(connection)

    def close(self) -> None:
        """Cancel the SQL of the function if it still runs, because no caller waits for it."""
        with self._lock:
            if not self._over:
                self._gate.stop()


def _is_taken(connection: BaseDatabaseWrapper) -> bool:
    """Return True if the connection is in a transaction or shared between threads."""
    if connection.in_atomic_block or connection.allow_thread_sharing:
        return True
    return connection.connection is not None and not connection.autocommit
