"""Time that moves only when a test advances it."""

import asyncio
import datetime
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import time_machine

from mcp_django.aio import clock as package_clock
from tests.support.waiting import POLL_SECONDS, WAIT_SECONDS

T = TypeVar("T")
SETTLE_TURNS = 200
"""Turns of the event loop after which `advance` continues although callbacks are still ready."""
BLOCKED_SECONDS = 10.0
"""Real seconds after which a function in a thread is taken for blocked."""
WAITING_SECONDS = 1.0
"""The same, while all threads of the test wait for one another, for the event loop, or for work."""
WAITING_FUNCTIONS = {("threading.py", "wait"), ("thread.py", "_worker"), ("pool.py", "_run_queue")}
"""Innermost Python functions of such threads, by file: of locks, and of pools without work."""
MAX_FOLLOWING_FUNCTIONS = 5
"""Maximum functions in threads, one after the other, for which `advance_until` waits before a step."""


class Clock:
    """The time of one test: the package's clock, the timers of the test's event loop, and the time of day.

    The first two move by `advance` alone, so no timeout, keep-alive or back-off depends on the speed of
    the machine. The time of day is moved by as much, and moves by itself too, so that rows keep their order: compare it
    with a margin of minutes. Other threads' blocking waits follow the real clock.
    """

    def __init__(self, traveller: time_machine.Traveller) -> None:
        self._traveller = traveller
        self._now = float(int(time.monotonic()))  # whole, so that sums of seconds are exact
        self._loop: asyncio.BaseEventLoop | None = None
        self._thread_work: set[asyncio.Future[Any]] = set()
        self._blocked_work: set[asyncio.Future[Any]] = set()
        self._earlier_threads = set(sys._current_frames())

    def monotonic(self) -> float:
        """Read the clock, in seconds."""
        return self._now

    def control(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the timers of a loop follow this clock."""
        assert isinstance(loop, asyncio.BaseEventLoop)
        self._loop = loop
        loop.time = self.monotonic  # type: ignore[method-assign]
        run_in_executor = loop.run_in_executor

        def run_tracked(*arguments: Any) -> asyncio.Future[Any]:
            future = run_in_executor(*arguments)
            self._thread_work.add(future)
            future.add_done_callback(self._thread_work.discard)
            return future

        loop.run_in_executor = run_tracked  # type: ignore[method-assign]

    def move(self, seconds: float) -> None:
        """Move the time without running timers, for code without an event loop."""
        self._now += seconds
        self._traveller.shift(datetime.timedelta(seconds=seconds))

    async def advance(self, seconds: float) -> None:
        """Move the time, and run each timer of the loop when it is due.

        Callbacks that a timer makes ready run before the next timer. Work in threads and on sockets continues:
        wait for its effect as usual.
        """
        end = self._now + seconds
        await self.settle()
        while (due := self._next_timer()) is not None and due <= end:
            self.move(max(0.0, due - self._now))
            await self.settle()
        self.move(end - self._now)
        await self.settle()

    async def advance_until(self, condition: Callable[[], object], step: float = 1.0) -> None:
        """Advance in steps of so many seconds until a condition holds.

        Before each step, functions that run in threads end, so that no timer is faster than they are. A function that
        does not end in `BLOCKED_SECONDS` of real time, or waits for `WAITING_SECONDS`, is no longer waited for.
        """
        end = time.monotonic() + WAIT_SECONDS

        while not condition():
            assert time.monotonic() < end, "it did not happen"
            begun = time.monotonic()
            await self._finish_thread_work()
            end += time.monotonic() - begun
            if condition():
                return
            await self.advance(step)
            if not condition():
                await asyncio.to_thread(time.sleep, POLL_SECONDS)

    async def advance_while(self, work: Coroutine[Any, Any, T], step: float = 1.0) -> T:
        """Run a coroutine, advance until it is done, and return its result."""
        task = asyncio.ensure_future(work)
        await self.advance_until(task.done, step)
        return await task

    async def settle(self) -> None:
        """Run callbacks until the loop has none that is ready."""
        for _ in range(SETTLE_TURNS):
            await asyncio.sleep(0)
            if not self._ready():
                return

    async def _finish_thread_work(self) -> None:
        """Let functions in threads end, and those that follow them, but not without an end: code may poll."""
        for _ in range(MAX_FOLLOWING_FUNCTIONS):
            await self.settle()
            work = self._thread_work - self._blocked_work
            if not work:
                return
            begun = worked_at = time.monotonic()
            while not all(future.done() for future in work):
                now = time.monotonic()
                if not self._all_threads_wait():
                    worked_at = now
                if now > begun + BLOCKED_SECONDS or now > worked_at + WAITING_SECONDS:
                    self._blocked_work |= {future for future in work if not future.done()}
                    break
                await asyncio.to_thread(time.sleep, POLL_SECONDS)

    def _all_threads_wait(self) -> bool:
        """Return True if no thread that the test has started runs code, beside the calling one."""
        frames = sys._current_frames()
        own = frames.keys() - self._earlier_threads - {threading.get_ident()}
        codes = [frames[thread].f_code for thread in own]
        return all((Path(code.co_filename).name, code.co_name) in WAITING_FUNCTIONS for code in codes)

    def _ready(self) -> bool:
        return bool(self._loop is not None and self._loop._ready)  # type: ignore[attr-defined]

    def _next_timer(self) -> float | None:
        assert self._loop is not None, "only `async def` tests can advance timers; use `move`"
        timers = self._loop._scheduled  # type: ignore[attr-defined]
        return min((timer.when() for timer in timers if not timer.cancelled()), default=None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """The time, which moves only when the test advances it."""
    with time_machine.travel(datetime.datetime.now(datetime.UTC), tick=True) as traveller:
        found = Clock(traveller)
        monkeypatch.setattr(package_clock, "source", found.monotonic)
        yield found
