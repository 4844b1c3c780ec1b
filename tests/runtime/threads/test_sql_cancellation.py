"""The SQL of a call that has ended. Its statements would take a minute: a test that waits for one fails."""

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
    real_threads,
    run_sql,
    serve,
    sql,
    start_call,
)

pytestmark = real_threads


async def cancel(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def interrupters() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "mcp-interrupt"]


async def run_plain(executor: LeasingExecutor, work: Callable[[], Any]) -> Any:
    """Run a plain function outside of any call."""
    return await executor.run(work)


async def run_plain_in_a_call(executor: LeasingExecutor, work: Callable[[], Any]) -> Any:
    with executor.context():
        return await executor.run(work)


async def run_orm_in_a_call(executor: LeasingExecutor, work: Callable[[], Any]) -> Any:
    with executor.context():
        return await sync_to_async(work)()


async def run_task_in_a_call(executor: LeasingExecutor, work: Callable[[], Any]) -> Any:
    with executor.context():
        return await asyncio.gather(sync_to_async(work)(), asyncio.Event().wait())


KINDS = [run_plain, run_plain_in_a_call, run_orm_in_a_call, run_task_in_a_call]
Kind = Callable[[LeasingExecutor, Callable[[], Any]], Awaitable[Any]]


@pytest.mark.parametrize("kind", KINDS)
def test_the_sql_of_a_cancelled_call_ends_and_frees_its_thread(kind: Kind) -> None:
    statement = Statement()

    async def main(executor: LeasingExecutor) -> Any:
        call = start_call(kind(executor, statement))
        await statement.until_begun()
        await cancel(call)
        return await start_call(executor.run(lambda: statement.outcome))

    assert serve(main, threads=1) is OperationalError
    assert interrupters() == []


