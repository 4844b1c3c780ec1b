"""What a server keeps open for as long as a process and its loop serve it.

Entered when the server starts, or before the first call, once per event loop; left by `leave()`, and when the loop is
closed: `asyncio.run` cancels what is left on its loop and waits for it. So under WSGI, where `async_to_sync` runs
every request on a loop of its own, a lifespan spans one request. Each entry is a task of its own: an async context
manager must be left by the task that entered it.
"""

import asyncio
import contextlib
import contextvars
import logging
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

logger = logging.getLogger("mcp_django.server")
Factory = Callable[[], AbstractAsyncContextManager[Any]]
LEAVING = 5.0
"""Seconds that the lifespans of a server may take to be left."""
STUBBORN = 1.0
"""Seconds after which one that does not even end when it is cancelled is left behind."""


class _Entry:
    def __init__(self) -> None:
        self.ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.state: Any = None
        self.own = False
        """Does the server serve calls of its own?"""
        self.guests = 0
        """How many servers it is mounted in have entered it."""


class Lifespans:
    """The lifespans of one server: its own, whose value handlers see as `ctx.lifespan`, and its toolsets'."""

    def __init__(self, own: Factory | None, others: Callable[[], list[Factory]]) -> None:
        self._own, self._others = own, others
        self._entries: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Entry] = weakref.WeakKeyDictionary()

    def state(self, loop: asyncio.AbstractEventLoop) -> Any:
        """What the server's own lifespan yielded on a loop; None without one. May be asked from any thread."""
        entry = self._entries.get(loop)
        return None if entry is None else entry.state

    def entered(self) -> bool:
        """Is there nothing to wait for before a call may run? The hot path asks this."""
        entry = self._entries.get(asyncio.get_running_loop())
        return entry is not None and entry.ready.done() and entry.ready.exception() is None

    async def enter(self) -> None:
        """Enter on this loop unless it is done. Raises what the lifespan raises; the next call tries again."""
        (await self._enter()).own = True

    @contextlib.asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """For the lifespan of another server, which this one is mounted in: entered with it, and left with the last
        that is there.
        """
        entry = await self._enter()
        entry.guests += 1
        try:
            yield
        finally:
            entry.guests -= 1
            if not entry.own and not entry.guests:
                await self._leave(entry)

    async def _enter(self) -> _Entry:
        loop = asyncio.get_running_loop()
        entry = self._entries.get(loop)
        if entry is None:
            entry = self._entries[loop] = _Entry()
            # In a clean context: that of the call that comes first names a lane which goes back when the call is over.
            entry.task = loop.create_task(self._hold(entry), context=contextvars.Context())
        try:
            await asyncio.shield(entry.ready)
        except Exception:
            if self._entries.get(loop) is entry:
                del self._entries[loop]
            raise
        return entry

    async def leave(self) -> None:
        """Leave on this loop and wait until that is done. Errors are logged, and what takes too long is given up:
        shutdown goes on.
        """
        entry = self._entries.get(asyncio.get_running_loop())
        if entry is not None:
            entry.own = False
            if not entry.guests:
                await self._leave(entry)

    async def _leave(self, entry: _Entry) -> None:
        loop = asyncio.get_running_loop()
        if self._entries.get(loop) is entry:
            del self._entries[loop]
        if entry.task is not None:
            entry.over.set()
            _, late = await asyncio.wait([entry.task], timeout=LEAVING + STUBBORN)
            if late:
                logger.error("A lifespan does not end although it is cancelled; it is left behind")

    async def _hold(self, entry: _Entry) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as bound, self._all() as state:
                entry.state = state
                entry.ready.set_result(None)
                await _wait(entry.over)
                bound.reschedule(loop.time() + LEAVING)
        except BaseException as problem:
            is_failure = isinstance(problem, Exception)
            if not entry.ready.done():
                # Whatever it was, nobody may wait for it for ever.
                text = f"{type(problem).__name__} left a lifespan while it was entered"
                entry.ready.set_exception(problem if isinstance(problem, Exception) else RuntimeError(text))
            elif is_failure and bound.expired():
                logger.error("A lifespan took longer than %g seconds to be left, and was cancelled", LEAVING)
            elif is_failure:
                logger.exception("A lifespan failed while it was left")
            if not is_failure:
                raise
        finally:
            # The entry knows the loop, so neither would ever be freed.
            if self._entries.get(loop) is entry:
                del self._entries[loop]

    @contextlib.asynccontextmanager
    async def _all(self) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            state = None if self._own is None else await stack.enter_async_context(self._own())
            for factory in self._others():
                await stack.enter_async_context(factory())
            yield state


async def _wait(over: asyncio.Event) -> None:
    """Until it is over, or until the loop is being closed, which is an end like any other: what is left now must not
    find itself cancelled.
    """
    try:
        await over.wait()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
