"""What a server keeps open for as long as a process and its loop serve it.

Entered before the first call, once per event loop, and left by `leave()`. Each entry is a task of its own: an async
context manager must be left by the task that entered it.
"""

import asyncio
import contextlib
import logging
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

logger = logging.getLogger("mcp_django.server")
Factory = Callable[[], AbstractAsyncContextManager[Any]]


class _Entry:
    def __init__(self) -> None:
        self.ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.state: Any = None


class Lifespans:
    """The lifespans of one server: its own, whose value handlers see as `ctx.lifespan`, and its toolsets'."""

    def __init__(self, own: Factory | None, others: Callable[[], list[Factory]]) -> None:
        self._own, self._others = own, others
        self._entries: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Entry] = weakref.WeakKeyDictionary()

    @property
    def state(self) -> Any:
        """What the server's own lifespan yielded on this loop; None without one."""
        entry = self._entries.get(asyncio.get_running_loop())
        return None if entry is None else entry.state

    def entered(self) -> bool:
        """Is there nothing to wait for before a call may run? The hot path asks this."""
        entry = self._entries.get(asyncio.get_running_loop())
        return entry is not None and entry.ready.done() and entry.ready.exception() is None

    async def enter(self) -> None:
        """Enter on this loop unless it is done. Raises what the lifespan raises; the next call tries again."""
        loop = asyncio.get_running_loop()
        entry = self._entries.get(loop)
        if entry is None:
            entry = self._entries[loop] = _Entry()
            entry.task = loop.create_task(self._hold(entry))
        try:
            await asyncio.shield(entry.ready)
        except Exception:
            if self._entries.get(loop) is entry:
                del self._entries[loop]
            raise

    async def leave(self) -> None:
        """Leave on this loop and wait until that is done. Errors are logged: shutdown goes on."""
        entry = self._entries.pop(asyncio.get_running_loop(), None)
        if entry is not None and entry.task is not None:
            entry.over.set()
            await asyncio.wait([entry.task])

    async def _hold(self, entry: _Entry) -> None:
        try:
            async with self._all() as state:
                entry.state = state
                entry.ready.set_result(None)
                await entry.over.wait()
        except Exception as problem:
            if entry.ready.done():
                logger.exception("A lifespan failed while it was left")
            else:
                entry.ready.set_exception(problem)

    @contextlib.asynccontextmanager
    async def _all(self) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            state = None if self._own is None else await stack.enter_async_context(self._own())
            for factory in self._others():
                await stack.enter_async_context(factory())
            yield state
