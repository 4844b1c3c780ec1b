"""Tasks and timers in a clean context, which outlive their caller, and waits with a timeout.

The context of a caller may refer to a thread that returns to its pool, or to the call that a log record belongs to.
"""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def start_task(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task in a clean context.

    The caller keeps a reference to it, because the loop keeps a weak one only.
    """
    return asyncio.get_running_loop().create_task(coroutine, context=contextvars.Context())


def start_timer(delay: float, callback: Callable[[*Ts], object], *args: *Ts) -> asyncio.TimerHandle:
    """Call a function after `delay` seconds, in a clean context."""
    return asyncio.get_running_loop().call_later(delay, callback, *args, context=contextvars.Context())


def call_threadsafe(loop: asyncio.AbstractEventLoop, callback: Callable[[*Ts], object], *args: *Ts) -> bool:
    """Call a function soon on a loop, in a clean context; return False if the loop is closed. Thread-safe."""
    try:
        loop.call_soon_threadsafe(callback, *args, context=contextvars.Context())
    except RuntimeError:
        return False
    return True


async def wait_for_event(event: asyncio.Event, timeout: float) -> bool:
    """Wait until an event is set; return False after `timeout` seconds."""
    try:
        async with asyncio.timeout(timeout):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def wait_for_wake(
    waiters: list[asyncio.Future[None]], timeout: float, on_timeout: Callable[[*Ts], object], *args: *Ts
) -> None:
    """Join the waiters until `wake_all`; call a function after `timeout` seconds.

    The timeout does not end the wait: the function wakes the waiters, if it should.
    """
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    waiters.append(waiter)
    timer = loop.call_later(timeout, on_timeout, *args)
    try:
        await waiter
    finally:
        timer.cancel()


def wake_all(waiters: list[asyncio.Future[None]]) -> None:
    """Wake the waiters and clear the list."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()


class BackgroundTasks:
    """Running tasks of one owner, which holds strong references to them."""

    __slots__ = ("_on_error", "_tasks")

    def __init__(self, on_error: Callable[[BaseException], object] | None = None) -> None:
        """Create an empty collection; `on_error` is called with the exceptions of tasks.

        Without it, asyncio logs them.
        """
        self._tasks: set[asyncio.Task[Any]] = set()
        self._on_error = on_error

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(tuple(self._tasks))

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task in a clean context."""
        return self.spawn_in(contextvars.Context(), coroutine)

    def spawn_in(self, context: contextvars.Context | None, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task in a context, by default a copy of the caller's."""
        task = asyncio.get_running_loop().create_task(coroutine, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def cancel(self) -> None:
        """Request the cancellation of all tasks, without waiting for their end."""
        for task in self:
            task.cancel()

    async def wait(self) -> None:
        """Wait until the tasks that run now have ended. Their exceptions are not raised."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if self._on_error is not None and not task.cancelled():
            error = task.exception()
            if error is not None:
                self._on_error(error)


_tasks = BackgroundTasks()


def run_in_background(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in a background task of the process, in a clean context."""
    _tasks.spawn(coroutine)
