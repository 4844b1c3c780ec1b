"""Waits for events, all with the same generous bound.

The bound only names a test that hangs. No test may pass or fail by how long something took.
"""

import asyncio
import time
from collections.abc import Callable

WAIT_SECONDS = 60.0
"""Real seconds after which something that did not happen is taken for lost."""
POLL_SECONDS = 0.005


def wait_until(condition: Callable[[], object], description: str | Callable[[], object] = "") -> None:
    """Ask until a condition holds, for another process or thread. Raises AssertionError with the description."""
    end = time.monotonic() + WAIT_SECONDS
    pause = POLL_SECONDS
    while not condition():
        assert time.monotonic() < end, description() if callable(description) else description or "it did not happen"
        time.sleep(pause)
        pause = min(0.1, pause * 1.2)


async def eventually(condition: Callable[[], object], description: str | Callable[[], object] = "") -> None:
    """`wait_until` for a test on an event loop, which continues to run, also where its time does not move."""
    end = time.monotonic() + WAIT_SECONDS
    loop = asyncio.get_running_loop()
    while not condition():
        assert time.monotonic() < end, description() if callable(description) else description or "it did not happen"
        await loop.run_in_executor(None, time.sleep, POLL_SECONDS)


async def turns(count: int) -> None:
    """Give the event loop some turns, in which it runs ready callbacks."""
    for _ in range(count):
        await asyncio.sleep(0)
