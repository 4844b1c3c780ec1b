"""Executor of blocking work, on pool threads or inline on the caller's thread.

Inline mode applies when the loop belongs to `async_to_sync`: in Django's tests, WSGI and management commands. Their
code runs on one thread, so the ORM uses their connection and their transaction.

Calls queue for a pool thread; a full queue raises `Overloaded` at once. An async handler that never uses the ORM needs
no thread.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import Token
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar, cast

from asgiref.sync import sync_to_async
from django.db import connections
from django.db.models import QuerySet

from mcp_django.aio.asgiref_internals import (
    ExecutorContext,
    find_executor_context,
    is_async_to_sync_loop,
    reset_executor_context,
    set_executor_context,
)
from mcp_django.aio.loop_local import LoopLocal, find_running_loop
from mcp_django.aio.tasks import start_task
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.threads import blocking_wait, context_managers
from mcp_django.runtime.threads.caller_thread import CallerThread
from mcp_django.runtime.threads.lease import ThreadLease, wrap_for_asyncio
from mcp_django.runtime.threads.pool import ThreadPool
from mcp_django.runtime.threads.transactions import CallTransaction
from mcp_django.server.ports import Executor

logger = get_logger("mcp_django.threads")
T = TypeVar("T")


class ThreadUsage(NamedTuple):
    """Use of the threads of a process."""

    busy: int
    """Threads that run code."""
    queued: int
    """Calls that wait for a thread."""
    blocked: int
    """Threads that wait for clients."""


@dataclass(kw_only=True, eq=False, repr=False)
class LeasingExecutor:
    """Executor of blocking work with a thread pool per event loop.

    Each pool has at most `max_threads` threads. At most `max_queued` calls wait for a thread, and at most `max_blocked`
    functions wait for a client. Threads start on demand, are named `name` with a number, and end with their loop.
    `interrupts_sql` enables the cancellation of SQL that outlasts its call.
    """

    max_threads: int = 16
    max_queued: int = 256
    max_blocked: int = 256
    interrupts_sql: bool = True
    name: str = "mcp-thread"

    def __post_init__(self) -> None:
        self._pools = LoopLocal(self._create_pool)

    def acquire_lease(self, *, unbounded: bool = False) -> "CallLease | NullLease":
        """Acquire a lease, which runs thread-sensitive work of the context on one thread.

        Such work is the async ORM and `sync_to_async`. The thread is leased at the first use. Close the lease when the
        call ends, in the same context. A nested call shares the lease of the outer call. An `unbounded` lease never
        raises Overloaded.
        """
        if is_async_to_sync_loop() or _get_current_lease() is not None:
            return _NULL_LEASE
        lease = CallLease(self._pools.get)
        if unbounded:
            lease.unbounded = True
        return lease

    def context(self, *, unbounded: bool = False) -> "contextlib.closing[CallLease | NullLease]":
        """Acquire a lease for a `with` block and close it afterwards."""
        return contextlib.closing(self.acquire_lease(unbounded=unbounded))

    async def run(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Run a plain function on a thread and return its result.

        The function receives a copy of the context variables. A queryset is returned as a list. Inside a call with a
        lease, the function runs on that call's thread. A cancelled caller continues at once, and `fn` runs to its end.
        Exceptions of `fn` are raised.

        Raises:
            Overloaded: the queue is full.
        """
        if self.interrupts_sql and is_async_to_sync_loop():
            caller_thread = CallerThread()
            try:
                return cast(T, await _run_on_calling_thread(caller_thread, fn, args, kwargs))
            finally:
                caller_thread.close()

        lease = (
            _NULL_LEASE
            if is_async_to_sync_loop() or _get_current_lease() is not None
            else CallLease(self._pools.get, is_single=True)
        )
        try:
            return cast(T, await _run_on_leased_thread(lease.close_on_thread, fn, args, kwargs))
        finally:
            lease.close()

    def release_thread(self) -> None:
        """Release the current call's thread during a wait; the next use leases another.

        A plain function keeps its thread and uses `blocking_wait` instead.
        """
        lease = _get_current_lease()
        if lease is not None:
            lease.release_thread()

    def blocking_wait(self) -> AbstractContextManager[None]:
        """Mark a blocking wait of a plain function, whose place in the pool becomes free.

        The thread itself is kept. Inside a transaction the place is kept, too.

        Raises:
            Overloaded: too many threads are waiting.
        """
        lease = _get_current_lease()
        thread = None if lease is None or blocking_wait.get_current_wait() is not None else lease.find_calling_thread()
        if lease is None or thread is None or lease.pool is None or self.is_in_transaction():
            return contextlib.nullcontext()
        return blocking_wait.BlockingWait(lease.pool, thread).wait()

    async def run_during_wait(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Run a function as `run` does, on the thread of a plain function in a wait.

        The thread takes a place in the pool for that time.
        """
        return await self.run(_run_in_resumed_wait, fn, args, kwargs)

    def atomic(self, databases: Sequence[str]) -> CallTransaction:
        """Return an `async with` transaction of the call on each database.

        It covers all ORM work of the call inside the block, in any task and plain function.

        Raises:
            RuntimeError: outside of a call, because the block would have no single thread.
        """
        lease = None if is_async_to_sync_loop() else _get_current_lease()
        if lease is None and not is_async_to_sync_loop():
            raise RuntimeError("atomic() was used outside of a call; acquire a lease first")
        return CallTransaction(self.run, lease, databases)

    async def run_within(
        self, factories: Sequence[context_managers.ManagerFactory], run: Callable[[], Awaitable[T]]
    ) -> T:
        """Await `run` inside plain context managers, entered and left on the thread of the call."""
        lease = None if is_async_to_sync_loop() else _get_current_lease()
        return await context_managers.run_within(self.run, lease, factories, run)

    def is_in_transaction(self) -> bool:
        """Return True if the caller is in a transaction.

        A request to a user would hold it open. In a handler's thread it checks the connections of that thread; on the
        event loop, those of the call's thread. The transaction that Django's TestCase wraps around a test does not
        count.
        """
        if find_running_loop() is None:
            open_connections = connections.all(initialized_only=True)
        else:
            lease = _get_current_lease()
            open_connections = [] if lease is None else lease.get_connections()

        return any(
            not getattr(block, "_from_testcase", False)
            for connection in open_connections
            for block in tuple(connection.atomic_blocks)
        )

    def get_usage(self) -> ThreadUsage:
        """Return the use of the threads of all loops. Thread-safe, for display only."""
        pools = [pool for _, pool in self._pools.items()]
        return ThreadUsage(
            busy=sum(len(pool.busy) for pool in pools),
            queued=sum(len(pool.waiting) for pool in pools),
            blocked=sum(len(pool.blocked) for pool in pools),
        )

    def close(self, loop: asyncio.AbstractEventLoop | None = None, *, timeout: float = 1.0) -> None:
        """Stop the threads of a loop, or of all loops.

        Idle threads are stopped now, within `timeout` seconds each, busy ones after their work.
        """
        loops = [loop for loop, _ in self._pools.items()] if loop is None else [loop]
        pools = [self._pools.pop(loop) for loop in loops]
        for pool in pools:
            if pool is not None:
                pool.close(timeout)

    def _create_pool(self) -> ThreadPool:
        return ThreadPool(self.max_threads, self.max_queued, self.max_blocked, self.interrupts_sql, self.name)


async def run_on_own_thread(executor: Executor, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Run a function on a separate pool thread and database connection.

    It ignores the queue limit, never uses the thread of the current call, and completes even if the caller is
    cancelled.
    """

    async def run() -> T:
        with executor.context(unbounded=True):
            return await executor.run(fn, *args, **kwargs)

    task = start_task(run())
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_log_failure)
        raise


