"""Lanes: a bounded number of threads, each with database connections of its own, leased to one call at a time.

Between two calls a lane is cleaned as Django cleans a thread between two requests. Everything here may be called from
any thread; `LanePool.lock` guards the pool and the leases on it.
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
"""`gate`: what stands between the current thread and the databases, if anything does; `parking`: the wait it is in."""


def _remember(*, connection: BaseDatabaseWrapper, **_: Any) -> None:
    gate = getattr(here, "gate", None)
    if gate is not None:
        gate.watch(connection)


connection_created.connect(_remember, dispatch_uid="mcp_django.runtime.threads.pool")


class Lane:
    """One thread, started at once. It ends when the lane is stopped or garbage collected; it never keeps the
    process alive.
    """

    __slots__ = ("__weakref__", "_work", "gate", "thread")

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self.gate = Gate()
        # The thread knows the queue, not the lane: otherwise the lane could never be collected.
        self.thread = threading.Thread(target=_serve, args=(self._work, self.gate), name=name, daemon=True)
        self.thread.start()
        weakref.finalize(self, self._work.put, None).atexit = False

    def put(self, work: Work) -> None:
        """Queue `work`; what is put first runs first."""
        self._work.put(work)

    def stop(self) -> None:
        """End the thread once it has done what is queued."""
        self._work.put(None)


def _serve(queue: "SimpleQueue[Work | None]", gate: Gate) -> None:
    here.gate = gate
    while (work := queue.get()) is not None:
        work()
        # Nothing may be kept alive while the thread waits for its next call.
        del work
    connections.close_all()


def begin() -> None:
    """Make the current thread ready for a call, as `request_started` does."""
    reset_queries()
    end()


def end(drop: bool = False) -> None:
    """Clean the current thread after a call, as `request_finished` does, and close connections left inside a
    transaction; with `drop` all of them.
    """
    for connection in connections.all(initialized_only=True):
        # Django keeps the last error of a transaction, and with it the frames of the call that it ended.
        vars(connection)["rollback_exc"] = None  # not in the type stubs
        driver = connection.connection
        try:
            _settle(connection, drop)
        except Exception:
            # Neither the call that is over nor the next one is to blame for a connection that cannot even be closed.
            logger.exception("The connection %r could not be closed; it is dropped", connection.alias)
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
            "A call ended inside a transaction on %r, which is rolled back; leave atomic() where it was entered",
            connection.alias,
        )
    # Otherwise close() would keep the wrapper in its broken transaction.
    connection.in_atomic_block = False
    connection.close()
    _forget(connection)


def _forget(connection: BaseDatabaseWrapper) -> None:
    """Leave nothing of a closed connection in its wrapper; connect() resets what is not reset here."""
    connection.connection, connection.in_atomic_block, connection.atomic_blocks = None, False, []


class LanePool:
    """At most `size` lanes, made when first needed, and the leases that wait for one: first come, first served,
    `queue` at most and those that are patient. `interrupt` says whether the SQL of calls that are over is interrupted.

    A lane whose thread waits for somebody (`parking`) is none of them until it is back: `parked` at most.
    """

    def __init__(
        self, size: int, queue: int, *, parked: int = 256, interrupt: bool = True, name: str = "mcp-lane"
    ) -> None:
        """The threads are called `name`, with a number."""
        self.size, self.queue, self.interrupt, self.name = size, queue, interrupt, name
        self.lock = threading.Lock()
        self.free: list[Lane] = []
        self.busy: set[Lane] = set()
        self.waiting: deque[Lease] = deque()
        self.most_parked = parked
        self.parked: set[Lane] = set()
        """Those that are out, and those that want to come back."""
        self.returning: deque[tuple[Lane, threading.Event]] = deque()
        self.closed = False

    def take(self, lease: "Lease") -> Lane | None:
        """A lane, or None when `lease` has to wait for its grant. Raises Overloaded when too many wait. Call it
        with the lock.
        """
        if self.closed:
            raise RuntimeError("The lanes are closed; this server is shutting down")
        if self.free:
            # The one used last: its connections are open.
            lane = self.free.pop()
        elif len(self.busy) < self.size:
            lane = Lane(f"{self.name}-{len(self.busy)}")
        elif lease.patient or len(self.waiting) < self.queue:
            self.waiting.append(lease)
            return None
        else:
            raise Overloaded("All threads for blocking work are taken; try again later")
        self.busy.add(lane)
        return lane

    def release(self, lane: Lane) -> None:
        """Take back a lane whose thread is clean and idle, or hand it on."""
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
        """The thread of a busy lane is about to wait: its place is somebody else's. Raises Overloaded when too many
        wait, unless it is out `again`.
        """
        with self.lock:
            if len(self.parked) >= self.most_parked and not again:
                raise Overloaded("Too many threads wait for answers of clients; try again later")
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
        """The wait is over: go on when there is a place again. For the thread of the lane."""
        with self.lock:
            back = threading.Event()
            self.returning.append((lane, back))
            if self.closed or len(self.busy) + len(self.free) < self.size:
                self._admit()
            elif self.free:
                # The one that was idle longest.
                self.free.pop(0).stop()
                self._admit()
        back.wait()

    def _admit(self) -> None:
        lane, back = self.returning.popleft()
        self.parked.discard(lane)
        self.busy.add(lane)
        back.set()

    def close(self, wait: float) -> None:
        """End idle lanes now, busy ones when their work ends; wait for the idle ones, `wait` seconds each at most."""
        with self.lock:
            self.closed = True
            while self.returning:
                self._admit()
            idle, self.free = self.free, []
        for lane in idle:
            lane.stop()
        for lane in idle:
            lane.thread.join(wait)
