"""The executor with real threads, and the inline mode of Django's own tests.

The tests that need threads run a loop of their own: a test that is itself a coroutine runs inline.
"""

import asyncio
import contextlib
import contextvars
import gc
import logging
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, connections, transaction

from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.runtime.threads.lease import ThreadLease
from mcp_django.runtime.threads.pool import PoolThread, ThreadPool
from mcp_django.server.calls.call import CURRENT_CALL, Call
from mcp_django.server.calls.outcome import THREAD, CallRecord, Wait
from mcp_django.server.ports import Overloaded
from tests.runtime.serving import WAIT_SECONDS, Gate, real_threads, serve, start_call
from tests.testapp.models import Book

ROOT = Path(__file__).resolve().parent.parent.parent.parent
COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


def fail_with(problem: BaseException) -> None:
    raise problem


class TestPlainFunctions:
    def test_they_run_off_the_loop_and_return_their_value(self) -> None:
        async def main(executor: LeasingExecutor) -> tuple[int, threading.Thread]:
            return await executor.run(lambda a, *, b: (a + b, threading.current_thread()), 1, b=2)

        value, thread = serve(main)
        assert value == 3
        assert thread is not threading.main_thread()

    @pytest.mark.django_db(transaction=True)
    def test_a_queryset_is_read_before_it_reaches_the_loop(self) -> None:
        Book.objects.create(title="Emma")

        async def main(executor: LeasingExecutor) -> Any:
            return await executor.run(lambda: Book.objects.values_list("title", flat=True))

        assert serve(main) == ["Emma"]

    def test_they_see_the_callers_context_variables(self) -> None:
        async def main(executor: LeasingExecutor) -> str:
            COLOUR.set("red")
            return await executor.run(COLOUR.get)

        assert serve(main) == "red"

    def test_their_exceptions_reach_the_caller(self) -> None:
        async def main(executor: LeasingExecutor) -> None:
            await executor.run(int, "seven")

        with pytest.raises(ValueError, match="seven"):
            serve(main)

    def test_exceptions_that_asyncio_cannot_carry_become_runtime_errors(self, subtests: pytest.Subtests) -> None:
        """StopIteration would make the caller wait for ever; SystemExit would end the worker."""

        async def main(executor: LeasingExecutor) -> None:
            for problem in (StopIteration(1), SystemExit(3), KeyboardInterrupt(), GeneratorExit()):
                name = type(problem).__name__
                with subtests.test(problem=name):
                    with executor.context():
                        with pytest.raises(RuntimeError, match=name):
                            await executor.run(fail_with, problem)
                        with pytest.raises(RuntimeError, match=name):
                            await sync_to_async(fail_with)(problem)
                    with pytest.raises(RuntimeError, match=name):
                        await executor.run(fail_with, problem)

        serve(main)

    def test_many_share_a_few_threads(self) -> None:
        async def main(executor: LeasingExecutor) -> set[threading.Thread]:
            return set(await asyncio.gather(*[executor.run(threading.current_thread) for _ in range(50)]))

        assert 1 <= len(serve(main, threads=3, queue=50)) <= 3

    def test_they_may_wait_for_async_code_that_uses_the_orm(self, db: None) -> None:
        """asgiref runs the ORM on the waiting thread; nothing waits for the thread that it has."""

        async def inner() -> threading.Thread:
            return await sync_to_async(threading.current_thread)()

        def handler() -> bool:
            return async_to_sync(inner)() is threading.current_thread()

        async def main(executor: LeasingExecutor) -> bool:
            return await executor.run(handler)

        assert serve(main, threads=1, queue=0)

    def test_async_code_they_wait_for_is_cancelled_with_the_caller_and_frees_the_thread(self) -> None:
        async def main(executor: LeasingExecutor) -> str:
            asked, cancelled = asyncio.Event(), asyncio.Event()

            async def question() -> None:
                asked.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    cancelled.set()

            caller = asyncio.create_task(executor.run(async_to_sync(question)))
            await asked.wait()
            caller.cancel()
            await asyncio.gather(caller, return_exceptions=True)
            await cancelled.wait()
            return await executor.run(lambda: "free")

        assert serve(main, threads=1, queue=1) == "free"

    def test_a_wait_that_would_never_end_is_an_error(self) -> None:
        async def main(executor: LeasingExecutor) -> None:
            loop = asyncio.get_running_loop()

            async def inner() -> None:
                await sync_to_async(threading.current_thread)()

            with pytest.raises(RuntimeError, match="async_to_sync"):
                await executor.run(lambda: asyncio.run_coroutine_threadsafe(inner(), loop).result(WAIT_SECONDS))

        serve(main)


