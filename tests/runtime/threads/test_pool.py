"""The SQL of an ended call that runs on its caller's own thread. Its statements would take a
minute: a test that waits for one fails.
"""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group
from django.db import OperationalError, connection, connections, transaction

from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.runtime.threads.pool import thread_state
from mcp_django.runtime.threads.sql_cancellation import CallEndedError
from tests.runtime.serving import WAIT_SECONDS, Gate, Statement, real_threads, run_sql, sql

T = TypeVar("T")


def run_on_caller_thread(main: Callable[[LeasingExecutor], Awaitable[T]], *, interrupt: bool = True) -> T:
    """Run `main` as WSGI runs an async view, whose plain functions run on the current thread."""
    executor = LeasingExecutor(interrupts_sql=interrupt)
    loops: list[threading.Thread] = []

    async def bounded() -> T:
        loops.append(threading.current_thread())
        return await main(executor)

    try:
        return async_to_sync(bounded)()
    finally:
        executor.close()
        # asgiref leaves the loop's thread to the garbage collector, and other tests count threads.
        gc.collect()
        loops[0].join(WAIT_SECONDS)


def run_in_thread(work: Callable[[], T]) -> T:
    """Do `work` on a thread of a WSGI server, which has connections of its own."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as problem:
            results.append(problem)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(WAIT_SECONDS)
    assert results, "the thread hangs"
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]  # type: ignore[no-any-return]


async def cancel(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def cancel_during(statement: Statement, executor: LeasingExecutor) -> None:
    call = asyncio.create_task(executor.run(statement))
    await statement.until_begun()
    await cancel(call)


def is_untouched() -> bool:
    own = connections["default"]
    return own.execute_wrappers == [] and "_close" not in vars(own) and not getattr(thread_state, "guard", None)


@real_threads
class TestOutsideOfTransactions:
    def test_the_sql_of_a_cancelled_call_ends_and_the_thread_gets_a_new_connection(self) -> None:
        statement = Statement()

        def request() -> tuple[bool, bool, int]:
            Group.objects.create(name="before")
            before = connection.connection
            run_on_caller_thread(lambda executor: cancel_during(statement, executor))
            untouched = is_untouched()
            return untouched, connection.connection is not before, Group.objects.count()

        assert run_in_thread(request) == (True, True, 1)
        assert statement.outcome is OperationalError

    def test_an_early_cancellation_ends_the_sql(self) -> None:
        """Before the function has begun, during the connect, before the database has the statement."""

        async def main(executor: LeasingExecutor) -> None:
            for turns in range(20):
                call = asyncio.create_task(executor.run(run_sql, sql()))
                for _ in range(3 * turns):
                    await asyncio.sleep(0)
                await cancel(call)

        def request() -> tuple[bool, str]:
            run_on_caller_thread(main)
            return is_untouched(), run_sql("SELECT 1")

        assert run_in_thread(request) == (True, "ran")

    def test_a_function_that_goes_on_is_stopped_at_its_next_statement(self, gate: Gate) -> None:
        seen: list[Any] = []

        def works_on() -> None:
            with transaction.atomic():
                Group.objects.create(name="half")
                gate()
                try:
                    Group.objects.create(name="other half")
                except BaseException as problem:
                    seen.append(type(problem))
                    raise

        async def main(executor: LeasingExecutor) -> None:
            call = asyncio.create_task(executor.run(works_on))
            await gate.until_reached()
            await cancel(call)
            gate.opened.set()

        def request() -> tuple[int, Any]:
            run_on_caller_thread(main)
            kept = vars(connections["default"])["rollback_exc"]
            return Group.objects.count(), kept

        assert run_in_thread(request) == (0, None)
        assert seen == [CallEndedError]

    def test_a_pooled_connection_is_closed_before_it_is_given_back(self, pool: None) -> None:
        statement = Statement()

        def request() -> tuple[bool, int]:
            Group.objects.count()
            before = connection.connection
            run_on_caller_thread(lambda executor: cancel_during(statement, executor))
            return before.closed, Group.objects.count()

        assert run_in_thread(request) == (True, 0)

    def test_a_call_that_ends_by_itself_keeps_the_connection(self) -> None:
        async def main(executor: LeasingExecutor) -> int:
            return await executor.run(Group.objects.count)

        def request() -> bool:
            Group.objects.count()
            before = connection.connection
            run_on_caller_thread(main)
            return connection.connection is before and is_untouched()

        assert run_in_thread(request)

    def test_it_can_be_switched_off(self) -> None:
        statement = Statement(sql(0.5))
        run_in_thread(
            lambda: run_on_caller_thread(lambda executor: cancel_during(statement, executor), interrupt=False)
        )
        assert statement.outcome == "ran"


@real_threads
def test_a_shared_connection_is_not_interrupted() -> None:
    statement = Statement(sql(0.5))

    def request() -> bool:
        Group.objects.count()
        before = connection.connection
        connection.inc_thread_sharing()
        try:
            run_on_caller_thread(lambda executor: cancel_during(statement, executor))
        finally:
            connection.dec_thread_sharing()
        return connection.connection is before

    assert run_in_thread(request)
    assert statement.outcome == "ran"


@real_threads
@pytest.mark.parametrize("kind", ["atomic", "no autocommit"])
def test_a_transaction_of_the_caller_is_not_interrupted(kind: str) -> None:
    statement = Statement(sql(0.5))

    def inside() -> bool:
        Group.objects.create(name="mine")
        before = connection.connection
        run_on_caller_thread(lambda executor: cancel_during(statement, executor))
        return connection.connection is before and Group.objects.count() == 1

    def request() -> tuple[bool, int]:
        if kind == "atomic":
            with transaction.atomic():
                kept = inside()
        else:
            transaction.set_autocommit(False)
            kept = inside()
            transaction.commit()
            transaction.set_autocommit(True)
        return kept, Group.objects.count()

    assert run_in_thread(request) == (True, 1)
    assert statement.outcome == "ran"


@pytest.mark.django_db
def test_the_transaction_of_a_test_is_not_interrupted() -> None:
    Group.objects.create(name="mine")
    statement = Statement(sql(0.5))
    run_on_caller_thread(lambda executor: cancel_during(statement, executor))
    assert statement.outcome == "ran"
    assert Group.objects.count() == 1
