"""The wait before the tables of a test are emptied."""

import asyncio
import threading

from mcp_django.runtime.threads.executor import LeasingExecutor
from tests.support.pool_threads import UNFINISHED_FUNCTIONS
from tests.support.waiting import WAIT_SECONDS


def test_a_function_that_outlasts_its_loop_is_waited_for() -> None:
    begun, opened, finished = threading.Event(), threading.Event(), threading.Event()
    executor = LeasingExecutor(interrupts_sql=False)

    def function() -> None:
        begun.set()
        assert opened.wait(WAIT_SECONDS)
        finished.set()

    async def abandon() -> None:
        running = asyncio.ensure_future(executor.run(function))
        assert await asyncio.to_thread(begun.wait, WAIT_SECONDS)
        running.cancel()

    asyncio.run(abandon())
    assert UNFINISHED_FUNCTIONS.count
    threading.Timer(0.05, opened.set).start()
    UNFINISHED_FUNCTIONS.wait()
    assert finished.is_set()
    assert not UNFINISHED_FUNCTIONS.count