class TestAsyncHandlers:
    def test_a_handler_that_needs_no_thread_takes_none(self) -> None:
        async def handler(executor: LeasingExecutor) -> None:
            with executor.context():
                await asyncio.sleep(0)

        async def main(executor: LeasingExecutor) -> int:
            before = threading.active_count()
            await asyncio.gather(*[start_call(handler(executor)) for _ in range(100)])
            return threading.active_count() - before

        assert serve(main, threads=1, queue=0) == 0

    def test_all_blocking_functions_of_a_call_run_on_one_thread(self) -> None:
        async def handler(executor: LeasingExecutor) -> set[threading.Thread]:
            here = sync_to_async(threading.current_thread)
            with executor.context():
                return {
                    await here(),
                    *await asyncio.gather(here(), here()),
                    await executor.run(threading.current_thread),
                }

        async def main(executor: LeasingExecutor) -> list[set[threading.Thread]]:
            return await asyncio.gather(*[start_call(handler(executor)) for _ in range(5)])

        found = serve(main, threads=3, queue=10)
        assert [len(threads) for threads in found] == [1] * 5
        assert threading.main_thread() not in set().union(*found)

    def test_a_call_inside_a_call_shares_its_thread(self) -> None:
        """With one thread, a second lease would wait for the first for ever."""

        async def main(executor: LeasingExecutor) -> bool:
            with executor.context():
                outer = await executor.run(threading.current_thread)
                with executor.context():
                    inner = await executor.run(threading.current_thread)
                return outer is inner and await executor.run(threading.current_thread) is outer

        assert serve(main, threads=1, queue=0)

    def test_code_after_the_call_in_its_task_may_use_the_orm(self) -> None:
        async def main(executor: LeasingExecutor) -> threading.Thread:
            with executor.context():
                await executor.run(threading.current_thread)
            return await sync_to_async(threading.current_thread)()

        assert serve(main) is not None

    def test_a_task_that_outlives_the_call_cannot_use_its_thread(self) -> None:
        async def late(over: asyncio.Event) -> None:
            await over.wait()
            await sync_to_async(threading.current_thread)()

        async def main(executor: LeasingExecutor) -> None:
            over = asyncio.Event()
            with executor.context():
                await executor.run(threading.current_thread)
                task = asyncio.create_task(late(over))
            over.set()
            with pytest.raises(RuntimeError, match="has ended"):
                await task

        serve(main)

    def test_a_waiting_call_gives_its_thread_to_another(self) -> None:
        async def waits(executor: LeasingExecutor, used: asyncio.Event, answered: asyncio.Event) -> str:
            with executor.context():
                await executor.run(threading.current_thread)
                executor.release_thread()
                used.set()
                await answered.wait()
                return await executor.run(lambda: "answered")

        async def main(executor: LeasingExecutor) -> str:
            used, answered = asyncio.Event(), asyncio.Event()
            first = start_call(waits(executor, used, answered))
            await used.wait()
            await executor.run(lambda: None)
            answered.set()
            return str(await first)

        assert serve(main, threads=1, queue=1) == "answered"


