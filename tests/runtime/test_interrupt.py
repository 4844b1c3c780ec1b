"""What becomes of the SQL of a call that is over. Its statements would take a minute: whoever waits for one fails."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import OperationalError, connection, transaction

from mcp_django.runtime.threads import sql_cancellation
from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.runtime.threads.sql_cancellation import CallEndedError
from tests.runtime.serving import (
    WAIT_SECONDS,
    Gate,
    Statement,
    eventually,
    in_flight,
    real_threads,
    run_sql,
    serve,
    sql,
)

pytestmark = real_threads


async def cancel(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def interrupters() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "mcp-interrupt"]


async def plain(executor: LeasingExecutor, work: Callable[[], Any]) -> Any:
    """A plain function outside of any call."""
    return await executor.run(work)


async def plain_in_a_call(executor: LeasingExecutor, work: Callable[[], Any]) -> Any:
    with executor.context():
        return await executor.run(work)


async def orm_in_a_call(executor: LeasingExecutor, work: Callable[[], Any]) -> Any:
    with executor.context():
        return await sync_to_async(work)()


async def task_in_a_call(executor: LeasingExecutor, work: Callable[[], Any]) -> Any:
    with executor.context():
        return await asyncio.gather(sync_to_async(work)(), asyncio.Event().wait())


KINDS = [plain, plain_in_a_call, orm_in_a_call, task_in_a_call]
Kind = Callable[[LeasingExecutor, Callable[[], Any]], Awaitable[Any]]


@pytest.mark.parametrize("kind", KINDS)
def test_the_sql_of_a_cancelled_call_ends_and_frees_its_thread(kind: Kind) -> None:
    statement = Statement()

    async def main(executor: LeasingExecutor) -> Any:
        call = in_flight(kind(executor, statement))
        await statement.until_begun()
        await cancel(call)
        return await in_flight(executor.run(lambda: statement.outcome))

    assert serve(main, threads=1) is OperationalError
    assert interrupters() == []


def test_it_ends_however_early_the_cancellation_comes(subtests: pytest.Subtests) -> None:
    """Before the function has begun, while it connects, before the database has the statement."""
    for kind in KINDS:
        with subtests.test(kind=kind):

            async def main(executor: LeasingExecutor, kind: Kind = kind) -> str:
                for turns in range(30):
                    call = in_flight(kind(executor, lambda: run_sql(sql())))
                    for _ in range(turns * turns // 4):
                        await asyncio.sleep(0)
                    await cancel(call)
                return await in_flight(executor.run(lambda: "free"))

            assert serve(main, threads=1, queue=100) == "free"


def test_rows_that_are_still_being_fetched_are_interrupted_too() -> None:
    """The statement itself has long returned: SQLite finds row after row, PostgreSQL's server-side cursor too."""
    fetching = threading.Event()

    def fetch() -> None:
        with transaction.atomic(), connection.chunked_cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute("SELECT pg_sleep(60) FROM generate_series(1, 10)")
            else:
                cursor.execute(
                    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 1000000000) "
                    "SELECT x FROM n WHERE x = 1 OR x = 999999999"
                )
            fetching.set()
            cursor.fetchmany(2)

    async def main(executor: LeasingExecutor) -> str:
        call = in_flight(executor.run(fetch))
        assert await asyncio.to_thread(fetching.wait, WAIT_SECONDS)
        await cancel(call)
        return await executor.run(lambda: "free")

    assert serve(main, threads=1) == "free"


def test_a_task_that_a_handler_left_behind_is_cancelled_with_its_sql(caplog: Any) -> None:
    statement = Statement()

    async def handler(executor: LeasingExecutor, left: list["asyncio.Task[Any]"]) -> str:
        with executor.context():
            left.append(asyncio.create_task(sync_to_async(statement)()))
            left.append(asyncio.create_task(sync_to_async(run_sql)(sql())))
            await statement.until_begun()
            return "done"

    async def main(executor: LeasingExecutor) -> tuple[str, list[bool]]:
        left: list[asyncio.Task[Any]] = []
        answer = await in_flight(handler(executor, left))
        await asyncio.wait(left)
        await executor.run(lambda: "the thread is back")
        return answer, [task.cancelled() for task in left]

    with caplog.at_level(logging.DEBUG):
        assert serve(main, threads=1) == ("done", [True, True])
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert "SQL of a finished call was cancelled" in caplog.text


