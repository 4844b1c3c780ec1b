"""Thread pool: bounded threads with database connections, leased to calls.

Between two calls a thread is cleaned as Django cleans a thread between two requests. All functions are thread-safe;
`ThreadPool.lock` guards the pool and its leases.
"""

import contextlib
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from django.db import connections, reset_queries
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from mcp_django.runtime.threads.sql_cancellation import Gate
from mcp_django.server.ports import Overloaded

if TYPE_CHECKING:
    from mcp_django.runtime.threads.lease import Lease

logger = logging.getLogger("mcp_django.lanes")

Work = Callable[[], None]
here = threading.local()
"""State of the current thread.

`gate`: the `StatementGuard` of its database connections, if any; `parking`: its current `BlockingWait`.
"""


def _remember(*, connection: BaseDatabaseWrapper, **_: Any) -> None:
    gate = getattr(here, "gate", None)
    if gate is not None:
        gate.watch(connection)


connection_created.connect(_remember, dispatch_uid="mcp_django.runtime.threads.pool")


class Lane:
    """Pool thread, started at once.

    It ends when it is stopped or garbage collected, and never keeps the process alive.
    """

    __slots__ = ("__weakref__", "_work", "gate", "thread")

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self.gate = Gate()
        # The thread refers to the queue only: a reference to this object would prevent its collection.
        self.thread = threading.Thread(target=_serve, args=(self._work, self.gate), name=name, daemon=True)
        self.thread.start()
        weakref.finalize(self, self._work.put, None).atexit = False

    def put(self, work: Work) -> None:
        """Queue a function; functions run in order."""
        self._work.put(work)

    def stop(self) -> None:
        """End the thread after the queued functions."""
        self._work.put(None)


def _serve(queue: "SimpleQueue[Work | None]", gate: Gate) -> None:
    here.gate = gate
    while (work := queue.get()) is not None:
        work()
        # Drop the reference, so that nothing is kept alive while the thread waits.
        del work
    connections.close_all()


def begin() -> None:
    """Prepare the current thread for a call, as `request_started` does."""
    reset_queries()
    end()


def end(drop: bool = False) -> None:
    """Clean the current thread after a call, as `request_finished` does.

    Connections inside a transaction are closed; with `close_all` every connection is.
    """
    for connection in connections.all(initialized_only=True):
        # Django keeps the last error of a transaction, and with it the frames of the finished call.
        vars(connection)["rollback_exc"] = None  # not in the type stubs

        driver = connection.connection
        try:
            _settle(connection, drop)
        except Exception:
            # The error concerns neither the finished call nor the next one, so log it only.
            logger.exception("Failed to close connection %r; dropping it", connection.alias)
            if driver is not None:
                with contextlib.suppress(Exception):
                    driver.close()
            _forget(connection)


def _settle(connection: BaseDatabaseWrapper, drop: bool) -> None:
    if not drop and not connection.in_atomic_block:
        connection.close_if_unusable_or_obsolete()
        return
    if not drop:
        logger.warning(
            "Call ended inside a transaction on %r; rolling back. Leave atomic() in the function that entered it",
            connection.alias,
        )
    # Otherwise close() would keep the wrapper in its broken transaction.
    connection.in_atomic_block = False
    connection.close()
    _forget(connection)


def _forget(connection: BaseDatabaseWrapper) -> None:
    """Reset the wrapper of a closed connection; connect() resets the other attributes."""
    connection.connection, connection.in_atomic_block, connection.atomic_blocks = None, False, []


class LanePool:
    """Pool of at most `max_threads` threads and a queue of leases that wait for one.

    Threads are started on demand. Leases are served in order. At most `max_queued` leases wait, plus unbounded ones.
    `interrupts_sql` enables the cancellation of SQL after a call has ended.

    A thread in a blocking wait (`blocking_wait`) does not count as one of the pool until it returns. At most
    `max_blocked` threads may wait at a time.
    """

    def __init__(
        self, size: int, queue: int, *, parked: int = 256, interrupt: bool = True, name: str = "mcp-lane"
    ) -> None:
        """Create the pool; threads are named `name` with a number."""
        self.size, self.queue, self.interrupt, self.name = size, queue, interrupt, name
        self.lock = threading.Lock()
        self.free: list[Lane] = []
        self.busy: set[Lane] = set()
        self.waiting: deque[Lease] = deque()
        self.most_parked = parked
        self.parked: set[Lane] = set()
        """Threads in a blocking wait, and threads that are waiting to return."""
        self.returning: deque[tuple[Lane, threading.Event]] = deque()
        self.closed = False

    def take(self, lease: "Lease") -> Lane | None:
        """Return a thread, or None if `lease` is queued until it is assigned one.

        Call it with the lock.

        Raises:
            Overloaded: the queue is full.
        """
        if self.closed:
            raise RuntimeError("The thread pool is closed; this server is shutting down")

        if self.free:
            # The most recently used thread, because its connections are open.
            lane = self.free.pop()
        elif len(self.busy) < self.size:
            lane = Lane(f"{self.name}-{len(self.busy)}")
        elif lease.patient or len(self.waiting) < self.queue:
            self.waiting.append(lease)
            return None
        else:
            raise Overloaded("All threads for blocking work are in use; try again later")
        self.busy.add(lane)
        return lane

    def release(self, lane: Lane) -> None:
        """Return a clean, idle thread to the pool, or assign it to a waiting lease."""
        with self.lock:
            if self.returning:
                self.busy.discard(lane)
                lane.stop()
                self._admit()
                return

            while self.waiting:
                if self.waiting.popleft().grant(lane):
                    return

            self.busy.discard(lane)
            if self.closed:
                lane.stop()
            else:
                self.free.append(lane)

    def park(self, lane: Lane, *, again: bool = False) -> None:
        """Free the place of a busy thread that starts a blocking wait.

        Raises:
            Overloaded: too many threads are waiting, unless the thread interrupted its wait (`is_reentry`).
        """
        with self.lock:
            if len(self.parked) >= self.most_parked and not again:
                raise Overloaded("Too many threads are waiting for clients; try again later")

            self.parked.add(lane)
            self.busy.discard(lane)
            if self.returning:
                self._admit()
                return

            spare: Lane | None = None
            while self.waiting:
                spare = spare or Lane(f"{self.name}-{len(self.busy)}")
                if self.waiting.popleft().grant(spare):
                    self.busy.add(spare)
                    return
            if spare is not None:
                self.free.append(spare)

    def unpark(self, lane: Lane) -> None:
        """End the wait of the calling thread; block until a place is free."""
        with self.lock:
            back = threading.Event()
            self.returning.append((lane, back))
            if self.closed or len(self.busy) + len(self.free) < self.size:
                self._admit()
            elif self.free:
                # The thread that was idle longest.
                self.free.pop(0).stop()
                self._admit()
        back.wait()

    def _admit(self) -> None:
        lane, back = self.returning.popleft()
        self.parked.discard(lane)
        self.busy.add(lane)
        back.set()

    def close(self, wait: float) -> None:
        """Stop idle threads now and busy ones after their work.

        Waits at most `timeout` seconds for each idle thread.
        """
        with self.lock:
            self.closed = True
            while self.returning:
                self._admit()
            idle, self.free = self.free, []
        for lane in idle:
            lane.stop()
        for lane in idle:
            lane.thread.join(wait)
