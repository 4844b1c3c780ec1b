"""Threads under load: calls beyond their number and queue are refused at once, and a cancelled call ends alone."""

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
from tests.runtime.serving import WAIT_SECONDS, eventually, in_flight, real_threads, run_sql, serve, sql, wait_until

pytestmark = real_threads
THREADS = 4


def threads() -> set[str]:
    """The threads of calls, by name; those of the event log may be there from earlier."""
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("mcp-thread-")}


class Connections:
    """How many connections the threads have at most, asked of the server where it knows, else counted as they open."""

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
    """The application name of the threads' connections."""
    # Another one for each test: the server lets go of the last one's when it comes to it.
    name, options = f"mcp-threads-{secrets.token_hex(4)}", connections.settings["default"]["OPTIONS"]
    if connection.vendor != "postgresql":
        yield name
        return
    options["application_name"] = name
    yield name
    del options["application_name"]


@pytest.fixture(params=["closed after each call", "kept", "pooled"])
def threads_named(request: Any, named: str) -> str:
    """What becomes of connections between two calls."""
    if request.param != "closed after each call":
        request.getfixturevalue("pool" if request.param == "pooled" else "kept_connections")
    return named


def test_a_burst_is_served_as_far_as_the_queue_goes_and_the_surplus_refused_at_once(threads_named: str) -> None:
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
        burst = [in_flight(one(executor)) for _ in range(calls)]
        await eventually(lambda: len(refused) == calls - THREADS - queue)  # while no thread is free
        all_have_come.set()
        return await asyncio.gather(*burst)

    with Connections(threads_named) as found:
        answers = serve(main, threads=THREADS, queue=queue)
    assert answers.count("ran") == THREADS + queue
    assert len(refused) == calls - THREADS - queue
    if connection.vendor != "postgresql" or not closed_after_each_call():
        # A server lets go of a closed connection when it comes to it, perhaps after the next one has been opened.
        assert 1 <= found.most <= THREADS


def closed_after_each_call() -> bool:
    options = connections.settings["default"]
    return options["CONN_MAX_AGE"] == 0 and "pool" not in options["OPTIONS"]


def test_cancelled_sql_takes_no_innocent_call_along(threads_named: str, caplog: Any) -> None:
    """300 calls are cancelled while their SQL runs, among 300 on the same threads that must all succeed."""
    chance = random.Random(7)

    async def victim(executor: LeasingExecutor) -> None:
        loop, begun = asyncio.get_running_loop(), asyncio.Event()

        def work() -> str:
            loop.call_soon_threadsafe(begun.set)
            return run_sql(sql(5))

        async def run() -> str:
            with executor.context():
                return await executor.run(work)

        call = in_flight(run())
        await begun.wait()
        for _ in range(chance.randrange(30)):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()

    async def innocent(executor: LeasingExecutor, seconds: float) -> str:
        with executor.context():
            return await executor.run(run_sql, sql(seconds))

    async def main(executor: LeasingExecutor) -> list[str]:
        async def victims() -> None:
            for _ in range(15):
                await asyncio.gather(*[victim(executor) for _ in range(20)])

        async def innocents() -> list[str]:
            return [await in_flight(innocent(executor, chance.random() * 0.004)) for _ in range(30)]

        _, *answers = await asyncio.gather(victims(), *[innocents() for _ in range(10)])
        # Whoever waits for all threads at once waits until the last interruption is over.
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
    """The flag that `ctx.cancelled` reads is the call's; the SQL of an innocent one goes on meanwhile."""
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
