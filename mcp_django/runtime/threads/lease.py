"""Thread leases: the claim of one call to a pool thread.

A call takes a thread at its first use and keeps it, so that all its ORM work uses one connection. The thread returns to
the pool when it is idle, not when the caller stops waiting. A cancelled caller continues at once, while its SQL is
cancelled and the thread finishes.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from mcp_django.aio.asgiref_internals import forget_loop_of_thread
from mcp_django.runtime.threads.pool import (
    PoolThread,
    ThreadPool,
    clean_thread,
    prepare_thread,
    run_exit_callbacks,
    thread_state,
)
from mcp_django.server.calls.call import current_call
from mcp_django.server.calls.outcome import THREAD, CallRecord, Wait
from mcp_django.server.ports import AttemptControl


@dataclass(slots=True, eq=False, repr=False)
class ThreadAssignment:
    """Assignment of a thread to a lease, until its submitted jobs are done."""

    pool: ThreadPool
    thread: PoolThread
    is_cancelled: bool = False
    """True if the caller no longer waits for the remaining jobs."""
    is_released: bool = False
    """True after the release was queued as the last job."""
    is_waiting: bool = False
    """True while the idle thread has no place in the pool, because the call waits for its client."""
    _submitted_count: int = 0
    _done_count: int = 0

    @property
    def is_busy(self) -> bool:
        """True while jobs without a result exist."""
        return self._submitted_count != self._done_count

    def submit(self, job: "_ThreadJob") -> None:
        """Queue a job. Call it with the pool's lock."""
        job.assignment = self
        self._submitted_count += 1
        self._end_wait()
        self.thread.put(job.run)

    def try_submit(self, fn: Callable[[], Any]) -> "Future[Any] | None":
        """Run a function on the thread; return None if the thread has been released."""
        with self.pool.lock:
            if self.is_released:
                return None
            job = _ThreadJob(fn, (), {})
            self.submit(job)
        return job.future

    def begin_wait(self) -> None:
        """Free the place of the idle thread until the next job.

        Raises:
            Overloaded: too many threads are waiting.
        """
        if not self.is_waiting:
            self.pool.begin_wait(self.thread)
            self.is_waiting = True
            self.thread.put(partial(clean_thread, True))

    def _end_wait(self) -> None:
        if self.is_waiting:
            self.is_waiting = False
            self.thread.put(partial(self.pool.end_wait, self.thread))

    def mark_done(self) -> None:
        """Count a finished job, before its result becomes visible."""
        self._done_count += 1

    def cancel(self) -> None:
        """Cancel the running SQL; connections are closed when the thread is done.

        Call it with the pool's lock.
        """
        self.is_cancelled = True
        if self.pool.interrupts_sql and self.is_busy:
            self.thread.guard.cancel()

    def queue_release(self) -> None:
        """Release the thread after its jobs. Idempotent."""
        with self.pool.lock:
            if self.is_released:
                return
            self.is_released = True
            self._end_wait()
            self.thread.put(self.release)

    def release(self) -> None:
        """Clean the thread and return it to the pool, as its last job."""
        with self.pool.lock:
            # A caller that finds it busy has cancelled it by now; the flag does not change any more.
            is_cancelled = self.is_cancelled
        guard = self.thread.guard
        guard.wait_for_cancellation()
        run_exit_callbacks()
        clean_thread(is_cancelled)
        guard.is_closed = False
        guard.attempt = None
        forget_loop_of_thread()  # which would keep the loop alive, and with it the pool
        self.pool.release(self.thread)


