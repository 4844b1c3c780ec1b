"""More calls than threads: the surplus is refused, the rest is answered, and no call fails by the end of another."""

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from mcp_django.wiring import LOG_THREADS
from tests.load.conftest import Place
from tests.servers.client import STATELESS, Client
from tests.servers.databases import Database, activity
from tests.servers.harness import DOORS, Server, serve
from tests.support.waiting import wait_until

THREADS, QUEUE = 4, 100
CALLS = 200
STATEMENT_SECONDS = 0.01
"""How long each call that is served works in the database."""
CANCELS = 120
LIMITS = {"THREADS": THREADS, "THREAD_QUEUE": QUEUE, "IN_FLIGHT": 1000}
SETTINGS = {"MCP": {"AUTH": "tests.servers.site.people.anyone", "LIMITS": LIMITS}}


def test_surplus_calls_are_refused_at_once_and_the_others_answered(database: Database) -> None:
    # Connections that stay are counted best: a closed one is seen for some milliseconds more.
    kept = {**database, "CONN_MAX_AGE": 600}
    with serve("uvicorn", settings=SETTINGS, database=kept) as server, Client(server.port, "/mcp", STATELESS) as client:
        with connections_watched(server) as counts:
            holding = [client.call("poll", {"tag": f"holds-{number}"}) for number in range(THREADS)]
            wait_until(lambda: len(server.probe()["running"]) == THREADS)
            waiting = [
                client.call("sql", {"tag": f"waits-{number}", "seconds": STATEMENT_SECONDS}) for number in range(QUEUE)
            ]
            wait_until(lambda: server.probe()["in_flight"] == THREADS + QUEUE)
            for _ in range(CALLS - THREADS - QUEUE):
                expect_refusal(client)
            for call in holding:
                call.leave()
            assert [call.answer().value for call in waiting] == [f"waits-{number}" for number in range(QUEUE)]
        print(f"connections: {max(counts, default='not counted')}")
        # The log is followed while principals are cached, because they may change in other processes.
        assert max(counts, default=0) <= THREADS + LOG_THREADS
        server.settle()


def expect_refusal(client: Client) -> None:
    """Call once too often."""
    answer = client.call("sql", {"tag": "surplus"}).answer()
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert "error" in answer.message


@contextmanager
def connections_watched(server: Server) -> Iterator[list[int]]:
    """Counts the server's connections to PostgreSQL again and again; the counts."""
    counts: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            counts.append(len(activity(server.database)))

    if server.database["ENGINE"].endswith("sqlite3"):
        yield counts
        return
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield counts
    finally:
        done.set()
        thread.join()


def test_interrupting_one_call_never_fails_another(place: Place) -> None:
    with serve(place.kind, settings=SETTINGS, database=place.database) as server:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: disconnect_during_sql(server, number), range(CANCELS)))
        server.settle()
        statements = server.events(what="sql-ended")
        interrupted = [statement for statement in statements if statement["problem"] is not None]
        print(f"{place.kind}: {CANCELS} left, {len(statements)} statements, {len(interrupted)} interrupted")
        assert len(interrupted) > CANCELS // 10
        assert {statement["thread"] for statement in statements} <= {
            f"mcp-thread-{number}" for number in range(THREADS)
        }


def disconnect_during_sql(server: Server, number: int) -> None:
    """Leave a call whose statement is running, or is about to; and see others answered at the same moment and after."""
    chance = random.Random(number)
    with Client(server.port, chance.choice(list(DOORS.values())), STATELESS) as client:
        request = client.call(chance.choice(["sql", "async_sql"]), {"tag": f"{number}", "seconds": 600})
        if chance.random() < 0.5:
            server.event(f"{number}", "sql-started")
        time.sleep(chance.uniform(0, 0.02))
        innocent = client.call("echo_sql", {"number": number})
        request.leave(reset=chance.random() < 0.5)
        assert innocent.answer().value == number
        assert client.call("echo_sql", {"number": number}).answer().value == number
