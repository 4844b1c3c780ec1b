"""Running SQL after a disconnect: it is interrupted, and its thread is free again.

Only a stateless call is given up by leaving.
"""

import itertools

import pytest

from tests.servers.client import HANDSHAKE, STATELESS, Client, Request
from tests.servers.conftest import Place, ServerPool
from tests.servers.databases import activity
from tests.servers.harness import DOORS, Server
from tests.support.waiting import wait_until

TOOLS = ["sql", "async_sql", "talking_sql"]
LONG_SECONDS = 600.0
"""Seconds that a statement takes if it is not interrupted."""
_tags = map("sql-{}".format, itertools.count())


PLACES = ["uvicorn-asgi-sqlite", "uvicorn-view-sqlite", "daphne-asgi-sqlite"]


@pytest.fixture(params=[*PLACES, pytest.param("uvicorn-asgi-postgresql", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, pool: ServerPool) -> Place:
    """As elsewhere, and on both databases: servers and databases meet in code that knows neither."""
    kind, door, vendor = request.param.split("-")
    return Place(pool.get(kind, vendor), DOORS[door])


def is_running(server: Server, tag: str) -> bool:
    """Whether the statement of this call is running, or has been."""
    if server.events(tag, "sql-running") or server.events(tag, "sql-ended"):
        return True
    # Opening a connection is a statement or two as well.
    return on_postgres(server) and bool(server.events(tag, "sql-started")) and bool(running_statements(server))


def on_postgres(server: Server) -> bool:
    return server.database["ENGINE"].endswith("postgresql")


def running_statements(server: Server) -> list[str]:
    """The tools' statements that PostgreSQL is working on."""
    return [query for state, query in activity(server.database) if state == "active" and "pg_sleep" in query]


def begin(server: Server, client: Client, tool: str, seconds: float) -> tuple[str, Request]:
    """Begin a call, and wait until its statement is running."""
    tag = next(_tags)
    request = client.call(tool, {"tag": tag, "seconds": seconds})
    wait_until(lambda: is_running(server, tag), f"the statement of {tag} never runs")
    return tag, request


def test_a_disconnect_interrupts_the_sql_of_a_stateless_call(server: Server, path: str) -> None:
    with Client(server.port, path, STATELESS) as client:
        for tool, reset in itertools.product(TOOLS, (False, True)):
            tag, request = begin(server, client, tool, LONG_SECONDS)
            request.leave(reset=reset)
            assert server.event(tag, "sql-ended")["problem"] == "OperationalError"
            if on_postgres(server):
                wait_until(lambda: not running_statements(server))
        assert client.call("echo_sql", {"number": 5}).answer().value == 5
    server.settle()


def test_cancelling_interrupts_the_sql_of_a_handshake_call(server: Server, path: str) -> None:
    with Client(server.port, path, HANDSHAKE) as client:
        tag, request = begin(server, client, "sql", LONG_SECONDS)
        client.notify("notifications/cancelled", {"requestId": client.last_id})
        assert server.event(tag, "sql-ended")["problem"] == "OperationalError"
        assert request.answer().messages == []
        assert client.call("echo_sql", {"number": 5}).answer().value == 5
    server.settle()


def test_a_disconnect_does_not_interrupt_the_sql_of_a_handshake_call(server: Server, path: str) -> None:
    with Client(server.port, path, HANDSHAKE) as client:
        for tool in ("sql", "talking_sql"):
            tag, request = begin(server, client, tool, 0.1)
            request.leave()
            assert server.event(tag, "sql-ended")["problem"] is None
            server.event(tag, "ended")
    server.settle()
