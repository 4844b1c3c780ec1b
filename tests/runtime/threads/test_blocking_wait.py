"""Plain functions in a blocking wait: many wait, few run."""

import asyncio
import threading
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.runtime.threads.pool import ThreadPool
from mcp_django.server.ports import Overloaded
from tests.runtime.serving import eventually, real_threads, serve, start_call
from tests.testapp.models import Book

MANY = 40


class WaitingFunctions:
    """Plain functions that wait for the test in the middle, and how many of them run at once."""

    def __init__(self, executor: LeasingExecutor) -> None:
        self.executor = executor
        self.answered = asyncio.Event()
        self.waiting = self.running = self.most = self.done = 0
        self._lock = threading.Lock()

    def step(self, by: int) -> None:
        with self._lock:
            self.running += by
            self.most = max(self.most, self.running)

    async def answer(self) -> None:
        self.waiting += 1
        await self.answered.wait()

    def handler(self) -> int:
        self.step(1)
        Book.objects.count()
        self.step(-1)
        with self.executor.blocking_wait():
            async_to_sync(self.answer)()
        self.step(1)
        count = Book.objects.count()
        self.step(-1)
        return count

    async def call(self) -> int:
        with self.executor.context():
            count = await self.executor.run(self.handler)
        self.done += 1
        return count

    def pool(self) -> ThreadPool:
        ((_, pool),) = self.executor._pools.items()
        return pool


@real_threads
def test_forty_functions_wait_on_four_threads_and_others_run() -> None:
    async def main(executor: LeasingExecutor) -> None:
        functions = WaitingFunctions(executor)
        calls = [start_call(functions.call()) for _ in range(MANY)]
        await eventually(lambda: functions.waiting == MANY)
        for _ in range(10):
            assert await executor.run(Book.objects.count) == 0
        assert functions.done == 0
        functions.answered.set()
        assert await asyncio.gather(*calls) == [0] * MANY
        assert functions.most <= 4
        pool = functions.pool()
        assert (len(pool.busy) + len(pool.free), pool.blocked, len(pool.returning)) == (4, set(), 0)

    serve(main, threads=4, queue=MANY)


@real_threads
def test_a_waiting_function_holds_no_connection() -> None:
    async def main(executor: LeasingExecutor) -> None:
        functions = WaitingFunctions(executor)
        calls = [start_call(functions.call()) for _ in range(3)]
        await eventually(lambda: functions.waiting == 3)
        opened = [c for thread in functions.pool().blocked for c in thread.guard.connections.values()]
        assert len(opened) == 3
        assert all(connection.connection is None for connection in opened)
        functions.answered.set()
        await asyncio.gather(*calls)

    serve(main, threads=1)


@real_threads
def test_one_wait_too_many_is_refused_at_once_and_the_others_go_on() -> None:
    async def main(executor: LeasingExecutor) -> None:
        functions = WaitingFunctions(executor)
        calls = [start_call(functions.call()) for _ in range(2)]
        await eventually(lambda: functions.waiting == 2)
        with pytest.raises(Overloaded, match="Too many threads are waiting"):
            await start_call(functions.call())
        assert await executor.run(Book.objects.count) == 0
        functions.answered.set()
        assert await asyncio.gather(*calls) == [0, 0]

    serve(main, threads=1, parked=2)


@real_threads
def test_a_call_cancelled_during_its_wait_frees_its_place() -> None:
    async def main(executor: LeasingExecutor) -> None:
        functions = WaitingFunctions(executor)
        call = start_call(functions.call())
        await eventually(lambda: functions.waiting == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await eventually(lambda: not functions.pool().blocked)
        for _ in range(3):
            assert await executor.run(Book.objects.count) == 0
        pool = functions.pool()
        assert len(pool.busy) + len(pool.free) == 1

    serve(main, threads=1)


@real_threads
def test_work_in_the_middle_of_a_wait_takes_a_place() -> None:
    async def main(executor: LeasingExecutor) -> None:
        functions = WaitingFunctions(executor)
        seen: list[Any] = []

        def look() -> threading.Thread:
            seen.append((len(functions.pool().busy), Book.objects.count()))
            return threading.current_thread()

        async def wait_and_look() -> threading.Thread:
            functions.waiting += 1
            await functions.answered.wait()
            return await executor.run_during_wait(look)

        def handler() -> bool:
            with executor.blocking_wait():
                return async_to_sync(wait_and_look)() is threading.current_thread()

        async def call() -> bool:
            with executor.context():
                return await executor.run(handler)

        waiting = start_call(call())
        await eventually(lambda: functions.waiting == 1)
        assert not functions.pool().busy
        functions.answered.set()
        assert await waiting
        assert seen == [(1, 0)]
        assert functions.pool().blocked == set()

    serve(main, threads=1)


def test_resuming_outside_of_a_wait_runs_the_function() -> None:
    async def main(executor: LeasingExecutor) -> int:
        return await executor.run_during_wait(lambda: 5)

    assert serve(main) == 5


def test_a_wait_outside_of_a_pool_thread_frees_no_place() -> None:
    with LeasingExecutor().blocking_wait():
        pass


def test_a_waiting_function_may_go_on_when_the_threads_end() -> None:
    async def main(executor: LeasingExecutor) -> None:
        functions = WaitingFunctions(executor)

        def wait() -> int:
            with executor.blocking_wait():
                async_to_sync(functions.answer)()
            return 1

        functions.handler = wait  # type: ignore[method-assign]
        call = start_call(functions.call())
        await eventually(lambda: functions.waiting == 1)
        executor.close(timeout=0)
        functions.answered.set()
        assert await call == 1

    serve(main, threads=1)
