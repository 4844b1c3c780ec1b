"""Background event loop for blocking callers, in one thread per process.

A forked process starts its own loop. Connected clients are closed at the end of the process.
"""

import asyncio
import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any, Protocol, TypeVar

from mcp_django.aio.asgiref_internals import clear_executor
from mcp_django.aio.loop_local import find_running_loop

T = TypeVar("T")

CLOSE_TIMEOUT_SECONDS = 5.0
"""Seconds to close all clients at the end of the process."""


class ClosableClient(Protocol):
    """An object that is closed at the end of the process."""

    async def close(self) -> None: ...


class Portal:
    """The event loop of this process and its thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="mcp-client", daemon=True)
        self._thread.start()
        self._open: weakref.WeakSet[ClosableClient] = weakref.WeakSet()
        atexit.register(self._stop)

    def close_at_exit(self, client: ClosableClient) -> None:
        """Register a client to be closed at the end of the process."""
        self._open.add(client)

    def _stop(self) -> None:
        if os.getpid() != _holder.pid or not self._thread.is_alive():
            return
        clients = list(self._open)

        async def close() -> None:
            await asyncio.gather(*(client.close() for client in clients), return_exceptions=True)

        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(close(), self.loop).result(CLOSE_TIMEOUT_SECONDS)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(CLOSE_TIMEOUT_SECONDS)
        if not self._thread.is_alive():
            self.loop.close()


class _PortalHolder:
    """The portal of the process, and the id of that process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.portal: Portal | None = None
        self.inherited_portals: list[Portal | None] = []
        """Portals of parent processes, kept alive because the parent owns their sockets."""

    def reset_after_fork(self) -> None:
        self.inherited_portals.append(self.portal)
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.portal = None


_holder = _PortalHolder()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_holder.reset_after_fork)


def get_portal() -> Portal:
    """Return the portal of this process, started if needed."""
    with _holder.lock:
        if _holder.portal is None:
            _holder.portal = Portal()
        return _holder.portal


def run_for_client(
    coroutine: Coroutine[Any, Any, T], client: ClosableClient, loop: asyncio.AbstractEventLoop | None = None
) -> T:
    """Run a coroutine of a client on another thread's loop and wait for it.

    Unless `loop` is running, this is the loop of the process, which closes the client at its end.

    Raises:
        RuntimeError: The calling thread has a running event loop, which the wait would block.
    """
    if find_running_loop() is not None:
        coroutine.close()
        raise RuntimeError(
            "A blocking client cannot be used in a thread with a running event loop; await the methods of its Client"
        )
    if loop is None or not loop.is_running():
        portal = get_portal()
        portal.close_at_exit(client)
        loop = portal.loop

    # Copy the caller's context except its thread-sensitive thread, which blocks here. The coroutine would deadlock on
    # it, for example in ORM calls.
    context = copy_context()
    clear_executor(context)
    future = context.run(asyncio.run_coroutine_threadsafe, coroutine, loop)

    try:
        return future.result()
    except BaseException:
        future.cancel()  # KeyboardInterrupt and the like; completed work is kept
        raise
