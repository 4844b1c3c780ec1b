"""What is to be done when a session is over in this process, or a call without one: `ctx.at_end`.

The end of a session is heard on any thread, and has nobody who waits: what is left for it runs in a task of its own, on
the loop of the call that left it.
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
"""Seconds that each has."""


class _Farewell(NamedTuple):
    """One thing to do."""

    loop: Loop
    executor: Executor
    work: Callable[[], Any]
    name: str


class Farewells:
    """What is left for one end. The last is done first; a failure is logged, and keeps nothing else from being done."""

    __slots__ = ("__weakref__", "_left", "_lock", "_over")

    def __init__(self) -> None:
        self._left: list[_Farewell] = []
        self._lock = threading.Lock()
        self._over = False

    def add(self, loop: Loop, executor: Executor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        """Have `fn` called then, on `loop` if it is async, else on a lane. From any thread. Raises RuntimeError when it
        is over already.
        """
        name = getattr(fn, "__qualname__", type(fn).__qualname__)
        with self._lock:
            if self._over:
                raise RuntimeError("It is over already: nothing can be left for its end any more")
            self._left.append(_Farewell(loop, executor, partial(fn, *args, **kwargs), name))

    def say(self) -> None:
        """It is over: begin with what is to be done. From any thread; waits for nothing."""
        with self._lock:
            left, self._left, self._over = self._left, [], True
        for loop in dict.fromkeys(farewell.loop for farewell in left):
            mine = [farewell for farewell in left if farewell.loop is loop]
            try:
                loop.call_soon_threadsafe(_begin, mine, context=contextvars.Context())
            except RuntimeError:  # the loop is closed, and what was to be closed has perhaps gone with it
                logger.warning("Left undone, because its event loop has ended: %s", ", ".join(one.name for one in mine))

    async def said(self) -> None:
        """It is over, as far as the running loop is concerned: what was left from there is done."""
        loop = asyncio.get_running_loop()
        with self._lock:
            mine = [farewell for farewell in self._left if farewell.loop is loop]
            self._left = [farewell for farewell in self._left if farewell.loop is not loop]
        if mine:
            await asyncio.shield(_begin(mine))


_OPEN: weakref.WeakKeyDictionary[Loop, weakref.WeakSet[Farewells]] = weakref.WeakKeyDictionary()
"""Those for which something was left on a loop."""
_TASKS: set[asyncio.Task[None]] = set()
"""The loop knows its tasks weakly."""


def keep(farewells: Farewells, loop: Loop, at_end: Callable[[Callable[[], Awaitable[None]]], None]) -> None:
    """Have them said at the latest when `loop` is about to end, which `at_end` tells."""
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
    # In a clean context: that of the call names its lane, which it has given back.
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
            logger.exception("What was left for an end took longer than %g seconds: %s", PATIENCE, farewell.name)
        except (Exception, SystemExit):
            logger.exception("What was left for an end failed: %s", farewell.name)
        finally:
            lease.close()