class TestLimits:
    def test_a_full_queue_is_refused_at_once(self, gate: Gate) -> None:
        async def main(executor: LeasingExecutor) -> list[Any]:
            running = asyncio.create_task(executor.run(gate))
            await gate.until_reached()
            waiting = asyncio.create_task(executor.run(lambda: "waited"))
            await asyncio.sleep(0)
            with pytest.raises(Overloaded) as refused:
                await executor.run(lambda: "never")
            with executor.context(), pytest.raises(Overloaded):
                await sync_to_async(lambda: "never")()
            assert refused.value.retry_after > 0
            gate.opened.set()
            return await asyncio.gather(running, waiting)

        assert serve(main, threads=1, queue=1) == ["through", "waited"]

    def test_callers_are_served_in_order(self, gate: Gate) -> None:
        async def main(executor: LeasingExecutor) -> list[int]:
            order: list[int] = []
            tasks = [asyncio.create_task(executor.run(gate))]
            await gate.until_reached()
            for number in range(10):
                tasks.append(asyncio.create_task(executor.run(order.append, number)))  # noqa: PERF401
            await asyncio.sleep(0)
            gate.opened.set()
            await asyncio.gather(*tasks)
            return order

        assert serve(main, threads=1, queue=10) == list(range(10))

    def test_a_cancelled_caller_returns_at_once_and_its_thread_after_its_function(self, gate: Gate) -> None:
        async def main(executor: LeasingExecutor) -> threading.Thread:
            caller = asyncio.create_task(executor.run(gate))
            await gate.until_reached()
            caller.cancel()
            with pytest.raises(asyncio.CancelledError):
                await caller
            assert not gate.opened.is_set()
            with pytest.raises(Overloaded):
                await executor.run(lambda: "the thread is not free yet")
            gate.opened.set()
            while True:
                try:
                    return await executor.run(threading.current_thread)
                except Overloaded:
                    await asyncio.sleep(0)

        assert serve(main, threads=1, queue=0) is gate.threads[0]

    def test_a_caller_cancelled_in_the_queue_leaves_it(self, gate: Gate) -> None:
        ran: list[str] = []

        async def main(executor: LeasingExecutor) -> None:
            running = asyncio.create_task(executor.run(gate))
            await gate.until_reached()
            waiting = asyncio.create_task(executor.run(ran.append, "cancelled"))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            next_one = asyncio.create_task(executor.run(ran.append, "next"))
            await asyncio.sleep(0)
            gate.opened.set()
            await asyncio.gather(running, next_one)

        serve(main, threads=1, queue=1)
        assert ran == ["next"]

    def test_a_wait_for_a_thread_is_cancelled_when_its_call_ends(self, gate: Gate) -> None:
        """A task that the handler left behind must not wait for ever."""

        async def main(executor: LeasingExecutor) -> None:
            running = asyncio.create_task(executor.run(gate))
            await gate.until_reached()
            with executor.context():
                left_behind = asyncio.create_task(sync_to_async(gate)())
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await left_behind
            gate.opened.set()
            await running

        serve(main, threads=1, queue=1)
        assert len(gate.threads) == 1

    def test_the_wait_for_a_thread_is_in_the_record_of_the_call(self, gate: Gate) -> None:
        async def main(executor: LeasingExecutor) -> tuple[str | None, list[Wait]]:
            running = asyncio.create_task(executor.run(gate))
            await gate.until_reached()
            record = CallRecord()
            CURRENT_CALL.set(cast(Call, SimpleNamespace(record=record)))
            waiting = asyncio.create_task(executor.run(lambda: None))
            await asyncio.sleep(0)
            cause = record.waits_for
            gate.opened.set()
            await asyncio.gather(running, waiting)
            assert record.waits_for is None
            return cause, record.waits

        cause, (wait,) = serve(main, threads=1, queue=1)
        assert cause == wait.cause == THREAD
        assert wait.end is not None

    def test_a_call_that_gave_up_waiting_takes_no_thread_later(self, gate: Gate) -> None:
        async def main(executor: LeasingExecutor) -> str:
            running = asyncio.create_task(executor.run(gate))
            await gate.until_reached()
            with executor.context():
                waiting = asyncio.create_task(sync_to_async(gate)())
                await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
                gate.opened.set()
                await running
                return await start_call(executor.run(lambda: "another call"))

        assert serve(main, threads=1, queue=1) == "another call"

    def test_many_cancellations_leave_every_thread_usable(self, gate: Gate) -> None:
        async def handler(executor: LeasingExecutor) -> None:
            with executor.context():
                await sync_to_async(gate)()

        async def main(executor: LeasingExecutor) -> int:
            calls = [asyncio.create_task(executor.run(gate)) for _ in range(20)]
            calls += [start_call(handler(executor)) for _ in range(20)]
            await gate.until_reached()
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            gate.opened.set()
            barrier = threading.Barrier(4, timeout=WAIT_SECONDS)
            await asyncio.gather(*[executor.run(barrier.wait) for _ in range(4)])
            return len(set(gate.threads))

        assert serve(main, threads=4, queue=100) <= 4

    def test_threads_end_with_their_loop(self) -> None:
        executor = LeasingExecutor(max_threads=2, max_queued=2)
        thread = asyncio.run(executor.run(threading.current_thread))
        gc.collect()
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()

    def test_closing_ends_idle_threads_and_the_next_use_starts_new_ones(self) -> None:
        async def main(executor: LeasingExecutor) -> bool:
            first = await executor.run(threading.current_thread)
            executor.close(timeout=WAIT_SECONDS)
            return not first.is_alive() and await executor.run(lambda: True)

        assert serve(main)

    def test_a_hanging_thread_does_not_keep_the_process_alive(self) -> None:
        code = (
            "import asyncio, threading, django\n"
            "from django.conf import settings\n"
            "settings.configure(); django.setup()\n"
            "from mcp_django.runtime.threads.executor import LeasingExecutor\n"
            "reached = threading.Event()\n"
            "def hang():\n    reached.set(); threading.Event().wait()\n"
            "async def main():\n"
            "    task = asyncio.create_task(LeasingExecutor().run(hang))\n"
            "    await asyncio.to_thread(reached.wait)\n"
            "asyncio.run(main())\n"
            "print('done')\n"
        )
        ran = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=WAIT_SECONDS
        )
        assert ran.stdout.strip() == "done", ran.stderr

    def test_a_call_leaves_no_reference_cycle(self) -> None:
        async def handler(executor: LeasingExecutor) -> None:
            lease = executor.acquire_lease()
            await asyncio.sleep(0)
            lease.close()

        async def main(executor: LeasingExecutor) -> int:
            async def calls() -> None:
                for _ in range(5):
                    await start_call(handler(executor))
                    await executor.run(lambda: None)

            await calls()
            gc.collect()
            gc.disable()
            try:
                await calls()
                return gc.collect()
            finally:
                gc.enable()

        assert serve(main) == 0

    def test_an_exception_leaves_no_reference_cycle(self) -> None:
        pool = ThreadPool(1, 0)
        lease = ThreadLease(lambda: pool)

        def fail() -> None:
            assert isinstance(lease.submit(int, "seven").exception(WAIT_SECONDS), ValueError)

        fail()
        # The thread of the pool releases the failed work only after it has run the next.
        lease.submit(int).result(WAIT_SECONDS)
        gc.collect()
        gc.disable()
        try:
            fail()
            lease.submit(int).result(WAIT_SECONDS)
            found = gc.collect()
        finally:
            gc.enable()
            lease.close()
            pool.close(WAIT_SECONDS)
        assert found == 0

    def test_a_thread_keeps_no_reference_to_its_last_call(self) -> None:
        class Argument:
            pass

        async def main(executor: LeasingExecutor) -> bool:
            argument = Argument()
            gone = weakref.ref(argument)
            await executor.run(lambda value: None, argument)
            del argument
            await executor.run(lambda: None)
            return gone() is None

        assert serve(main, threads=1)

    def test_a_pool_thread_that_is_collected_ends_its_thread(self) -> None:
        pool_thread = PoolThread("test")
        thread = pool_thread.thread
        del pool_thread
        gc.collect()
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()


