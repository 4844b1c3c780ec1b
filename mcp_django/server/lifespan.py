"""Lifespans: resources that a server keeps open on an event loop.

A lifespan is entered once per event loop: when the server starts, or before the first call. It exits with `exit()`, or
when the loop closes: `asyncio.run` cancels the remaining tasks of its loop and waits for them. Under WSGI,
`async_to_sync` runs each request on a new loop, so a lifespan spans one request.

Each entry is a separate task, because the task that entered an async context manager must also exit it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from mcp_django.aio.loop_local import LoopLocal
from mcp_django.aio.tasks import start_task
from mcp_django.protocol.log_text import get_logger

logger = get_logger("mcp_django.server")
ContextManagerFactory = Callable[[], AbstractAsyncContextManager[object]]
EXIT_TIMEOUT_SECONDS = 5.0
"""Seconds within which the lifespans of a server must exit."""
CANCEL_TIMEOUT_SECONDS = 1.0
"""Seconds to wait for a cancelled lifespan. After them it is abandoned."""


class _LoopEntry:
    def __init__(self) -> None:
        self.ready: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.exit_requested = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.state: object = None
        self.is_serving = False
        """True if the server handles calls itself."""
        self.host_count = 0
        """Number of host servers that have entered it."""


class Lifespans:
    """The lifespans of one server: its own and those of its toolsets.

    Handlers read the value of the server's own lifespan as `ctx.lifespan`.
    """

    def __init__(
        self, server_factory: ContextManagerFactory | None, inner_factories: Callable[[], list[ContextManagerFactory]]
    ) -> None:
        self._server_factory = server_factory
        self._inner_factories = inner_factories
        self._entries = LoopLocal(_LoopEntry)

    def get_state(self, loop: asyncio.AbstractEventLoop) -> Any:
        """Return the value that the server's own lifespan yielded on a loop, or None.

        Thread-safe.
        """
        entry = self._entries.find(loop)
        return None if entry is None else entry.state

    def is_entered(self) -> bool:
        """Return True if a call may run without waiting for the lifespan.

        Called on the hot path.
        """
        entry = self._entries.find()
        return entry is not None and entry.ready.done() and entry.ready.exception() is None

    async def enter(self) -> None:
        """Enter the lifespan on the running loop, unless it is entered.

        Raises the errors of the lifespan; the next call tries again.
        """
        (await self._enter()).is_serving = True

    @contextlib.asynccontextmanager
    async def enter_shared(self) -> AsyncIterator[None]:
        """Enter the lifespan for a server that this one is mounted in.

        It exits when no host and no call of its own needs it.
        """
        entry = await self._enter()
        entry.host_count += 1
        try:
            yield
        finally:
            entry.host_count -= 1
            if not entry.is_serving and not entry.host_count:
                await self._exit(entry)

    async def _enter(self) -> _LoopEntry:
        entry = self._entries.get()
        if entry.task is None:
            # A clean context: the context of the first call refers to a thread that is released when the call ends.
            entry.task = start_task(self._run_entry(entry))
        try:
            await asyncio.shield(entry.ready)
        except Exception:
            self._entries.discard(entry)
            raise
        return entry

    async def exit(self) -> None:
        """Exit the lifespan on the running loop and wait for it.

        Errors are logged and a timeout abandons the lifespan, so that shutdown continues.
        """
        entry = self._entries.find()
        if entry is not None:
            entry.is_serving = False
            if not entry.host_count:
                await self._exit(entry)

    async def _exit(self, entry: _LoopEntry) -> None:
        self._entries.discard(entry)
        if entry.task is not None:
            entry.exit_requested.set()
            _, late = await asyncio.wait([entry.task], timeout=EXIT_TIMEOUT_SECONDS + CANCEL_TIMEOUT_SECONDS)
            if late:
                logger.error("Lifespan abandoned: it did not exit after its cancellation")

    async def _run_entry(self, entry: _LoopEntry) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as exit_timeout, self._enter_all() as state:
                entry.state = state
                entry.ready.set_result(None)
                await _wait_for_exit(entry.exit_requested)
                exit_timeout.reschedule(loop.time() + EXIT_TIMEOUT_SECONDS)

        except BaseException as problem:
            is_failure = isinstance(problem, Exception)
            if not entry.ready.done():
                # Every outcome must resolve the future, because callers wait for it.
                text = f"Entering the lifespan raised {type(problem).__name__}"
                entry.ready.set_exception(problem if isinstance(problem, Exception) else RuntimeError(text))
            elif is_failure and exit_timeout.expired():
                logger.error("Lifespan cancelled: its exit took longer than %g seconds", EXIT_TIMEOUT_SECONDS)
            elif is_failure:
                logger.exception("Lifespan failed during its exit")
            if not is_failure:
                raise
        finally:
            # The entry refers to the loop, so a remaining entry would keep both alive. The loop may have ended already,
            # when a task that was never resumed is collected.
            self._entries.discard(entry, loop)

    @contextlib.asynccontextmanager
    async def _enter_all(self) -> AsyncIterator[object]:
        async with AsyncExitStack() as stack:
            state = None if self._server_factory is None else await stack.enter_async_context(self._server_factory())
            for factory in self._inner_factories():
                await stack.enter_async_context(factory())
            yield state


async def _wait_for_exit(exit_requested: asyncio.Event) -> None:
    """Wait for the request to exit.

    Closing the loop counts as a request. The cancellation is then revoked, so that the exit itself is not cancelled.
    """
    try:
        await exit_requested.wait()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
