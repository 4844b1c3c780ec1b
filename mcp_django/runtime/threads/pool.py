"""Thread pool: bounded threads with database connections, leased to calls.

Between two calls a thread is cleaned as Django cleans a thread between two requests. All functions are thread-safe;
`ThreadPool.lock` guards the pool and its leases.
"""

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from django.db import connections, reset_queries
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.threads.sql_cancellation import StatementGuard
from mcp_django.server.ports import Overloaded

if TYPE_CHECKING:
    from mcp_django.runtime.threads.lease import ThreadLease

logger = get_logger("mcp_django.threads")

QueuedFunction = Callable[[], None]
thread_state = threading.local()
"""State of the current thread.

`guard`: the `StatementGuard` of its database connections, if any; `blocking_wait`: its current `BlockingWait`.
"""


def _guard_connection(*, connection: BaseDatabaseWrapper, **_: Any) -> None:
    guard = getattr(thread_state, "guard", None)
    if guard is not None:
        guard.attach(connection)


connection_created.connect(_guard_connection, dispatch_uid="mcp_django.runtime.threads.pool")


class PoolThread:
    """Pool thread, started at once.

    It ends when it is stopped or garbage collected, and never keeps the process alive.
    """

    __slots__ = ("__weakref__", "_queue", "guard", "thread")

    def __init__(self, thread_name: str) -> None:
        self._queue: SimpleQueue[QueuedFunction | None] = SimpleQueue()
        self.guard = StatementGuard()
        # The thread refers to the queue only: a reference to this object would prevent its collection.
        self.thread = threading.Thread(target=_run_queue, args=(self._queue, self.guard), name=thread_name, daemon=True)
        self.thread.start()
        weakref.finalize(self, self._queue.put, None).atexit = False

    def put(self, function: QueuedFunction) -> None:
        """Queue a function; functions run in order."""
        self._queue.put(function)

    def stop(self) -> None:
        """End the thread after the queued functions."""
        self._queue.put(None)


def _run_queue(queue: "SimpleQueue[QueuedFunction | None]", guard: StatementGuard) -> None:
    thread_state.guard = guard
    while (function := queue.get()) is not None:
        function()
        # Drop the reference, so that nothing is kept alive while the thread waits.
        del function
    connections.close_all()


def exit_callbacks() -> list[Callable[[], None]]:
    """Return the callbacks that run on this thread when its call ends, the last one first.

    Each removes itself from the list.
    """
    callbacks: list[Callable[[], None]] = vars(thread_state).setdefault("exit_callbacks", [])
    return callbacks


def run_exit_callbacks() -> None:
    """Run the callbacks of the call that ends on this thread."""
    for callback in reversed(tuple(getattr(thread_state, "exit_callbacks", ()))):
        callback()


def prepare_thread() -> None:
    """Prepare the current thread for a call, as `request_started` does."""
    reset_queries()
    clean_thread()


def clean_thread(close_all: bool = False) -> None:
    """Clean the current thread after a call, as `request_finished` does.

    Connections inside a transaction are closed; with `close_all` every connection is.
    """
    for connection in connections.all(initialized_only=True):
        # Django keeps the last error of a transaction, and with it the frames of the finished call.
        vars(connection)["rollback_exc"] = None  # not in the type stubs

        driver = connection.connection
        try:
            _clean_connection(connection, close_all)
        except Exception:
            # The error concerns neither the finished call nor the next one, so log it only.
            logger.exception("Failed to close connection %r; dropping it", connection.alias)
            if driver is not None:
                with contextlib.suppress(Exception):
                    driver.close()
            _reset_wrapper(connection)


def _clean_connection(connection: BaseDatabaseWrapper, close_all: bool) -> None:
    if not close_all and not connection.in_atomic_block:
        connection.close_if_unusable_or_obsolete()
        return
    if not close_all:
        logger.warning(
            "Call ended inside a transaction on %r; rolling back. Leave atomic() in the function that entered it",
            connection.alias,
        )
    # Otherwise close() would keep the wrapper in its broken transaction.
    connection.in_atomic_block = False
    connection.close()
    _reset_wrapper(connection)


def _reset_wrapper(connection: BaseDatabaseWrapper) -> None:
    """Reset the wrapper of a closed connection; connect() resets the other attributes."""
    connection.connection, connection.in_atomic_block, connection.atomic_blocks = None, False, []


