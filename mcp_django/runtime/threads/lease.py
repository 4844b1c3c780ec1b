"""Thread leases: the claim of one call to a pool thread.

A call takes a thread at its first use and keeps it, so that all its ORM work uses one connection. The thread returns to
the pool when it is idle, not when the caller stops waiting. A cancelled caller continues at once, while its SQL is
cancelled and the thread finishes.
"""

import logging
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future
from typing import Any

from asgiref.sync import SyncToAsync
from django.db.backends.base.base import BaseDatabaseWrapper

from mcp_django.runtime.threads.pool import Lane, LanePool, begin, end, here

logger = logging.getLogger("mcp_django.lanes")


class Stay:
    """Assignment of a thread to a lease, until its submitted jobs are done."""

    __slots__ = ("_done", "_pool", "_put", "dropped", "lane")

    def __init__(self, pool: LanePool, lane: Lane) -> None:
        self._pool, self.lane = pool, lane
        self._put = self._done = 0
        self.dropped = False
        """True if the caller no longer waits for the remaining jobs."""

    @property
    def busy(self) -> bool:
        """True while jobs without a result exist."""
        return self._put != self._done

    def put(self, job: "_Job") -> None:
        """Queue a job. Call it with the pool's lock."""
        job.stay = self
        self._put += 1
        self.lane.put(job.run)

    def done(self) -> None:
        """Count a finished job, before its result becomes visible."""
        self._done += 1

    def drop(self) -> None:
        """Cancel the running SQL; connections are closed when the thread is done.

        Call it with the pool's lock.
        """
        self.dropped = True
        if self._pool.interrupt and self.busy:
            self.lane.gate.stop()

    def leave(self) -> None:
        """Clean the thread and return it to the pool, as its last job."""
        with self._pool.lock:
            # A caller that finds it busy has cancelled it by now; the flag does not change any more.
            dropped = self.dropped
        gate = self.lane.gate
        gate.settle()
        if gate.shut:
            logger.info("SQL of a finished call was cancelled and its connections were closed")
        end(dropped)
        gate.open()
        # asgiref stores the loop in the thread: this would keep the loop alive, and with it the pool.
        vars(SyncToAsync.threadlocal).clear()
        self._pool.release(self.lane)