def test_nothing_is_interrupted_when_the_call_has_waited_for_all_it_began() -> None:
    begun: list[str] = []

    async def handler(executor: LeasingExecutor) -> None:
        with executor.context():
            await asyncio.gather(*[Group.objects.acount() for _ in range(5)])

    async def main(executor: LeasingExecutor) -> None:
        for _ in range(20):
            await in_flight(handler(executor))
            await executor.run(Group.objects.count)
            begun.extend(thread.name for thread in interrupters())

    serve(main)
    assert begun == []


def test_a_function_that_goes_on_is_stopped_at_its_next_statement(gate: Gate, kept_connections: None) -> None:
    outcomes: list[type[BaseException] | None] = []

    def attempt() -> None:
        try:
            run_sql("INSERT INTO auth_group (name) VALUES ('never') RETURNING name" if not outcomes else "SELECT 1")
        except Exception as problem:
            outcomes.append(type(problem))
        else:
            outcomes.append(None)

    def stubborn() -> None:
        with transaction.atomic():
            attempt()
            gate()
            attempt()
            attempt()
            attempt()

    async def main(executor: LeasingExecutor) -> int:
        call = in_flight(executor.run(stubborn))
        await gate.until_reached()
        await cancel(call)
        gate.opened.set()
        return await executor.run(Group.objects.count)

    assert serve(main, threads=1) == 0
    assert outcomes == [None, CallEndedError, CallEndedError, CallEndedError]


def test_an_interrupted_connection_is_closed_and_the_next_call_gets_another(kept_connections: None) -> None:
    statement = Statement()

    def raw() -> Any:
        Group.objects.count()
        return connection.connection

    def is_closed(raw: Any) -> bool:
        try:
            raw.execute("SELECT 1")
        except Exception as problem:
            return "closed" in str(problem)
        return False

    async def main(executor: LeasingExecutor) -> tuple[bool, bool]:
        before = await executor.run(raw)
        call = in_flight(executor.run(statement))
        await statement.until_begun()
        await cancel(call)
        after = await executor.run(raw)
        return before is after, await executor.run(is_closed, before)

    assert serve(main, threads=1) == (False, True)


def test_the_sql_of_other_calls_goes_on(kept_connections: None) -> None:
    victims = [Statement() for _ in range(3)]
    innocent = Statement(sql(0.5))

    async def main(executor: LeasingExecutor) -> Any:
        call = in_flight(executor.run(innocent))
        await innocent.until_begun()
        for victim in victims:
            doomed = in_flight(executor.run(victim))
            await victim.until_begun()
            await cancel(doomed)
        await call
        return innocent.outcome

    assert serve(main, threads=2, queue=5) == "ran"


def test_a_call_that_rests_keeps_what_its_tasks_run_until_it_is_over() -> None:
    resting = Statement(sql(0.3))
    doomed = Statement()

    async def handler(executor: LeasingExecutor) -> None:
        with executor.context():
            running = asyncio.create_task(sync_to_async(resting)())
            await resting.until_begun()
            executor.release_thread()
            assert await executor.run(lambda: "on another thread") == "on another thread"
            await running
            left = asyncio.create_task(sync_to_async(doomed)())
            await doomed.until_begun()
            executor.release_thread()
            assert not left.done()

    async def main(executor: LeasingExecutor) -> None:
        await in_flight(handler(executor))
        await doomed.until_ended()

    serve(main)
    assert (resting.outcome, doomed.outcome) == ("ran", OperationalError)


def test_the_next_call_on_the_thread_is_not_the_one_that_is_interrupted() -> None:
    """A question ended the lease of the first call; the thread is another call's when the first call ends."""
    other = Statement(sql(0.3))

    async def first(executor: LeasingExecutor) -> None:
        with executor.context():
            task = asyncio.create_task(sync_to_async(run_sql)(sql(0.05)))
            await asyncio.sleep(0)
            executor.release_thread()
            await task
            await other.until_begun()

    async def main(executor: LeasingExecutor) -> None:
        call = in_flight(first(executor))
        await asyncio.sleep(0)
        await asyncio.gather(call, in_flight(executor.run(other)))

    serve(main, threads=1)
    assert other.outcome == "ran"


