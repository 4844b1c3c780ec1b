"""Lanes: a bounded number of threads, each with database connections of its own, leased to one call at a time.

A call that needs a thread takes a lane at its first use and keeps it, so that everything it does with the ORM
happens on one connection. A lane goes back when its thread is idle again, not when the caller gives up: a
cancelled caller is free at once, its lane finishes first. Between two calls a lane is cleaned as Django cleans a
thread between two requests.

Everything here may be called from any thread; `LanePool.lock` guards the pool and the leases on it.
"""

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any

from asgiref.sync import SyncToAsync
from django.db import connections, reset_queries
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from ..server.ports import Overloaded

logger = logging.getLogger("mcp_django.lanes")

Work = Callable[[], None]
_here = threading.local()


def _remember(*, connection: BaseDatabaseWrapper, **_: Any) -> None:
    opened = getattr(_here, "connections", None)
    if opened is not None:
        opened[connection.alias] = connection


connection_created.connect(_remember, dispatch_uid="mcp_django.runtime.lanes")


class Lane:
    """One thread, started at once. It ends when the lane is stopped or garbage collected; it never keeps the
    process alive.
    """

    __slots__ = ("__weakref__", "_work", "connections", "thread")

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self.connections: dict[str, BaseDatabaseWrapper] = {}
        """The connections that the thread has opened, by alias. Other threads may look at them, never use them."""
        # The thread knows the queue, not the lane: otherwise the lane could never be collected.
        self.thread = threading.Thread(target=_serve, args=(self._work, self.connections), name=name, daemon=True)
        self.thread.start()
        weakref.finalize(self, self._work.put, None).atexit = False

    def put(self, work: Work) -> None:
        """Queue `work`; what is put first runs first."""
        self._work.put(work)

    def stop(self) -> None:
        """End the thread once it has done what is queued."""
        self._work.put(None)


def _serve(queue: "SimpleQueue[Work | None]", opened: dict[str, BaseDatabaseWrapper]) -> None:
    _here.connections = opened
    while (work := queue.get()) is not None:
        work()
        # Nothing may be kept alive while the thread waits for its next call.
        del work
    connections.close_all()


def begin() -> None:
    """Make the current thread ready for a call, as `request_started` does."""
    reset_queries()
    end()


def end() -> None:
    """Clean the current thread after a call, as `request_finished` does, and drop connections left inside a
    transaction.
    """
    for connection in connections.all(initialized_only=True):
        try:
            _settle(connection)
        except Exception:
            # Neither the call that is over nor the next one is to blame for a connection that cannot even be closed.
            logger.exception("The connection %r could not be closed; it is dropped", connection.alias)
            connection.connection, connection.in_atomic_block = None, False


def _settle(connection: BaseDatabaseWrapper) -> None:
    if connection.in_atomic_block:
        logger.warning(
            "A call ended inside a transaction on %r, which is rolled back; leave atomic() where it was entered",
            connection.alias,
        )
        # Otherwise close() would keep the wrapper in its broken transaction; connect() resets the rest.
        connection.in_atomic_block = False
        connection.close()
    else:
        connection.close_if_unusable_or_obsolete()


class LanePool:
    """At most `size` lanes, made when first needed, and the leases that wait for one: first come, first served,
    `queue` at most.
    """

    def __init__(self, size: int, queue: int) -> None:
        self.size, self.queue = size, queue
        self.lock = threading.Lock()
        self.free: list[Lane] = []
        self.busy: set[Lane] = set()
        self.waiting: deque[Lease] = deque()
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
            lane = Lane(f"mcp-lane-{len(self.busy)}")
        elif len(self.waiting) < self.queue:
            self.waiting.append(lease)
            return None
        else:
            raise Overloaded("All threads for blocking work are taken; try again later")
        self.busy.add(lane)
        return lane

    def release(self, lane: Lane) -> None:
        """Take back a lane whose thread is clean and idle, or hand it on."""
        with self.lock:
            while self.waiting:
                if self.waiting.popleft().grant(lane):
                    return
            self.busy.discard(lane)
            if self.closed:
                lane.stop()
            else:
                self.free.append(lane)

    def close(self, wait: float) -> None:
        """End idle lanes now, busy ones when their work ends; wait for the idle ones, `wait` seconds each at most."""
        with self.lock:
            self.closed = True
            idle, self.free = self.free, []
        for lane in idle:
            lane.stop()
        for lane in idle:
            lane.thread.join(wait)