def test_an_early_cancellation_ends_the_sql(subtests: pytest.Subtests) -> None:
    """Before the function has begun, during the connect, before the database has the statement."""
    for kind in KINDS:
        with subtests.test(kind=kind):

            async def main(executor: LeasingExecutor, kind: Kind = kind) -> str:
                for turns in range(30):
                    call = start_call(kind(executor, lambda: run_sql(sql())))
                    for _ in range(turns * turns // 4):
                        await asyncio.sleep(0)
                    await cancel(call)
                return await start_call(executor.run(lambda: "free"))

            assert serve(main, threads=1, queue=100) == "free"


def test_rows_that_are_still_being_fetched_are_interrupted_too() -> None:
    """The statement itself returned early: SQLite and PostgreSQL's server-side cursor fetch row after row."""
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
        call = start_call(executor.run(fetch))
        assert await asyncio.to_thread(fetching.wait, WAIT_SECONDS)
        await cancel(call)
        return await executor.run(lambda: "free")

    assert serve(main, threads=1) == "free"


def test_a_task_left_behind_by_a_handler_is_cancelled_with_its_sql(caplog: Any) -> None:
    statement = Statement()

    async def handler(executor: LeasingExecutor, left: list["asyncio.Task[Any]"]) -> str:
        with executor.context():
            left.append(asyncio.create_task(sync_to_async(statement)()))
            left.append(asyncio.create_task(sync_to_async(run_sql)(sql())))
            await statement.until_begun()
            return "done"

    async def main(executor: LeasingExecutor) -> tuple[str, list[bool]]:
        left: list[asyncio.Task[Any]] = []
        answer = await start_call(handler(executor, left))
        await asyncio.wait(left)
        await executor.run(lambda: "the thread is back")
        return answer, [task.cancelled() for task in left]

    with caplog.at_level(logging.DEBUG):
        assert serve(main, threads=1) == ("done", [True, True])
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert "SQL of a finished call was cancelled" in caplog.text


def test_nothing_is_interrupted_when_the_call_awaited_all_its_tasks() -> None:
    begun: list[str] = []

    async def handler(executor: LeasingExecutor) -> None:
        with executor.context():
            await asyncio.gather(*[Group.objects.acount() for _ in range(5)])

    async def main(executor: LeasingExecutor) -> None:
        for _ in range(20):
            await start_call(handler(executor))
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

    def ignore_interruption() -> None:
        with transaction.atomic():
            attempt()
            gate()
            attempt()
            attempt()
            attempt()

    async def main(executor: LeasingExecutor) -> int:
        call = start_call(executor.run(ignore_interruption))
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
        call = start_call(executor.run(statement))
        await statement.until_begun()
        await cancel(call)
        after = await executor.run(raw)
        return before is after, await executor.run(is_closed, before)

    assert serve(main, threads=1) == (False, True)


def test_the_sql_of_other_calls_goes_on(kept_connections: None) -> None:
    victims = [Statement() for _ in range(3)]
    untouched = Statement(sql(0.5))

    async def main(executor: LeasingExecutor) -> Any:
        call = start_call(executor.run(untouched))
        await untouched.until_begun()
        for interrupted in victims:
            doomed = start_call(executor.run(interrupted))
            await interrupted.until_begun()
            await cancel(doomed)
        await call
        return untouched.outcome

    assert serve(main, threads=2, queue=5) == "ran"


def test_the_sql_of_tasks_of_a_waiting_call_runs_until_the_call_is_over() -> None:
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
        await start_call(handler(executor))
        await doomed.until_ended()

    serve(main)
    assert (resting.outcome, doomed.outcome) == ("ran", OperationalError)


def test_the_next_call_on_the_thread_is_not_interrupted() -> None:
    """A question ended the lease of the first call; another call has the thread when the first call ends."""
    other = Statement(sql(0.3))

    async def first(executor: LeasingExecutor) -> None:
        with executor.context():
            task = asyncio.create_task(sync_to_async(run_sql)(sql(0.05)))
            await asyncio.sleep(0)
            executor.release_thread()
            await task
            await other.until_begun()

    async def main(executor: LeasingExecutor) -> None:
        call = start_call(first(executor))
        await asyncio.sleep(0)
        await asyncio.gather(call, start_call(executor.run(other)))

    serve(main, threads=1)
    assert other.outcome == "ran"


def test_without_the_option_sql_runs_to_its_end() -> None:
    statement = Statement(sql(0.3))

    async def main(executor: LeasingExecutor) -> Any:
        call = start_call(executor.run(statement))
        await statement.until_begun()
        await cancel(call)
        return await executor.run(lambda: statement.outcome)

    assert serve(main, threads=1, interrupt=False) == "ran"


def test_the_loop_is_not_blocked_while_sql_is_interrupted(monkeypatch: Any) -> None:
    """An unreachable server takes its time to refuse a cancellation."""
    statement, asked, go = Statement(), threading.Event(), threading.Event()
    real = sql_cancellation._interrupt_connection

    def interrupt_late(connection: Any) -> None:
        asked.set()
        assert go.wait(WAIT_SECONDS)
        real(connection)

    monkeypatch.setattr(sql_cancellation, "_interrupt_connection", interrupt_late)

    async def main(executor: LeasingExecutor) -> None:
        call = start_call(executor.run(statement))
        await statement.until_begun()
        await cancel(call)
        await eventually(asked.is_set)  # the interruption hangs, and the loop gets this far
        assert not statement.ended.is_set()
        go.set()
        await statement.until_ended()

    serve(main, threads=1)


def test_a_python_function_runs_to_its_end_and_its_thread_is_reused(gate: Gate, kept_connections: None) -> None:
    async def main(executor: LeasingExecutor) -> str:
        await executor.run(Group.objects.count)
        call = start_call(executor.run(gate))
        await gate.until_reached()
        await cancel(call)
        await eventually(interrupters)
        gate.opened.set()
        free = await executor.run(lambda: "free")
        await eventually(lambda: not interrupters())
        return free

    assert serve(main, threads=1) == "free"


@pytest.mark.parametrize("kind", ["pool", "returning_pool"])
def test_a_pooled_connection_of_an_ended_call_is_closed_before_its_return(
    gate: Gate, kind: str, request: pytest.FixtureRequest
) -> None:
    """A cancellation may still be on its way to it, and would hit the next call on it."""
    request.getfixturevalue(kind)
    raws: list[Any] = []

    def closes() -> None:
        Group.objects.count()
        raws.append(connection.connection)
        gate()
        connection.close()
        raws.append(raws[0].closed)

    async def main(executor: LeasingExecutor) -> None:
        call = start_call(executor.run(closes))
        await gate.until_reached()
        await cancel(call)
        gate.opened.set()
        await executor.run(Group.objects.count)

    serve(main, threads=1)
    assert raws[1] is True


class TestEngines:
    """Interruptions without a database: which methods are called on which connection."""

    @staticmethod
    def interrupts(vendor: str, raw: Any) -> bool:
        """Return True if a closed gate interrupts this connection."""
        sql_cancellation._interrupt_connection(SimpleNamespace(vendor=vendor, connection=raw, alias="default"))  # type: ignore[arg-type]
        return raw.called.is_set()

    @staticmethod
    def raw(**methods: str) -> Any:
        raw = SimpleNamespace(called=threading.Event(), info=SimpleNamespace(transaction_status=1))
        for name in methods:
            setattr(raw, name, lambda **kwargs: raw.called.set())
        return raw

    def test_postgresql_and_sqlite_are_interrupted(self, subtests: pytest.Subtests) -> None:
        for vendor, method in [("sqlite", "interrupt"), ("postgresql", "cancel_safe"), ("postgresql", "cancel")]:
            with subtests.test(vendor=vendor, method=method):
                assert self.interrupts(vendor, self.raw(**{method: ""}))

    def test_an_idle_connection_to_postgresql_is_not_interrupted(self) -> None:
        raw = self.raw(cancel_safe="")
        raw.info.transaction_status = 0
        assert not self.interrupts("postgresql", raw)

    def test_other_engines_are_not_interrupted(self, subtests: pytest.Subtests) -> None:
        for vendor in ["mysql", "oracle"]:
            with subtests.test(vendor=vendor):
                assert not self.interrupts(vendor, self.raw(interrupt="", cancel="", cancel_safe=""))