class Lease(Executor):
    """Claim of one call to a thread, as a single-thread executor for asgiref.

    An `is_single` lease belongs to a plain function, which owns its thread until it returns.
    """

    # Class-level defaults, because most calls never set them, and each call creates a lease.
    closed: bool = False
    """True after the call has ended."""
    patient: bool = False
    """True if the lease may wait in the queue beyond its limit."""
    stay: Stay | None = None
    """Assignment of the current thread."""
    _pool: LanePool | None = None
    _pending: "list[_Job] | None" = None
    _rested: tuple[Stay, ...] = ()
    """Assignments that ended with a wait; tasks of the call may still run there."""

    def __init__(self, find_pool: Callable[[], LanePool], single: bool = False) -> None:
        self._find_pool, self._single = find_pool, single

    @property
    def pool(self) -> LanePool | None:
        """Pool of the threads; None before the first use."""
        return self._pool

    @property
    def busy(self) -> bool:
        """True while jobs run or wait on the current thread."""
        stay = self.stay
        return stay is not None and stay.busy

    def connections(self) -> list[BaseDatabaseWrapper]:
        """Return the connections of the current thread, for inspection only."""
        stay = self.stay
        return [] if stay is None else list(stay.lane.gate.connections.values())

    def lane_here(self) -> Lane | None:
        """Return the calling pool thread if it belongs to the call, else None."""
        gate = getattr(here, "gate", None)
        stays = self._rested if self.stay is None else (self.stay, *self._rested)
        return next((stay.lane for stay in stays if stay.lane.gate is gate), None)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Run `fn` on the call's thread.

        Raises:
            Overloaded: all threads are in use and the queue is full.
            RuntimeError: the lease is closed.
        """
        pool = self._pool
        if pool is None:
            pool = self._pool = self._find_pool()

        job = _Job(fn, args, kwargs)
        with pool.lock:
            if self.closed:
                raise RuntimeError(
                    "The call that started this task has ended; a task cannot use the thread of a finished call"
                )
            if self._single and (self.stay is not None or self._pending is not None):
                # The thread may be waiting for this very job, which would be a deadlock.
                raise RuntimeError(
                    "A plain function waited for async code without asgiref's async_to_sync; use async_to_sync"
                )

            if self.stay is not None:
                self.stay.put(job)
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
        """Use a thread; return False if no jobs are left. Call it with the pool's lock."""
        jobs, self._pending = [job for job in self._pending or () if not job.future.cancelled()], None
        if not jobs or self._pool is None:
            return False
        stay = self.stay = Stay(self._pool, lane)
        lane.put(begin)
        for job in jobs:
            stay.put(job)
        return True

    def rest(self) -> None:
        """Release the thread during a wait; the next use leases another one."""
        if self._single or self._pool is None:
            return
        with self._pool.lock:
            stay, self.stay = self.stay, None
            if stay is not None and stay.busy:
                self._rested = (*self._rested, stay)
        if stay is not None:
            stay.lane.put(stay.leave)

    def part(self, *, drop: bool) -> None:
        """Detach the thread in the middle of a call; the next use leases another one.

        Running jobs are cancelled, or left alone even when the call ends.
        """
        if self._pool is None:
            return
        with self._pool.lock:
            stay, self.stay = self.stay, None
            if stay is not None and drop:
                stay.drop()
        if stay is not None:
            stay.lane.put(stay.leave)

    def finish(self) -> None:
        """Close the lease on its own thread, as the last action for the call.

        The thread is clean and free on return.
        """
        if self._pool is not None:
            with self._pool.lock:
                self.closed = True
                stay, self.stay = self.stay, None
            if stay is not None:
                stay.leave()

    def close(self) -> None:
        """Close the lease at the end of the call.

        Queued jobs are dropped, running SQL is cancelled, and the thread returns to the pool when it is idle.
        """
        pool = self._pool
        if pool is None:
            self.closed = True
            return

        with pool.lock:
            self.closed = True
            jobs, self._pending = self._pending, None
            if jobs is not None:
                pool.waiting.remove(self)
            stay, self.stay = self.stay, None
            rested, self._rested = self._rested, ()
            if pool.interrupt:
                for left in rested if stay is None else (*rested, stay):
                    if left.busy:
                        left.drop()

        for job in jobs or ():
            job.future.cancel()
        if stay is not None:
            stay.lane.put(stay.leave)


class _Job:
    """Function with the future of its result."""

    __slots__ = ("_args", "_fn", "_kwargs", "future", "stay")

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._fn, self._args, self._kwargs = fn, args, kwargs
        self.future: Future[Any] = Future()
        self.stay: Stay

    def run(self) -> None:
        future, stay = self.future, self.stay
        if stay.dropped:
            future.cancel()
        if not future.set_running_or_notify_cancel():
            stay.done()
            return

        try:
            result = self._fn(*self._args, **self._kwargs)
        except BaseException as problem:
            stay.done()
            # An error caused by cancellation is reported as such: the call of the waiting task has ended.
            future.set_exception(CancelledError() if stay.dropped else presentable(problem))
            # The traceback refers to this frame, which must not refer to the future that holds the traceback.
            del future, self
        else:
            stay.done()
            future.set_result(result)


def presentable(problem: BaseException) -> BaseException:
    """Return an exception that asyncio can raise in the waiting task.

    StopIteration would block that task forever. SystemExit and KeyboardInterrupt end the event loop; they come from the
    pool thread itself, because signals go to the main thread.
    """
    if isinstance(problem, StopIteration | SystemExit | KeyboardInterrupt | GeneratorExit):
        stand_in = RuntimeError(f"The function that was run raised {type(problem).__name__}")
        stand_in.__cause__ = problem
        return stand_in
    return problem