@dataclass(eq=False, repr=False)
class ThreadPool:
    """Pool of at most `max_threads` threads and a queue of leases that wait for one.

    Threads are started on demand, and named `name` with a number. Leases are served in order. At most `max_queued`
    leases wait, plus unbounded ones. `interrupts_sql` enables the cancellation of SQL after a call has ended.

    A thread in a blocking wait (`blocking_wait`) does not count as one of the pool until it returns. At most
    `max_blocked` threads may wait at a time.
    """

    max_threads: int
    max_queued: int
    max_blocked: int = 256
    interrupts_sql: bool = True
    name: str = "mcp-thread"
    lock: threading.Lock = field(default_factory=threading.Lock)
    free: list[PoolThread] = field(default_factory=list)
    busy: set[PoolThread] = field(default_factory=set)
    waiting: "deque[ThreadLease]" = field(default_factory=deque)
    blocked: set[PoolThread] = field(default_factory=set)
    """Threads in a blocking wait, and threads that are waiting to return."""
    returning: deque[tuple[PoolThread, threading.Event]] = field(default_factory=deque)
    is_closed: bool = False

    def acquire(self, lease: "ThreadLease") -> PoolThread | None:
        """Return a thread, or None if `lease` is queued until it is assigned one.

        Call it with the lock.

        Raises:
            Overloaded: the queue is full.
        """
        if self.is_closed:
            raise RuntimeError("The thread pool is closed; this server is shutting down")

        if self.free:
            # The most recently used thread, because its connections are open.
            thread = self.free.pop()
        elif len(self.busy) < self.max_threads:
            thread = PoolThread(f"{self.name}-{len(self.busy)}")
        elif lease.unbounded or len(self.waiting) < self.max_queued:
            self.waiting.append(lease)
            return None
        else:
            raise Overloaded("All threads for blocking work are in use; try again later")
        self.busy.add(thread)
        return thread

    def release(self, thread: PoolThread) -> None:
        """Return a clean, idle thread to the pool, or assign it to a waiting lease."""
        with self.lock:
            if self.returning:
                self.busy.discard(thread)
                thread.stop()
                self._readmit()
                return

            while self.waiting:
                if self.waiting.popleft().assign(thread):
                    return

            self.busy.discard(thread)
            if self.is_closed:
                thread.stop()
            else:
                self.free.append(thread)

    def begin_wait(self, thread: PoolThread, *, is_reentry: bool = False) -> None:
        """Free the place of a busy thread that starts a blocking wait.

        Raises:
            Overloaded: too many threads are waiting, unless the thread interrupted its wait (`is_reentry`).
        """
        with self.lock:
            if len(self.blocked) >= self.max_blocked and not is_reentry:
                raise Overloaded("Too many threads are waiting for clients; try again later")

            self.blocked.add(thread)
            self.busy.discard(thread)
            if self.returning:
                self._readmit()
                return

            spare_thread: PoolThread | None = None
            while self.waiting:
                spare_thread = spare_thread or PoolThread(f"{self.name}-{len(self.busy)}")
                if self.waiting.popleft().assign(spare_thread):
                    self.busy.add(spare_thread)
                    return
            if spare_thread is not None:
                self.free.append(spare_thread)

    def end_wait(self, thread: PoolThread) -> None:
        """End the wait of the calling thread; block until a place is free."""
        with self.lock:
            readmitted = threading.Event()
            self.returning.append((thread, readmitted))
            if self.is_closed or len(self.busy) + len(self.free) < self.max_threads:
                self._readmit()
            elif self.free:
                # The thread that was idle longest.
                self.free.pop(0).stop()
                self._readmit()
        readmitted.wait()

    def _readmit(self) -> None:
        thread, readmitted = self.returning.popleft()
        self.blocked.discard(thread)
        self.busy.add(thread)
        readmitted.set()

    def close(self, timeout: float) -> None:
        """Stop idle threads now and busy ones after their work.

        Waits at most `timeout` seconds for each idle thread.
        """
        with self.lock:
            self.is_closed = True
            while self.returning:
                self._readmit()
            idle = self.free
            self.free = []
        for thread in idle:
            thread.stop()
        for thread in idle:
            thread.thread.join(timeout)