@real_threads
class TestConnections:
    def test_all_the_orm_work_of_a_call_shares_one_connection(self) -> None:
        async def handler(executor: LeasingExecutor) -> int:
            with executor.context():
                block = transaction.atomic()
                await sync_to_async(block.__enter__)()
                await asyncio.gather(*[Group.objects.acreate(name=f"group {number}") for number in range(3)])
                await sync_to_async(transaction.set_rollback)(True)
                await sync_to_async(block.__exit__)(None, None, None)
                return await Group.objects.acount()

        async def main(executor: LeasingExecutor) -> int:
            return int(await start_call(handler(executor)))

        assert serve(main) == 0

    def test_a_connection_is_kept_open_for_the_next_call(self, kept_connections: None) -> None:
        def raw() -> Any:
            Group.objects.count()
            return connection.connection

        async def main(executor: LeasingExecutor) -> bool:
            return await executor.run(raw) is await executor.run(raw)

        assert serve(main, threads=1)

    def test_without_conn_max_age_a_connection_is_closed_after_the_call(self) -> None:
        def opened() -> Any:
            return connection.connection

        async def main(executor: LeasingExecutor) -> Any:
            await executor.run(Group.objects.count)
            return await executor.run(opened)

        assert connections.settings["default"]["CONN_MAX_AGE"] == 0
        assert serve(main, threads=1) is None

    def test_a_broken_connection_is_replaced(self, kept_connections: None) -> None:
        def break_it() -> None:
            Group.objects.count()
            broken = connections["default"]
            broken.connection.close()
            with pytest.raises(Exception, match=r"(?i)closed"):
                Group.objects.count()
            # SQLite calls every connection usable.
            broken.errors_occurred, broken.is_usable = True, lambda: False

        async def main(executor: LeasingExecutor) -> int:
            await executor.run(break_it)
            return await executor.run(Group.objects.count)

        assert serve(main, threads=1) == 0

    def test_an_error_in_a_transaction_does_not_keep_its_call_alive(self, kept_connections: None) -> None:
        class Argument:
            pass

        def fail(argument: Argument) -> None:
            Group.objects.create(name="taken")
            with contextlib.suppress(IntegrityError), transaction.atomic():
                Group.objects.create(name="taken")

        async def main(executor: LeasingExecutor) -> bool:
            argument = Argument()
            gone = weakref.ref(argument)
            await executor.run(fail, argument)
            del argument
            await executor.run(gc.collect)
            return gone() is None

        assert serve(main, threads=1)

    def test_a_transaction_left_open_is_rolled_back(self, kept_connections: None, caplog: Any) -> None:
        def leave_open() -> None:
            transaction.atomic().__enter__()
            Group.objects.create(name="never")

        async def main(executor: LeasingExecutor) -> tuple[int, bool]:
            await executor.run(leave_open)
            return await executor.run(lambda: (Group.objects.count(), connection.in_atomic_block))

        with caplog.at_level(logging.WARNING, "mcp_django.threads"):
            assert serve(main, threads=1) == (0, False)
        assert "ended inside a transaction" in caplog.text

    def test_a_cancelled_async_call_in_a_transaction_is_rolled_back(self, kept_connections: None) -> None:
        async def handler(executor: LeasingExecutor, written: asyncio.Event) -> None:
            with executor.context():
                await sync_to_async(transaction.atomic().__enter__)()
                await Group.objects.acreate(name="never")
                written.set()
                await asyncio.Event().wait()

        async def main(executor: LeasingExecutor) -> int:
            written = asyncio.Event()
            call = start_call(handler(executor, written))
            await written.wait()
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            return await executor.run(Group.objects.count)

        assert serve(main, threads=1) == 0

    def test_a_connection_that_cannot_be_closed_is_dropped_and_the_result_arrives(
        self, kept_connections: None, caplog: Any
    ) -> None:
        drivers: list[Any] = []

        def spoil() -> str:
            Group.objects.count()
            spoiled = connections["default"]
            drivers.append(spoiled.connection)
            spoiled.close_at = 0

            def fail() -> None:
                del spoiled._close
                raise OSError("no such socket")

            spoiled._close = fail
            return "result"

        async def main(executor: LeasingExecutor) -> tuple[str, int]:
            return await executor.run(spoil), await executor.run(Group.objects.count)

        assert serve(main, threads=1) == ("result", 0)
        assert "Failed to close" in caplog.text
        with pytest.raises(Exception, match="closed"):
            drivers[0].cursor()

    def test_queries_of_an_earlier_call_are_not_kept(self, settings: Any, kept_connections: None) -> None:
        settings.DEBUG = True

        def count() -> int:
            Group.objects.count()
            return len(connection.queries)

        async def main(executor: LeasingExecutor) -> list[int]:
            return [await executor.run(count) for _ in range(3)]

        assert len(set(serve(main, threads=1))) == 1


