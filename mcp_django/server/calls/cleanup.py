"""Cleanup callbacks of sessions and of calls without a session: `ctx.add_cleanup`.

A session can end on any thread, and no caller waits for its callbacks. They run in a separate task, on the event loop
of the call that registered them.
"""

import asyncio
import contextvars
import logging
import threading
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from mcp_django.server.calls.callables import run
from mcp_django.server.ports import Executor

logger = logging.getLogger("mcp_django.server")

Loop = asyncio.AbstractEventLoop
PATIENCE = 5.0
"""Seconds after which a callback is cancelled."""


class _Farewell(NamedTuple):
    """A registered callback."""

    loop: Loop
    executor: Executor
    work: Callable[[], Any]
    name: str


class Farewells:
    """Cleanup callbacks of one session or call.

    They run in reverse order of registration. A failure is logged and does not prevent the other callbacks from
    running.
    """

    __slots__ = ("__weakref__", "_left", "_lock", "_over")

    def __init__(self) -> None:
        self._left: list[_Farewell] = []
        self._lock = threading.Lock()
        self._over = False

    def add(self, loop: Loop, executor: Executor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        """Register `fn` to run at the end, on `loop` if it is async, else on a thread.

        Thread-safe. Raises RuntimeError if the end has already been reached.
        """
        name = getattr(fn, "__qualname__", type(fn).__qualname__)
        with self._lock:
            if self._over:
                raise RuntimeError("The session or call has already ended; register cleanup callbacks earlier")
            self._left.append(_Farewell(loop, executor, partial(fn, *args, **kwargs), name))

    def say(self) -> None:
        """Schedule all callbacks on their event loops; return without waiting.

        Thread-safe. No callback can be registered afterwards.
        """
        with self._lock:
            left, self._left, self._over = self._left, [], True
        for loop in dict.fromkeys(farewell.loop for farewell in left):
            mine = [farewell for farewell in left if farewell.loop is loop]
            try:
                loop.call_soon_threadsafe(_begin, mine, context=contextvars.Context())
            except RuntimeError:  # the loop is closed
                logger.warning("Cleanup callbacks skipped, event loop closed: %s", ", ".join(one.name for one in mine))

    async def said(self) -> None:
        """Run the callbacks that were registered on the running loop, and wait for them."""
        loop = asyncio.get_running_loop()
        with self._lock:
            mine = [farewell for farewell in self._left if farewell.loop is loop]
            self._left = [farewell for farewell in self._left if farewell.loop is not loop]
        if mine:
            await asyncio.shield(_begin(mine))


_OPEN: weakref.WeakKeyDictionary[Loop, weakref.WeakSet[Farewells]] = weakref.WeakKeyDictionary()
"""Callback collections with entries for an event loop."""
_TASKS: set[asyncio.Task[None]] = set()
"""Strong references to running tasks; the event loop holds weak ones."""


def keep(farewells: Farewells, loop: Loop, at_end: Callable[[Callable[[], Awaitable[None]]], None]) -> None:
    """Run the callbacks at the latest when `loop` shuts down.

    `on_shutdown` registers a shutdown function of the loop.
    """
    loop.call_soon_threadsafe(_keep, farewells, at_end, context=contextvars.Context())


def _keep(farewells: Farewells, at_end: Callable[[Callable[[], Awaitable[None]]], None]) -> None:
    loop = asyncio.get_running_loop()
    if loop not in _OPEN:
        _OPEN[loop] = weakref.WeakSet()
        at_end(_say_all)
    _OPEN[loop].add(farewells)


async def _say_all() -> None:
    found = _OPEN.pop(asyncio.get_running_loop(), None)
    await asyncio.gather(*(farewells.said() for farewells in list(found or ())))


def _begin(farewells: list[_Farewell]) -> "asyncio.Task[None]":
    # Use a clean context: the context of the call refers to a thread that the call has released.
    task = asyncio.get_running_loop().create_task(_do(farewells), context=contextvars.Context())
    _TASKS.add(task)
    task.add_done_callback(_TASKS.discard)
    return task


async def _do(farewells: list[_Farewell]) -> None:
    for farewell in reversed(farewells):
        lease = farewell.executor.enter(patient=True)
        try:
            async with asyncio.timeout(PATIENCE):
                await run(farewell.work, farewell.executor)
        except TimeoutError:
            logger.exception("Cleanup callback timed out after %g s: %s", PATIENCE, farewell.name)
        except (Exception, SystemExit):
            logger.exception("Cleanup callback failed: %s", farewell.name)
        finally:
            lease.close()
