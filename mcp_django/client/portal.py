"""One event loop in a thread of its own, for callers that have none: one in each process, made at its first use.

A process that was forked makes its own. At the end of the process what is connected there is closed.
"""

import asyncio
import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Coroutine
from contextvars import ContextVar, copy_context
from typing import Any, Protocol, TypeVar

from asgiref.sync import SyncToAsync

T = TypeVar("T")

CLOSING = 5.0
"""Seconds at the end of the process to close what is connected."""


class Closeable(Protocol):
    """What is closed at the end of the process."""

    async def close(self) -> None: ...


class Portal:
    """The loop of this process."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="mcp-client", daemon=True)
        self._thread.start()
        self._open: weakref.WeakSet[Closeable] = weakref.WeakSet()
        atexit.register(self._stop)

    def close_at_exit(self, client: Closeable) -> None:
        """Close this one at the end of the process."""
        self._open.add(client)

    def _stop(self) -> None:
        if os.getpid() != _owner.pid or not self._thread.is_alive():
            return
        clients = list(self._open)

        async def close() -> None:
            await asyncio.gather(*(client.close() for client in clients), return_exceptions=True)

        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(close(), self.loop).result(CLOSING)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(CLOSING)
        if not self._thread.is_alive():
            self.loop.close()


class _Owner:
    """The portal of the process, and which process that is."""

    def __init__(self) -> None:
        self.pid, self.lock = os.getpid(), threading.Lock()
        self.portal: Portal | None = None
        self.inherited: list[Portal | None] = []
        """Those of processes that this one was forked from: their sockets are not ours, so they are not collected."""

    def forked(self) -> None:
        self.inherited.append(self.portal)
        self.pid, self.lock, self.portal = os.getpid(), threading.Lock(), None


_owner = _Owner()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_owner.forked)


def portal() -> Portal:
    """The one of this process."""
    with _owner.lock:
        if _owner.portal is None:
            _owner.portal = Portal()
        return _owner.portal


def run(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Run a coroutine on a loop of another thread, and wait for its result.

    Raises:
        RuntimeError: on a thread whose own loop is running, which would stand still meanwhile.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        work.close()
        raise RuntimeError("A blocking client cannot be used where an event loop runs; await the methods of its Client")
    # All of the caller's context but its thread, which waits here: what asks for that thread, as the ORM does, would
    # wait for it, and it for the answer.
    context = copy_context()
    threads: ContextVar[Any] = SyncToAsync.thread_sensitive_context
    context.run(threads.set, None)
    future = context.run(asyncio.run_coroutine_threadsafe, work, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()  # KeyboardInterrupt and the like; what is done already stays as it is
        raise
