"""Threads under load: calls beyond their queue are refused at once; a cancelled call ends alone."""

import asyncio
import logging
import random
import secrets
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, connections
from django.db.backends.signals import connection_created

from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.server.ports import Overloaded
from tests.runtime.serving import WAIT_SECONDS, eventually, real_threads, run_sql, serve, sql, start_call, wait_until

pytestmark = real_threads
THREADS = 4


def threads() -> set[str]:
    """List the threads of calls by name; those of the event log may exist from earlier."""
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("mcp-thread-")}


class Connections:
    """The most connections of the threads at once, from the server if it reports them, else counted as they open."""

    def __init__(self, name: str) -> None:
        self.now = self.most = 0
        self._name, self._opened = name, set[int]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Connections":
        connection_created.connect(self._note)
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._over.set()
        self._thread.join()
        connection_created.disconnect(self._note)

    def _note(self, connection: Any, **_: Any) -> None:
        if threading.current_thread().name.startswith("mcp-thread") and connection.vendor != "postgresql":
            self._opened.add(id(connection))
            self.now = self.most = len(self._opened)

    def _watch(self) -> None:
        if connection.vendor != "postgresql":
            return
        while not self._over.wait(0.005):
            self.now = self._count()
            self.most = max(self.most, self.now)
        connection.close()

    def _count(self) -> int:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND pid <> pg_backend_pid()",
                [self._name],
            )
            return int(cursor.fetchone()[0])


@pytest.fixture
def named() -> Iterator[str]:
    """Provide the application name of the threads' connections."""
    # One for each test: the server closes the last one's connections in its own time.
    name, options = f"mcp-threads-{secrets.token_hex(4)}", connections.settings["default"]["OPTIONS"]
    if connection.vendor != "postgresql":
        yield name
        return
    options["application_name"] = name
    yield name
    del options["application_name"]


@pytest.fixture(params=["closed after each call", "kept", "pooled"])
def threads_named(request: Any, named: str) -> str:
    """Set how connections are kept between two calls."""
    if request.param != "closed after each call":
        request.getfixturevalue("pool" if request.param == "pooled" else "kept_connections")
    return named


def test_a_burst_is_served_up_to_the_queue_and_the_rest_refused_at_once(threads_named: str) -> None:
    queue, calls = 40, 400
    refused: list[Overloaded] = []
    all_have_come = threading.Event()

    def work() -> str:
        assert all_have_come.wait(WAIT_SECONDS)
        return run_sql(sql(0.01))

    async def one(executor: LeasingExecutor) -> str | None:
        try:
            with executor.context():
                return str(await executor.run(work))
        except Overloaded as problem:
            refused.append(problem)
            return None

    async def main(executor: LeasingExecutor) -> list[str | None]:
        burst = [start_call(one(executor)) for _ in range(calls)]
        await eventually(lambda: len(refused) == calls - THREADS - queue)  # while no thread is free
        all_have_come.set()
        return await asyncio.gather(*burst)

    with Connections(threads_named) as found:
        answers = serve(main, threads=THREADS, queue=queue)
    assert answers.count("ran") == THREADS + queue
    assert len(refused) == calls - THREADS - queue
    if connection.vendor != "postgresql" or not closed_after_each_call():
        # A server may close a connection only after the next one has been opened.
        assert 1 <= found.most <= THREADS


def closed_after_each_call() -> bool:
    options = connections.settings["default"]
    return options["CONN_MAX_AGE"] == 0 and "pool" not in options["OPTIONS"]


def test_cancelled_sql_does_not_affect_other_calls(threads_named: str, caplog: Any) -> None:
    """Cancel 300 calls while their SQL runs, among 300 on the same threads that must all succeed."""
    chance = random.Random(7)

    async def run_cancelled_call(executor: LeasingExecutor) -> None:
        loop, begun = asyncio.get_running_loop(), asyncio.Event()

        def work() -> str:
            loop.call_soon_threadsafe(begun.set)
            return run_sql(sql(5))

        async def run() -> str:
            with executor.context():
                return await executor.run(work)

        call = start_call(run())
        await begun.wait()
        for _ in range(chance.randrange(30)):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()

    async def run_other_call(executor: LeasingExecutor, seconds: float) -> str:
        with executor.context():
            return await executor.run(run_sql, sql(seconds))

    async def main(executor: LeasingExecutor) -> list[str]:
        async def cancel_all() -> None:
            for _ in range(15):
                await asyncio.gather(*[run_cancelled_call(executor) for _ in range(20)])

        async def run_others() -> list[str]:
            return [await start_call(run_other_call(executor, chance.random() * 0.004)) for _ in range(30)]

        _, *answers = await asyncio.gather(cancel_all(), *[run_others() for _ in range(10)])
        # A wait for all threads at once ends after the last interruption.
        barrier = threading.Barrier(THREADS, timeout=WAIT_SECONDS)
        await asyncio.gather(*[executor.run(barrier.wait) for _ in range(THREADS)])
        await eventually(lambda: not any(name == "mcp-interrupt" for name in threads()))
        assert len(threads()) == THREADS
        await eventually(lambda: found.now <= THREADS)
        return [answer for some in answers for answer in some]

    with Connections(threads_named) as found, caplog.at_level(logging.INFO, "mcp_django.threads"):
        answers = serve(main, threads=THREADS, queue=1000)
    assert answers == ["ran"] * 300
    assert caplog.text.count("SQL of a finished call was cancelled") == 300
    assert [record for record in caplog.records if record.name == "mcp_django.threads" and record.levelno > 20] == []
    if connection.vendor != "postgresql":
        assert found.most <= THREADS


def test_a_thread_sees_that_its_call_was_cancelled() -> None:
    """`ctx.cancelled` reads the flag of its own call; the SQL of another call continues."""
    from mcp_django import Context
    from tests.server.client import PipelineClient, make_server

    server = make_server(options={"timeout": 0.05})
    seen, begun = threading.Event(), threading.Event()

    @server.tool
    def works(ctx: Context) -> None:
        begun.set()
        wait_until(lambda: ctx.cancelled)
        seen.set()

    async def main(executor: LeasingExecutor) -> str:
        text = await PipelineClient(server).error("works")
        assert await asyncio.to_thread(seen.wait, WAIT_SECONDS)
        return text

    assert "took longer than 0.05 seconds" in serve(main)
