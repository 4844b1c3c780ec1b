"""Where the engine's blocking work runs: on lanes, or on the caller's own thread when the loop belongs to
`async_to_sync`.

That second, inline mode is what Django's tests, WSGI and management commands get: their code runs on one thread,
so the ORM sees their connection and their transaction.

What needs a lane waits in line for it; a line that is too long is `Overloaded` at once. An async handler that
never touches the ORM takes none.
"""

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import Token
from typing import Any, Final, TypeVar, cast

from asgiref.sync import AsyncToSync, SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import connections
from django.db.models import QuerySet

from mcp_django.runtime.threads import blocking_wait as parking
from mcp_django.runtime.threads.caller_thread import Visit
from mcp_django.runtime.threads.lease import Lease, presentable
from mcp_django.runtime.threads.pool import LanePool
from mcp_django.runtime.threads.transactions import CallTransaction

T = TypeVar("T")


class LaneExecutor:
    """Runs blocking work of many calls on at most `lanes` threads for each event loop.

    `queue` is how many calls may wait for a lane, `parked` how many plain functions for a client. The threads start
    when they are first needed, are called `name` with a number, and end with their loop. `interrupt` says whether SQL
    that runs on when its call is over is interrupted.
    """

    def __init__(
        self,
        *,
        lanes: int = 16,
        queue: int = 256,
        parked: int = 256,
        interrupt: bool = True,
        name: str = "mcp-lane",
    ) -> None:
        self.lanes, self.queue, self.parked, self.interrupt, self.name = lanes, queue, parked, interrupt, name
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LanePool] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def enter(self, *, patient: bool = False) -> "CallLease | BorrowedLease":
        """Make thread-sensitive work of the current context (the async ORM, `sync_to_async`) land on one lane.

        The lane is leased at the first use. `close` the result when the call is over, in the context that
        entered. A call inside a call shares the outer one's lane. What is `patient` is never Overloaded.
        """
        if is_inline() or _current() is not None:
            return _BORROWED
        lease = CallLease(self._pool)
        if patient:
            lease.patient = True
        return lease

    @contextlib.contextmanager
    def context(self) -> "Iterator[CallLease | BorrowedLease]":
        """`enter` and `close` around a block."""
        lease = self.enter()
        try:
            yield lease
        finally:
            lease.close()

    async def run(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Run the plain function `fn` on a lane, in a copy of the caller's context variables, and return its result;
        a queryset comes back as a list.

        Inside a call that has entered it is that call's lane. A caller that is cancelled is free at once; `fn`
        runs to its end. Raises what `fn` raises, and Overloaded at once when too many wait.
        """
        if self.interrupt and is_inline():
            visit = Visit()
            try:
                return cast(T, await _visit(visit, fn, args, kwargs))
            finally:
                visit.close()
        lease = _BORROWED if is_inline() or _current() is not None else CallLease(self._pool, single=True)
        try:
            return cast(T, await _hop(lease.finish, fn, args, kwargs))
        finally:
            lease.close()

    def rest(self) -> None:
        """Give the current call's lane back while it waits for somebody; its next thread-sensitive use leases
        another.

        A plain function keeps its thread, and says `parking` around the wait.
        """
        lease = _current()
        if lease is not None:
            lease.rest()

    def parking(self) -> AbstractContextManager[None]:
        """Around the wait of a plain function in its own thread: the thread stays, another may use its place among the
        lanes. Raises Overloaded when too many wait so. In a transaction it keeps both.
        """
        lease = _current()
        lane = None if lease is None or parking.current() is not None else lease.lane_here()
        if lease is None or lane is None or lease.pool is None or self.asking_is_unsafe():
            return contextlib.nullcontext()
        return parking.Parking(lease.pool, lane).wait()

    async def attend(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """As `run`. In a plain function that waits (`parking`) it runs on its thread, which takes part again for the
        time.
        """
        return await self.run(_attending, fn, args, kwargs)

    def atomic(self, databases: Sequence[str]) -> CallTransaction:
        """A transaction on each of `databases` around an `async with` block, and around all that the current call
        does with the ORM in it, in whatever tasks and plain functions.

        Raises RuntimeError outside of a call: without its lane there is nothing that holds the block together.
        """
        lease = None if is_inline() else _current()
        if lease is None and not is_inline():
            raise RuntimeError("atomic() is for the inside of a call; enter() it first")
        return CallTransaction(self.run, lease, databases)

    def asking_is_unsafe(self) -> bool:
        """Is the caller inside a transaction, which a question to a human would hold open?

        Asked in a handler's thread, it looks at that thread's connections; asked on the event loop, at those of
        the call's lane. The transaction that Django's TestCase wraps around a test does not count.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            opened = connections.all(initialized_only=True)
        else:
            lease = _current()
            opened = [] if lease is None else lease.connections()
        return any(
            not getattr(block, "_from_testcase", False)
            for connection in opened
            for block in tuple(connection.atomic_blocks)
        )

    def close(self, loop: asyncio.AbstractEventLoop | None = None, *, wait: float = 1.0) -> None:
        """End the lanes of a loop, or all of them: idle ones now, within `wait` seconds each, busy ones when their
        work is done.
        """
        with self._lock:
            loops = list(self._pools) if loop is None else [loop]
            pools = [self._pools.pop(loop) for loop in loops if loop in self._pools]
        for pool in pools:
            pool.close(wait)

    def _pool(self) -> LanePool:
        loop = asyncio.get_running_loop()
        with self._lock:
            pool = self._pools.get(loop)
            if pool is None:
                pool = self._pools[loop] = LanePool(
                    self.lanes, self.queue, parked=self.parked, interrupt=self.interrupt, name=self.name
                )
            return pool


class _CallContext(ThreadSensitiveContext):
    """asgiref's name for "this code shares one thread", with the lease behind it.

    It is installed by hand, because entering it the documented way costs four times as much: that also hides the
    executor of a surrounding `async_to_sync`, which a call in a context of its own never has, and elsewhere is
    the right one to use.
    """

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self.lease = lease

    def __bool__(self) -> bool:
        """asgiref asks this before it looks for the executor of the context. To be registered only then halves the
        price of a call that never gets there, which most do not.
        """
        executors = SyncToAsync.context_to_thread_executor
        if self not in executors:
            executors[self] = self.lease
        return True


class CallLease(Lease):
    """The lease of one call, which the call's context knows of until it is closed."""

    def __init__(self, find_pool: Callable[[], LanePool], single: bool = False) -> None:
        self._find_pool, self._single = find_pool, single
        context = _CallContext(self)
        self._token: Token[ThreadSensitiveContext] | None = _VARIABLE.set(context)

    def close(self) -> None:
        """The call is over: its lane goes back when the thread is idle."""
        super().close()
        token, self._token = self._token, None
        if token is not None:
            try:
                _VARIABLE.reset(token)
            except ValueError:
                pass  # closed by the garbage collector, in another context: ours is gone


class BorrowedLease:
    """The lease of what needs none: the thread is the caller's, or the surrounding call's."""

    __slots__ = ()

    def close(self) -> None:
        """Nothing to give back."""

    finish = close


_BORROWED: Final = BorrowedLease()
_VARIABLE: Final = SyncToAsync.thread_sensitive_context


def _current() -> Lease | None:
    context = _VARIABLE.get(None)
    if type(context) is not _CallContext or context.lease.closed:
        return None
    return context.lease


def is_inline() -> bool:
    """Does the running loop belong to `async_to_sync`, and end with what a caller's thread waits for?"""
    loops = AsyncToSync.loop_thread_executors
    return bool(loops) and asyncio.get_running_loop() in loops


def _work(finish: Callable[[], None], fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        value = fn(*args, **kwargs)
        # A queryset is read where it may be: on the event loop the ORM refuses it.
        return list(value) if isinstance(value, QuerySet) else value
    except (StopIteration, SystemExit, GeneratorExit) as problem:
        raise presentable(problem) from problem
    finally:
        finish()


def _attending(fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
    wait = parking.current()
    with contextlib.nullcontext() if wait is None else wait.interrupted():
        return fn(*args, **kwargs)


def _work_on_a_visit(visit: Visit, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    visit.begin()
    return _work(visit.end, fn, args, kwargs)


_hop = sync_to_async(_work, thread_sensitive=True)
_visit = sync_to_async(_work_on_a_visit, thread_sensitive=True)