def _log_failure(task: "asyncio.Task[Any]") -> None:
    """Log the failure of a function whose caller was cancelled."""
    if not task.cancelled() and (problem := task.exception()) is not None:
        logger.warning("A function failed after the cancellation of its caller: %r", problem)


class CallLease(ThreadLease):
    """Lease of one call, referenced by the call's context until it is closed."""

    def __init__(self, find_pool: Callable[[], ThreadPool], is_single: bool = False) -> None:
        self._find_pool = find_pool
        self._is_single = is_single
        self._token: Token[Any] | None = set_executor_context(ExecutorContext(self))

    def close(self) -> None:
        """Close the lease; the thread returns to the pool when it is idle."""
        super().close()
        token = self._token
        self._token = None
        if token is not None:
            try:
                reset_executor_context(token)
            except ValueError:
                pass  # closed by the garbage collector in another context; the variable's context is gone


class NullLease:
    """Lease without a thread: for the caller's thread, or inside another call."""

    __slots__ = ()

    def close(self) -> None:
        """Release nothing, because no thread was leased."""

    close_on_thread = close


_NULL_LEASE: Final = NullLease()


def _get_current_lease() -> ThreadLease | None:
    context = find_executor_context()
    if context is None:
        return None
    lease = cast(ThreadLease, context.executor)
    return None if lease.is_closed else lease


def _run_function(
    finish: Callable[[], None], fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    try:
        value = fn(*args, **kwargs)
        # Evaluate the queryset here: the ORM rejects it on the event loop.
        return list(value) if isinstance(value, QuerySet) else value
    except (StopIteration, SystemExit, GeneratorExit) as problem:
        raise wrap_for_asyncio(problem) from problem
    finally:
        finish()


def _run_in_resumed_wait(fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
    wait = blocking_wait.get_current_wait()
    with contextlib.nullcontext() if wait is None else wait.suspend():
        return fn(*args, **kwargs)


def _run_on_caller_thread(
    caller_thread: CallerThread, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    caller_thread.enter()
    return _run_function(caller_thread.exit, fn, args, kwargs)


_run_on_leased_thread = sync_to_async(_run_function, thread_sensitive=True)
_run_on_calling_thread = sync_to_async(_run_on_caller_thread, thread_sensitive=True)