@real_threads
class TestRequestsToTheClientAreUnsafe:
    def test_in_a_threads_own_transaction(self) -> None:
        async def main(executor: LeasingExecutor) -> list[bool]:
            def handler() -> list[bool]:
                before = executor.is_in_transaction()
                with transaction.atomic():
                    within = executor.is_in_transaction()
                return [before, within, executor.is_in_transaction()]

            return await executor.run(handler)

        assert serve(main) == [False, True, False]

    def test_in_a_transaction_of_the_thread_that_waits_for_the_loop(self) -> None:
        async def main(executor: LeasingExecutor) -> list[bool]:
            async def ask() -> bool:
                return executor.is_in_transaction()

            def handler() -> list[bool]:
                with transaction.atomic():
                    within = async_to_sync(ask)()
                return [within, async_to_sync(ask)()]

            return await executor.run(handler)

        assert serve(main) == [True, False]

    def test_in_a_transaction_on_the_thread_of_an_async_call(self) -> None:
        async def main(executor: LeasingExecutor) -> list[bool]:
            with executor.context():
                found = [executor.is_in_transaction()]
                await Group.objects.acount()
                found.append(executor.is_in_transaction())
                block = transaction.atomic()
                await sync_to_async(block.__enter__)()
                found.append(executor.is_in_transaction())
                await sync_to_async(block.__exit__)(None, None, None)
                return [*found, executor.is_in_transaction()]

        assert serve(main) == [False, False, True, False]

    def test_not_in_a_transaction_of_another_call(self) -> None:
        async def main(executor: LeasingExecutor) -> bool:
            entered, done = asyncio.Event(), asyncio.Event()

            async def other() -> None:
                with executor.context():
                    block = transaction.atomic()
                    await sync_to_async(block.__enter__)()
                    entered.set()
                    await done.wait()
                    await sync_to_async(block.__exit__)(None, None, None)

            task = start_call(other())
            await entered.wait()
            with executor.context():
                await Group.objects.acount()
                found = executor.is_in_transaction()
            done.set()
            await task
            return found

        assert serve(main) is False