class Lease(Executor):
    """One call's claim to a lane, in the shape asgiref wants: an executor that runs everything on one thread.

    A `single` lease is that of a plain function, whose thread is its own until it returns.
    """

    # On the class, because most calls need none of them: making a lease costs every call.
    closed: bool = False
    """Is the call over?"""
    lane: Lane | None = None
    """The lane it has now."""
    _pool: LanePool | None = None
    _pending: "list[_Job] | None" = None

    def __init__(self, find_pool: Callable[[], LanePool], single: bool = False) -> None:
        self._find_pool, self._single = find_pool, single

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Run `fn` on the call's lane. Raises Overloaded when there is none and too many wait, RuntimeError after
        `close`.
        """
        pool = self._pool
        if pool is None:
            pool = self._pool = self._find_pool()
        job = _Job(fn, args, kwargs)
        with pool.lock:
            if self.closed:
                raise RuntimeError(
                    "The call that this task was started in is over; what outlives a call cannot use its thread"
                )
            if self._single and (self.lane is not None or self._pending is not None):
                # Its thread may be waiting for this very work, and would wait for ever.
                raise RuntimeError("A plain function must wait for async code with asgiref's async_to_sync")
            if self.lane is not None:
                self.lane.put(job.run)
            elif self._pending is not None:
                self._pending.append(job)
            else:
                self._pending = [job]
                try:
                    lane = pool.take(self)
                except BaseException:
                    self._pending = None
                    raise
                if lane is not None:
                    self.grant(lane)
        return job.future

    def grant(self, lane: Lane) -> bool:
        """Use `lane`; False when nothing is left to do on it. Called with the pool's lock."""
        jobs, self._pending = [job for job in self._pending or () if not job.future.cancelled()], None
        if not jobs:
            return False
        self.lane = lane
        lane.put(begin)
        for job in jobs:
            lane.put(job.run)
        return True

    def rest(self) -> None:
        """Give the lane back while the call waits for somebody; its next use leases another."""
        if not self._single:
            self._give_back()

    def _give_back(self) -> None:
        if self._pool is not None:
            with self._pool.lock:
                lane, self.lane = self.lane, None
            if lane is not None:
                lane.put(_Return(self._pool, lane))

    def finish(self) -> None:
        """`close`, said by the lane's own thread as the last thing it does for the call: it is clean and free on
        return.
        """
        if self._pool is not None:
            with self._pool.lock:
                self.closed = True
                lane, self.lane = self.lane, None
            if lane is not None:
                _Return(self._pool, lane)()

    def close(self) -> None:
        """The call is over: nothing that still waits is started, and the lane goes back when its thread is idle."""
        pool = self._pool
        if pool is None:
            self.closed = True
            return
        with pool.lock:
            self.closed = True
            jobs, self._pending = self._pending, None
            if jobs is not None:
                pool.waiting.remove(self)
        for job in jobs or ():
            job.future.cancel()
        self._give_back()


class _Return:
    """The last work of a lease on its lane: clean up, go back."""

    __slots__ = ("_lane", "_pool")

    def __init__(self, pool: LanePool, lane: Lane) -> None:
        self._pool, self._lane = pool, lane

    def __call__(self) -> None:
        end()
        # asgiref notes in the thread which loop it worked for: that would keep the loop alive, and with it the pool.
        vars(SyncToAsync.threadlocal).clear()
        self._pool.release(self._lane)


class _Job:
    """A function and the future of its outcome."""

    __slots__ = ("_args", "_fn", "_kwargs", "future")

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._fn, self._args, self._kwargs = fn, args, kwargs
        self.future: Future[Any] = Future()

    def run(self) -> None:
        future = self.future
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = self._fn(*self._args, **self._kwargs)
        except BaseException as problem:
            future.set_exception(presentable(problem))
            # The traceback holds this frame, which must not hold the future that holds the traceback.
            del future, self
        else:
            future.set_result(result)


def presentable(problem: BaseException) -> BaseException:
    """The exception as asyncio can carry it: StopIteration would leave the waiting task hanging, SystemExit end
    the event loop.
    """
    if isinstance(problem, StopIteration | SystemExit):
        stand_in = RuntimeError(f"{type(problem).__name__} left the function that was run")
        stand_in.__cause__ = problem
        return stand_in
    return problem
