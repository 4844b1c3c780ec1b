"""Two servers that share only a database: requests to one of them take effect in the other.

Without a channel layer, events take a second at most.
"""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.servers.client import HANDSHAKE, Client
from tests.servers.databases import new_sqlite
from tests.servers.harness import Server, serve
from tests.support.waiting import wait_until

_tags = map("two-{}".format, itertools.count())


class Pair(NamedTuple):
    """A client of one server, and the same client as it reaches the other."""

    one: Server
    other: Server
    client_one: Client
    client_other: Client


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, Server]]:
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(new_sqlite())
        one, other = (stack.enter_context(serve("uvicorn", database=database)) for _ in range(2))
        yield one, other


@pytest.fixture
def pair(servers: tuple[Server, Server]) -> Iterator[Pair]:
    one, other = servers
    with contextlib.ExitStack() as stack:
        client_one = stack.enter_context(Client(one.port, "/mcp", HANDSHAKE))
        client_other = Client(other.port, "/mcp", HANDSHAKE)
        client_other.session = client_one.session
        assert client_other.call("fast", {"number": 1}).answer().value == 1
        yield Pair(one, other, client_one, client_other)
        if client_one.call("fast").answer().status == 404:
            client_one.session = None


def start_question(server: Server, client: Client) -> tuple[str, Any, dict[str, Any]]:
    """A call that waits for an answer: its tag, its request, and the question."""
    tag = next(_tags)
    request = client.call("ask", {"tag": tag})
    return tag, request, next(request.events())


def test_an_answer_may_reach_the_other_process(pair: Pair) -> None:
    for _ in range(3):
        _, request, question = start_question(pair.one, pair.client_one)
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
        assert pair.client_other.post(answer).answer().status == 202
        assert request.answer().value == "decline"


def test_an_unexpected_answer_is_accepted_and_stores_nothing(pair: Pair) -> None:
    _, request, question = start_question(pair.one, pair.client_one)
    id = question["id"]
    for invented in ("s1", 1, id[:-1], id + "A", id.swapcase()):
        answer = {"jsonrpc": "2.0", "id": invented, "result": {"action": "accept"}}
        assert pair.client_other.post(answer).answer().status == 202
    answer = {"jsonrpc": "2.0", "id": id, "result": {"action": "cancel"}}
    assert pair.client_other.post(answer).answer().status == 202
    assert request.answer().value == "cancel"


def test_an_answer_of_another_session_is_ignored(pair: Pair) -> None:
    _, request, question = start_question(pair.one, pair.client_one)
    with Client(pair.other.port, "/mcp", HANDSHAKE) as stranger:
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}}
        assert stranger.post(answer).answer().status == 202
    answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "cancel"}}
    pair.client_other.post(answer).answer()
    assert request.answer().value == "cancel"


def test_a_call_is_cancelled_from_the_other_process(pair: Pair) -> None:
    tag = next(_tags)
    request = pair.client_one.call("wait", {"tag": tag})
    id = pair.client_one.last_id
    pair.one.event(tag, "started")
    pair.client_other.notify("notifications/cancelled", {"requestId": id})
    pair.one.event(tag, "cancelled")
    assert request.answer().messages == []


def test_ending_a_session_at_the_other_process_ends_its_calls(pair: Pair) -> None:
    tag = next(_tags)
    request = pair.client_one.call("wait", {"tag": tag})
    pair.one.event(tag, "started")
    assert pair.client_other._send("DELETE", b"", {}).answer().status == 204
    pair.one.event(tag, "cancelled")
    request.leave()
    assert pair.client_one.call("fast").answer().status == 404


def test_a_session_ended_elsewhere_is_unknown_within_a_second(pair: Pair) -> None:
    assert pair.client_one.call("fast").answer().status == 200
    pair.client_other._send("DELETE", b"", {}).answer()
    wait_until(lambda: pair.client_one.call("fast").answer().status == 404)


def test_a_session_survives_the_end_of_the_process_that_opened_it() -> None:
    with new_sqlite() as database:
        with serve("uvicorn", database=database) as first:
            client = Client(first.port, "/mcp", HANDSHAKE).__enter__()
            first.terminate()
        with serve("uvicorn", database=database) as second:
            client.port = second.port
            assert client.call("fast", {"number": 2}).answer().value == 2
            _, request, question = start_question(second, client)
            client.post({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}).answer()
            assert request.answer().value == "decline"


def test_a_process_with_unused_sessions_does_not_query_the_database(pair: Pair) -> None:
    """The listener of the event log ends with the sessions that depend on it."""
    pair.client_other._send("DELETE", b"", {}).answer()
    wait_until(lambda: pair.client_one.call("fast").answer().status == 404)

    def following() -> list[str]:
        return [task for server in (pair.one, pair.other) for task in server.probe()["tasks"] if "LogFollower" in task]

    wait_until(lambda: not following(), following)
