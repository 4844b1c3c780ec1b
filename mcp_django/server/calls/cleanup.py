"""Cleanup callbacks of sessions and of calls without a session: `ctx.add_cleanup`.

A session can end on any thread, and no caller waits for its callbacks. They run in a separate task, on the event loop
of the call that registered them.
"""

import asyncio
import contextvars
import threading
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from mcp_django.aio.loop_local import LoopLocal
from mcp_django.aio.tasks import BackgroundTasks, call_threadsafe
from mcp_django.protocol.log_text import get_logger
from mcp_django.server.callables import run_callable
from mcp_django.server.ports import Executor

logger = get_logger("mcp_django.server")

Loop = asyncio.AbstractEventLoop
CLEANUP_TIMEOUT_SECONDS = 5.0
"""Seconds after which a callback is cancelled."""


class _CleanupCallback(NamedTuple):
    """A registered callback."""

    loop: Loop
    executor: Executor
    function: Callable[[], object]
    name: str


class CleanupCallbacks:
    """Cleanup callbacks of one session or call.

    They run in reverse order of registration. A failure is logged and does not prevent the other callbacks from
    running.
    """

    __slots__ = ("__weakref__", "_callbacks", "_closed", "_lock")

    def __init__(self) -> None:
        self._callbacks: list[_CleanupCallback] = []
        self._lock = threading.Lock()
        self._closed = False

    def add(
        self, loop: Loop, executor: Executor, fn: Callable[..., object], /, *args: object, **kwargs: object
    ) -> None:
        """Register `fn` to run at the end, on `loop` if it is async, else on a thread.

        Thread-safe. Raises RuntimeError if the end has already been reached.
        """
        name = getattr(fn, "__qualname__", type(fn).__qualname__)
        with self._lock:
            if self._closed:
                raise RuntimeError("The session or call has already ended; register cleanup callbacks earlier")
            self._callbacks.append(_CleanupCallback(loop, executor, partial(fn, *args, **kwargs), name))

    def schedule(self) -> None:
        """Schedule all callbacks on their event loops; return without waiting.

        Thread-safe. No callback can be registered afterwards.
        """
        with self._lock:
            callbacks = self._callbacks
            self._callbacks = []
            self._closed = True
        for loop in dict.fromkeys(callback.loop for callback in callbacks):
            callbacks_of_loop = [callback for callback in callbacks if callback.loop is loop]
            if not call_threadsafe(loop, _start, callbacks_of_loop):
                names = ", ".join(entry.name for entry in callbacks_of_loop)
                logger.warning("Cleanup callbacks skipped, event loop closed: %s", names)

    async def run(self) -> None:
        """Run the callbacks that were registered on the running loop, and wait for them."""
        loop = asyncio.get_running_loop()
        with self._lock:
            callbacks = [callback for callback in self._callbacks if callback.loop is loop]
            self._callbacks = [callback for callback in self._callbacks if callback.loop is not loop]
        if callbacks:
            await asyncio.shield(_start(callbacks))


_REGISTERED_CALLBACKS: LoopLocal[weakref.WeakSet[CleanupCallbacks]] = LoopLocal(weakref.WeakSet)
"""Callback collections with entries for an event loop."""
_tasks = BackgroundTasks()


def register_for_shutdown(
    callbacks: CleanupCallbacks, loop: Loop, on_shutdown: Callable[[Callable[[], Awaitable[None]]], None]
) -> None:
    """Run the callbacks at the latest when `loop` shuts down.

    `on_shutdown` registers a shutdown function of the loop.
    """
    loop.call_soon_threadsafe(_register, callbacks, on_shutdown, context=contextvars.Context())


def _register(callbacks: CleanupCallbacks, on_shutdown: Callable[[Callable[[], Awaitable[None]]], None]) -> None:
    if _REGISTERED_CALLBACKS.find() is None:
        on_shutdown(_run_all)
    _REGISTERED_CALLBACKS.get().add(callbacks)


async def _run_all() -> None:
    registered = _REGISTERED_CALLBACKS.pop() or ()
    await asyncio.gather(*(callbacks.run() for callbacks in list(registered)))


def _start(callbacks: list[_CleanupCallback]) -> "asyncio.Task[None]":
    # Use a clean context: the context of the call refers to a thread that the call has released.
    return _tasks.spawn(_run_callbacks(callbacks))


async def _run_callbacks(callbacks: list[_CleanupCallback]) -> None:
    for callback in callbacks[::-1]:
        with callback.executor.context(unbounded=True):
            try:
                async with asyncio.timeout(CLEANUP_TIMEOUT_SECONDS):
                    await run_callable(callback.function, callback.executor)
            except TimeoutError:
                logger.exception("Cleanup callback timed out after %g s: %s", CLEANUP_TIMEOUT_SECONDS, callback.name)
            except (Exception, SystemExit):
                logger.exception("Cleanup callback failed: %s", callback.name)
