"""Leases: one call's claim to a lane.

A call that needs a thread takes a lane at its first use and keeps it, so that everything it does with the ORM
happens on one connection. A lane goes back when its thread is idle again, not when the caller gives up: a
cancelled caller is free at once, its lane finishes first, with its SQL interrupted.
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
    """One lease's time on one lane, which ends when the lane's thread has done all that was put."""

    __slots__ = ("_done", "_pool", "_put", "dropped", "lane")

    def __init__(self, pool: LanePool, lane: Lane) -> None:
        self._pool, self.lane = pool, lane
        self._put = self._done = 0
        self.dropped = False
        """Nobody wants what still runs or waits here."""

    @property
    def busy(self) -> bool:
        """Is the thread still at it? What has an outcome is done."""
        return self._put != self._done

    def put(self, job: "_Job") -> None:
        """Queue `job`. Call it with the pool's lock."""
        job.stay = self
        self._put += 1
        self.lane.put(job.run)

    def done(self) -> None:
        """One job is done, says the lane's thread; only then is there an outcome to be seen."""
        self._done += 1

    def drop(self) -> None:
        """Nobody waits any more for what runs here: its SQL is interrupted, and the connections are closed when the
        thread is done. Call it with the pool's lock.
        """
        self.dropped = True
        if self._pool.interrupt and self.busy:
            self.lane.gate.stop()

    def leave(self) -> None:
        """Clean the lane and give it back; run by its own thread, as the last work of the stay."""
        with self._pool.lock:
            # Whoever found it busy has dropped it by now, and nobody will again: nothing is left to do.
            dropped = self.dropped
        gate = self.lane.gate
        gate.settle()
        if gate.shut:
            logger.info("A call was over before its thread; its SQL has been stopped and its connections closed")
        end(dropped)
        gate.open()
        # asgiref notes in the thread which loop it worked for: that would keep the loop alive, and with it the pool.
        vars(SyncToAsync.threadlocal).clear()
        self._pool.release(self.lane)


class Lease(Executor):
    """One call's claim to a lane, in the shape asgiref wants: an executor that runs everything on one thread.

    A `single` lease is that of a plain function, whose thread is its own until it returns.
    """

    # On the class, because most calls need none of them: making a lease costs every call.
    closed: bool = False
    """Is the call over?"""
    patient: bool = False
    """Does it wait in line however long the line is?"""
    stay: Stay | None = None
    """Its time on the lane it has now."""
    _pool: LanePool | None = None
    _pending: "list[_Job] | None" = None
    _rested: tuple[Stay, ...] = ()
    """The stays that a question ended, where a task of the call may be at work still."""

    def __init__(self, find_pool: Callable[[], LanePool], single: bool = False) -> None:
        self._find_pool, self._single = find_pool, single

    @property
    def pool(self) -> LanePool | None:
        """Where its lanes come from; None before the first."""
        return self._pool

    @property
    def busy(self) -> bool:
        """Does something of the call run, or wait to be run, on the lane it has now?"""
        stay = self.stay
        return stay is not None and stay.busy

    def connections(self) -> list[BaseDatabaseWrapper]:
        """Those of the lane it has now, to be looked at only."""
        stay = self.stay
        return [] if stay is None else list(stay.lane.gate.connections.values())

    def lane_here(self) -> Lane | None:
        """The lane whose thread this is, if the call is on it."""
        gate = getattr(here, "gate", None)
        stays = self._rested if self.stay is None else (self.stay, *self._rested)
        return next((stay.lane for stay in stays if stay.lane.gate is gate), None)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Run `fn` on the call's lane. Raises Overloaded when there is none and too many wait, unless it is patient;
        RuntimeError after `close`.
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
            if self._single and (self.stay is not None or self._pending is not None):
                # Its thread may be waiting for this very work, and would wait for ever.
                raise RuntimeError("A plain function must wait for async code with asgiref's async_to_sync")
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
        """Use `lane`; False when nothing is left to do on it. Called with the pool's lock."""
        jobs, self._pending = [job for job in self._pending or () if not job.future.cancelled()], None
        if not jobs or self._pool is None:
            return False
        stay = self.stay = Stay(self._pool, lane)
        lane.put(begin)
        for job in jobs:
            stay.put(job)
        return True

    def rest(self) -> None:
        """Give the lane back while the call waits for somebody; its next use leases another."""
        if self._single or self._pool is None:
            return
        with self._pool.lock:
            stay, self.stay = self.stay, None
            if stay is not None and stay.busy:
                self._rested = (*self._rested, stay)
        if stay is not None:
            stay.lane.put(stay.leave)

    def part(self, *, drop: bool) -> None:
        """Give the lane up in the middle of the call, whose next use leases another. What runs on it is dropped, or
        left alone even when the call ends.
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
        """`close`, said by the lane's own thread as the last thing it does for the call: it is clean and free on
        return.
        """
        if self._pool is not None:
            with self._pool.lock:
                self.closed = True
                stay, self.stay = self.stay, None
            if stay is not None:
                stay.leave()

    def close(self) -> None:
        """The call is over: nothing that still waits is started, what runs is interrupted, and the lane goes back
        when its thread is idle.
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
    """A function and the future of its outcome."""

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
            # What comes of an interruption is no failure of whoever still waits for it: their call is over.
            future.set_exception(CancelledError() if stay.dropped else presentable(problem))
            # The traceback holds this frame, which must not hold the future that holds the traceback.
            del future, self
        else:
            stay.done()
            future.set_result(result)


def presentable(problem: BaseException) -> BaseException:
    """The exception as asyncio can carry it: StopIteration would leave the waiting task hanging, SystemExit and
    KeyboardInterrupt (a thread's own: signals go to the main thread) end the event loop.
    """
    if isinstance(problem, StopIteration | SystemExit | KeyboardInterrupt | GeneratorExit):
        stand_in = RuntimeError(f"{type(problem).__name__} left the function that was run")
        stand_in.__cause__ = problem
        return stand_in
    return problem
