"""The tests' own clock."""

import asyncio
import threading
import time

import pytest
from django.utils import timezone

from mcp_django.aio.clock import monotonic
from tests.support import clock as clock_module
from tests.support.clock import Clock
from tests.support.waiting import WAIT_SECONDS


async def test_a_timeout_passes_when_the_test_advances_the_clock(clock: Clock) -> None:
    async def wait() -> None:
        async with asyncio.timeout(60):
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await clock.advance(59.9)
    assert not task.done()
    await clock.advance(0.2)
    with pytest.raises(TimeoutError):
        task.result()


async def test_timers_run_in_their_order_and_may_set_others(clock: Clock) -> None:
    seen: list[tuple[str, float]] = []
    start = monotonic()

    async def every(name: str, seconds: float) -> None:
        for _ in range(3):
            await asyncio.sleep(seconds)
            seen.append((name, round(monotonic() - start)))

    tasks = [asyncio.create_task(every("a", 10)), asyncio.create_task(every("b", 16))]
    await clock.advance(100)
    assert seen == [("a", 10), ("b", 16), ("a", 20), ("a", 30), ("b", 32), ("b", 48)]
    await asyncio.gather(*tasks)


async def test_no_timer_is_faster_than_a_function_in_a_thread(clock: Clock) -> None:
    async def work() -> bool:
        async with asyncio.timeout(2):
            await asyncio.to_thread(threading.Event().wait, 0.2)
            return await asyncio.to_thread(threading.Event().wait, 0.2)

    assert await clock.advance_while(work()) is False


async def test_a_function_that_waits_for_the_time_stops_no_timer(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_module, "BLOCKED_SECONDS", 0.05)
    over = threading.Event()
    waiting = asyncio.ensure_future(asyncio.to_thread(over.wait, WAIT_SECONDS))
    asyncio.get_running_loop().call_later(5, over.set)
    await clock.advance_until(waiting.done)
    assert await waiting


def test_all_clocks_move_together(clock: Clock) -> None:
    before = monotonic(), time.time(), timezone.now()
    clock.move(3600)
    assert monotonic() - before[0] == pytest.approx(3600)
    assert time.time() - before[1] >= 3599.9
    assert (timezone.now() - before[2]).total_seconds() >= 3599.9


async def test_real_time_moves_nothing(clock: Clock) -> None:
    loop = asyncio.get_running_loop()
    before = loop.time(), monotonic()
    await loop.run_in_executor(None, time.sleep, 0.01)
    assert (loop.time(), monotonic()) == before
