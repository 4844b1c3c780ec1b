"""Plain functions on the caller's thread.

Used where the loop belongs to `async_to_sync`.
The thread continues with its caller's work after the function. A call that ends before must therefore cancel its SQL,
as on a pool thread, and leave the thread unchanged. SQL is not cancelled inside a transaction of the caller. Neither is
it on connections shared between threads, as in Django's LiveServerTestCase (`BaseDatabaseWrapper.inc_thread_sharing`).
"""

import threading
from dataclasses import dataclass, field

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.threads.pool import thread_state
from mcp_django.runtime.threads.sql_cancellation import StatementGuard

logger = get_logger("mcp_django.threads")


@dataclass(slots=True, eq=False, repr=False)
class CallerThread:
    """Use of the caller's thread by one function.

    The thread calls `enter` and `exit`, the event loop calls `close`.
    """

    _guard: StatementGuard = field(default_factory=StatementGuard)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_guarded: bool = False
    _is_finished: bool = False

    def enter(self) -> None:
        """Guard the connections of this thread, unless they are in use elsewhere.

        A surrounding `CallerThread` has its own guard.
        """
        open_connections = connections.all(initialized_only=True)
        if getattr(thread_state, "guard", None) is not None or any(map(_is_in_use, open_connections)):
            return
        self._is_guarded = True
        thread_state.guard = self._guard
        for connection in open_connections:
            if connection.connection is not None:
                self._guard.attach(connection)

    def exit(self) -> None:
        """Restore the thread; with closed connections after a cancellation."""
        with self._lock:
            self._is_finished = True
        if not self._is_guarded:
            return

        guard, thread_state.guard = self._guard, None
        guard.wait_for_cancellation()
        for connection in guard.connections.values():
            try:
                if guard.is_closed:
                    # Django keeps the last error of a transaction, and with it the frames of the finished call.
                    vars(connection)["rollback_exc"] = None  # not in the type stubs
                    connection.close()
            except Exception:
                # No caller is left to receive the error; Django has dropped the connection.
                logger.exception("Failed to close connection %r; dropping it", connection.alias)
            finally:
                guard.detach(connection)

    def close(self) -> None:
        """Cancel the SQL of the function if it still runs, because no caller waits for it."""
        with self._lock:
            if not self._is_finished:
                self._guard.cancel()


def _is_in_use(connection: BaseDatabaseWrapper) -> bool:
    """Return True if the connection is in a transaction or shared between threads."""
    if connection.in_atomic_block or connection.allow_thread_sharing:
        return True
    return connection.connection is not None and not connection.autocommit