class TestInline:
    """Under `async_to_sync`: Django's tests, WSGI, management commands."""

    @pytest.mark.django_db
    async def test_functions_run_on_the_callers_thread_and_see_its_transaction(self) -> None:
        executor = LeasingExecutor()
        await Group.objects.acreate(name="uncommitted")
        assert await executor.run(threading.current_thread) is threading.main_thread()
        assert await executor.run(Group.objects.count) == 1

    @pytest.mark.django_db
    async def test_async_handlers_run_there_even_in_a_clean_context(self) -> None:
        executor = LeasingExecutor()
        await Group.objects.acreate(name="uncommitted")

        async def handler() -> tuple[threading.Thread, int]:
            with executor.context():
                return await sync_to_async(threading.current_thread)(), await Group.objects.acount()

        assert await start_call(handler()) == (threading.main_thread(), 1)

    async def test_no_thread_is_started(self) -> None:
        before = {thread for thread in threading.enumerate() if thread.name.startswith("mcp-thread")}
        await LeasingExecutor(max_threads=1, max_queued=0).run(lambda: None)
        assert {thread for thread in threading.enumerate() if thread.name.startswith("mcp-thread")} == before

    async def test_exceptions_that_asyncio_cannot_carry_become_runtime_errors(self, subtests: pytest.Subtests) -> None:
        for problem in (StopIteration(1), SystemExit(3), GeneratorExit()):
            name = type(problem).__name__
            with subtests.test(problem=name), pytest.raises(RuntimeError, match=name):
                await LeasingExecutor().run(fail_with, problem)

    @pytest.mark.django_db
    async def test_the_transaction_of_the_test_is_not_the_handlers(self) -> None:
        executor = LeasingExecutor()

        def handler() -> list[bool]:
            before = executor.is_in_transaction()
            with transaction.atomic():
                return [before, executor.is_in_transaction()]

        assert await executor.run(handler) == [False, True]
        assert executor.is_in_transaction() is False

    def test_a_command_that_waits_for_the_executor_runs_on_its_own_thread(self) -> None:
        assert async_to_sync(LeasingExecutor().run)(threading.current_thread) is threading.current_thread()