def test_without_the_option_sql_runs_to_its_end() -> None:
    statement = Statement(sql(0.3))

    async def main(executor: LeasingExecutor) -> Any:
        call = in_flight(executor.run(statement))
        await statement.until_begun()
        await cancel(call)
        return await executor.run(lambda: statement.outcome)

    assert serve(main, threads=1, interrupt=False) == "ran"


def test_the_loop_turns_while_sql_is_interrupted(monkeypatch: Any) -> None:
    """An unreachable server takes its time to refuse a cancellation."""
    statement, asked, go = Statement(), threading.Event(), threading.Event()
    real = sql_cancellation._interrupt_connection

    def interrupt_late(connection: Any) -> None:
        asked.set()
        assert go.wait(WAIT_SECONDS)
        real(connection)

    monkeypatch.setattr(sql_cancellation, "_interrupt_connection", interrupt_late)

    async def main(executor: LeasingExecutor) -> None:
        call = in_flight(executor.run(statement))
        await statement.until_begun()
        await cancel(call)
        await eventually(asked.is_set)  # the interruption hangs, and the loop gets this far
        assert not statement.ended.is_set()
        go.set()
        await statement.until_ended()

    serve(main, threads=1)


def test_a_function_in_python_is_left_to_end_and_its_thread_comes_back(gate: Gate, kept_connections: None) -> None:
    async def main(executor: LeasingExecutor) -> str:
        await executor.run(Group.objects.count)
        call = in_flight(executor.run(gate))
        await gate.until_reached()
        await cancel(call)
        await eventually(interrupters)
        gate.opened.set()
        free = await executor.run(lambda: "free")
        await eventually(lambda: not interrupters())
        return free

    assert serve(main, threads=1) == "free"


@pytest.mark.parametrize("kind", ["pool", "returning_pool"])
def test_a_pooled_connection_of_a_call_that_is_over_is_closed_before_it_is_given_back(
    gate: Gate, kind: str, request: pytest.FixtureRequest
) -> None:
    """A cancellation may still be on its way to it, and would hit the call that gets it next."""
    request.getfixturevalue(kind)
    raws: list[Any] = []

    def closes() -> None:
        Group.objects.count()
        raws.append(connection.connection)
        gate()
        connection.close()
        raws.append(raws[0].closed)

    async def main(executor: LeasingExecutor) -> None:
        call = in_flight(executor.run(closes))
        await gate.until_reached()
        await cancel(call)
        gate.opened.set()
        await executor.run(Group.objects.count)

    serve(main, threads=1)
    assert raws[1] is True


class TestEngines:
    """Without a database: what is asked of whose connection."""

    @staticmethod
    def asked(vendor: str, raw: Any) -> bool:
        """Does a shut gate ask this connection to stop?"""
        sql_cancellation._interrupt_connection(SimpleNamespace(vendor=vendor, connection=raw, alias="default"))  # type: ignore[arg-type]
        return raw.called.is_set()

    @staticmethod
    def raw(**methods: str) -> Any:
        raw = SimpleNamespace(called=threading.Event(), info=SimpleNamespace(transaction_status=1))
        for name in methods:
            setattr(raw, name, lambda **kwargs: raw.called.set())
        return raw

    def test_postgresql_and_sqlite_are_asked_to_stop(self, subtests: pytest.Subtests) -> None:
        for vendor, method in [("sqlite", "interrupt"), ("postgresql", "cancel_safe"), ("postgresql", "cancel")]:
            with subtests.test(vendor=vendor, method=method):
                assert self.asked(vendor, self.raw(**{method: ""}))

    def test_a_connection_to_postgresql_that_does_nothing_is_left_alone(self) -> None:
        raw = self.raw(cancel_safe="")
        raw.info.transaction_status = 0
        assert not self.asked("postgresql", raw)

    def test_other_engines_are_not(self, subtests: pytest.Subtests) -> None:
        for vendor in ["mysql", "oracle"]:
            with subtests.test(vendor=vendor):
                assert not self.asked(vendor, self.raw(interrupt="", cancel="", cancel_safe=""))
