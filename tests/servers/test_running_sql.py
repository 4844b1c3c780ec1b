"""What becomes of SQL that is running when its client leaves: it is interrupted, and its thread is free again.

Only a stateless call is given up by leaving. Delays are taken as in `test_disconnects`.
"""

import itertools

import pytest

from tests.servers.client import HANDSHAKE, STATELESS, Client, Request
from tests.servers.databases import activity
from tests.servers.delays import median
from tests.servers.harness import Server, until

ENDED_WITHIN = 0.2
"""Seconds from the client's close to the end of the statement."""
TOOLS = ["sql", "async_sql", "talking_sql"]
_tags = map("sql-{}".format, itertools.count())


def runs(server: Server, tag: str) -> bool:
    """Is the statement of this call running, or has it been?"""
    if server.events(tag, "sql-running") or server.events(tag, "sql-ended"):
        return True
    on_postgres = server.database["ENGINE"].endswith("postgresql")
    # Opening a connection is a statement or two as well.
    return on_postgres and bool(server.events(tag, "sql-started")) and any("pg_sleep" in sql for sql in active(server))


def active(server: Server) -> list[str]:
    """Statements that PostgreSQL is working on."""
    return [query for state, query in activity(server.database) if state == "active"]


def begun(server: Server, client: Client, tool: str, seconds: float) -> tuple[str, Request]:
    """A call whose statement is running."""
    tag = next(_tags)
    request = client.call(tool, {"tag": tag, "seconds": seconds})
    until(lambda: runs(server, tag))
    return tag, request


@pytest.mark.parametrize("tool", TOOLS)
def test_leaving_interrupts_the_sql_of_a_stateless_call(working: Server, path: str, tool: str) -> None:
    with Client(working.port, path, STATELESS) as client:

        def cut(number: int) -> float:
            tag, request = begun(working, client, tool, 30.0)
            left = request.leave(reset=bool(number % 2))
            ended = working.event(tag, "sql-ended")
            assert ended["problem"] == "OperationalError"
            return ended["at"] - left

        assert median(f"{working.kind} {path} {tool}", cut) < ENDED_WITHIN
        if working.database["ENGINE"].endswith("postgresql"):
            assert not active(working)
        assert client.call("echo_sql", {"number": 5}).answer().value == 5
    working.settle()


def test_cancelling_interrupts_the_sql_of_a_handshake_call(working: Server, path: str) -> None:
    with Client(working.port, path, HANDSHAKE) as client:

        def cut(_: int) -> float:
            tag, request = begun(working, client, "sql", 30.0)
            asked = until(lambda: True)
            client.notify("notifications/cancelled", {"requestId": client.last_id})
            ended: float = working.event(tag, "sql-ended")["at"]
            assert request.answer().messages == []
            return ended - asked

        assert median(f"{working.kind} {path} cancelled", cut) < ENDED_WITHIN
        assert client.call("echo_sql", {"number": 5}).answer().value == 5
    working.settle()


@pytest.mark.parametrize("tool", ["sql", "talking_sql"])
def test_leaving_lets_the_sql_of_a_handshake_call_end(working: Server, path: str, tool: str) -> None:
    with Client(working.port, path, HANDSHAKE) as client:
        tag, request = begun(working, client, tool, 0.1)
        request.leave()
        assert working.event(tag, "sql-ended")["problem"] is None
        assert working.event(tag, "ended")
    working.settle()