class ThreadLease(Executor):
    """Claim of one call to a thread, as a single-thread executor for asgiref.

    An `is_single` lease belongs to a plain function, which owns its thread until it returns.
    """

    # Class-level defaults, because most calls never set them, and each call creates a lease.
    is_closed: bool = False
    """True after the call has ended."""
    unbounded: bool = False
    """True if the lease may wait in the queue beyond its limit."""
    assignment: ThreadAssignment | None = None
    """Assignment of the current thread."""
    pool: ThreadPool | None = None
    """Pool of the threads; None before the first use."""
    _pending: "list[_ThreadJob] | None" = None
    _queue_wait: tuple[CallRecord, Wait] | None = None
    """Record of the call and its wait while the lease is in the queue."""
    _released_assignments: tuple[ThreadAssignment, ...] = ()
    """Assignments that ended with a wait; functions of the call may still run there."""
    _attempt: AttemptControl | None = None
    """Attempt of a task, whose end ends the writes of the call."""
    _manager_count: int = 0
    """Number of blocks whose context managers are entered on threads of the call."""

    def __init__(self, find_pool: Callable[[], ThreadPool], is_single: bool = False) -> None:
        self._find_pool = find_pool
        self._is_single = is_single

    @property
    def is_busy(self) -> bool:
        """True while jobs run or wait on the current thread."""
        assignment = self.assignment
        return assignment is not None and assignment.is_busy

    def get_connections(self) -> list[BaseDatabaseWrapper]:
        """Return the connections of the current thread, for inspection only."""
        assignment = self.assignment
        return [] if assignment is None else list(assignment.thread.guard.connections.values())

    def find_calling_thread(self) -> PoolThread | None:
        """Return the calling pool thread if it belongs to the call, else None."""
        assignment = self.find_calling_assignment()
        return None if assignment is None else assignment.thread

    def find_calling_assignment(self) -> ThreadAssignment | None:
        """Return the assignment of the calling pool thread if it belongs to the call, else None."""
        guard = getattr(thread_state, "guard", None)
        return next((assignment for assignment in self._iter_assignments() if assignment.thread.guard is guard), None)

    def _iter_assignments(self) -> Iterator[ThreadAssignment]:
        if self.assignment is not None:
            yield self.assignment
        yield from self._released_assignments

    def keep_threads(self) -> None:
        """Keep the threads of the call during waits, until `stop_keeping_threads`.

        Context managers are entered there. A thread that waits has no place in the pool.
        """
        self._manager_count += 1

    def stop_keeping_threads(self) -> None:
        """Release the threads that were kept, if no managers are entered any more."""
        self._manager_count -= 1
        if self._manager_count == 0:
            for assignment in self._released_assignments:
                assignment.queue_release()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Run `fn` on the call's thread.

        Raises:
            Overloaded: all threads are in use and the queue is full.
            RuntimeError: the lease is closed.
        """
        pool = self.pool
        if pool is None:
            pool = self.pool = self._find_pool()

        job = _ThreadJob(fn, args, kwargs)
        with pool.lock:
            if self.is_closed:
                raise RuntimeError(
                    "The call that started this task has ended; a task cannot use the thread of a finished call"
                )
            if self._is_single and (self.assignment is not None or self._pending is not None):
                # The thread may be waiting for this very job, which would be a deadlock.
                raise RuntimeError(
                    "A plain function waited for async code without asgiref's async_to_sync; use async_to_sync"
                )

            if self.assignment is not None:
                self.assignment.submit(job)
            elif self._pending is not None:
                self._pending.append(job)
            else:
                self._pending = [job]
                call = current_call()
                self._attempt = None if call is None else call.record.attempt
                try:
                    thread = pool.acquire(self)
                except BaseException:
                    self._pending = None
                    raise
                if thread is not None:
                    self.assign(thread)
                else:
                    self._mark_queued()
        return job.future

    def _mark_queued(self) -> None:
        """Record that the call waits for a thread."""
        call = current_call()
        if call is not None:
            self._queue_wait = call.record, call.record.start_wait(THREAD)

    def assign(self, thread: PoolThread) -> bool:
        """Use a thread; return False if no jobs are left. Call it with the pool's lock."""
        jobs = [job for job in self._pending or () if not job.future.cancelled()]
        self._pending = None
        if self._queue_wait is not None:
            record, wait = self._queue_wait
            record.end_wait(wait)
            self._queue_wait = None
        if not jobs or self.pool is None:
            return False
        assignment = self.assignment = ThreadAssignment(self.pool, thread)
        thread.guard.attempt = self._attempt
        thread.put(prepare_thread)
        for job in jobs:
            assignment.submit(job)
        return True

    def release_thread(self) -> None:
        """Release the thread during a wait; the next use leases another one.

        An idle thread with entered context managers is kept for the next use. Only its place in the pool is released.

        Raises:
            Overloaded: too many kept threads are waiting.
        """
        if self._is_single:
            return
        assignment = self.assignment
        if self._manager_count and assignment is not None and not assignment.is_busy:
            assignment.begin_wait()
        else:
            self.detach(cancel=False, cancel_at_end=True)

    def detach(self, *, cancel: bool, cancel_at_end: bool = False) -> None:
        """Detach the thread in the middle of a call; the next use leases another one.

        Running jobs are cancelled now, when the call ends, or never.
        """
        if self.pool is None:
            return
        with self.pool.lock:
            assignment = self.assignment
            self.assignment = None
            if assignment is not None and cancel:
                assignment.cancel()
            elif assignment is not None and cancel_at_end and assignment.is_busy:
                self._released_assignments = (*self._released_assignments, assignment)
                if self._manager_count:
                    return  # released when the managers on it are left
        if assignment is not None:
            assignment.queue_release()

    def close_on_thread(self) -> None:
        """Close the lease on its own thread, as the last action for the call.

        The thread is clean and free on return.
        """
        if self.pool is not None:
            with self.pool.lock:
                self.is_closed = True
                assignment = self.assignment
                self.assignment = None
            if assignment is not None:
                assignment.release()

    def close(self) -> None:
        """Close the lease at the end of the call.

        Queued jobs are dropped, running SQL is cancelled, and the thread returns to the pool when it is idle.
        """
        pool = self.pool
        if pool is None:
            self.is_closed = True
            return

        with pool.lock:
            self.is_closed = True
            jobs = self._pending
            self._pending = None
            if jobs is not None:
                pool.waiting.remove(self)
            assignment = self.assignment
            self.assignment = None
            released_assignments = self._released_assignments
            self._released_assignments = ()
            if pool.interrupts_sql:
                for unfinished in released_assignments if assignment is None else (*released_assignments, assignment):
                    if unfinished.is_busy:
                        unfinished.cancel()

        for job in jobs or ():
            job.future.cancel()
        for finished in released_assignments if assignment is None else (*released_assignments, assignment):
            finished.queue_release()


