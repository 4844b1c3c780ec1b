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
from collections.abc import Callable, Iterator
from contextvars import Token
from typing import Any, Final, TypeVar, cast

from asgiref.sync import AsyncToSync, SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import connections
from django.db.models import QuerySet

from .lanes import LanePool, Lease, presentable

T = TypeVar("T")


class LaneExecutor:
    """Runs blocking work of many calls on at most `lanes` threads for each event loop.

    `queue` is how many calls may wait for a lane. The threads start when they are first needed and end with their
    loop.
    """

    def __init__(self, *, lanes: int = 16, queue: int = 256) -> None:
        self.lanes, self.queue = lanes, queue
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LanePool] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def enter(self) -> "CallLease | BorrowedLease":
        """Make thread-sensitive work of the current context (the async ORM, `sync_to_async`) land on one lane.

        The lane is leased at the first use. `close` the result when the call is over, in the context that
        entered. A call inside a call shares the outer one's lane.
        """
        if _is_inline() or _current() is not None:
            return _BORROWED
        return CallLease(self._pool)

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
        lease = _BORROWED if _is_inline() or _current() is not None else CallLease(self._pool, single=True)
        try:
            return cast(T, await _hop(lease.finish, fn, args, kwargs))
        finally:
            lease.close()

    def rest(self) -> None:
        """Give the current call's lane back while it waits for somebody; its next thread-sensitive use leases
        another.

        A plain function keeps its thread: there is nothing to come back to.
        """
        lease = _current()
        if lease is not None:
            lease.rest()

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
            opened = [] if lease is None or lease.lane is None else list(lease.lane.connections.values())
        return any(
            not getattr(block, "_from_testcase", False)
            for connection in opened
            for block in tuple(connection.atomic_blocks)
        )

    def close(self, *, wait: float = 1.0) -> None:
        """End all lanes: idle ones now, within `wait` seconds each, busy ones when their work is done."""
        with self._lock:
            pools = list(self._pools.values())
            self._pools.clear()
        for pool in pools:
            pool.close(wait)

    def _pool(self) -> LanePool:
        loop = asyncio.get_running_loop()
        with self._lock:
            pool = self._pools.get(loop)
            if pool is None:
                pool = self._pools[loop] = LanePool(self.lanes, self.queue)
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


def _is_inline() -> bool:
    loops = AsyncToSync.loop_thread_executors
    return bool(loops) and asyncio.get_running_loop() in loops


def _work(finish: Callable[[], None], fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        value = fn(*args, **kwargs)
        # A queryset is read where it may be: on the event loop the ORM refuses it.
        return list(value) if isinstance(value, QuerySet) else value
    except (StopIteration, SystemExit) as problem:
        raise presentable(problem) from problem
    finally:
        finish()


_hop = sync_to_async(_work, thread_sensitive=True)