@dataclass(slots=True, eq=False, repr=False)
class _ThreadJob:
    """Function with the future of its result."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    future: "Future[Any]" = field(default_factory=Future)
    assignment: ThreadAssignment = field(init=False)

    def run(self) -> None:
        future, assignment = self.future, self.assignment
        if assignment.is_cancelled:
            future.cancel()
        if not future.set_running_or_notify_cancel():
            assignment.mark_done()
            return

        try:
            result = self.fn(*self.args, **self.kwargs)
        except BaseException as error:
            assignment.mark_done()
            # An error caused by cancellation is reported as such: the call of the waiting task has ended.
            future.set_exception(CancelledError() if assignment.is_cancelled else wrap_for_asyncio(error))
            # The traceback refers to this frame, which must not refer to the future that holds the traceback.
            del future, self
        else:
            assignment.mark_done()
            future.set_result(result)


def wrap_for_asyncio(error: BaseException) -> BaseException:
    """Return an exception that asyncio can raise in the waiting task.

    StopIteration would block that task forever. SystemExit and KeyboardInterrupt end the event loop; they come from the
    pool thread itself, because signals go to the main thread.
    """
    if isinstance(error, StopIteration | SystemExit | KeyboardInterrupt | GeneratorExit):
        replacement = RuntimeError(f"The function that was run raised {type(error).__name__}")
        replacement.__cause__ = error
        return replacement
    return error
