"""Calls after a disconnect or a cancellation, in both eras.

`test_other_servers` runs the same on other servers. Tools take longer than a test waits unless their arguments differ,
so none of them ends by itself.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from tests.servers.client import HANDSHAKE, LEAVING, STATELESS, Client, Request
from tests.servers.harness import DOORS, Server, serve

_tags = map("call-{}".format, itertools.count())


@contextmanager
def client_of(server: Server, path: str, revision: str) -> Iterator[Client]:
    """A client that leaves behind a server where nothing runs and nothing went wrong."""
    with Client(server.port, path, revision) as client:
        yield client
    server.settle()


def begin(server: Server, client: Client, tool: str) -> tuple[str, Request]:
    """Begin a call, and wait until its handler has started and, if it streams, its first message has come."""
    tag = next(_tags)
    request = client.call(tool, {"tag": tag})
    server.event(tag, "started")
    if tool == "stream":
        assert next(request.events())["method"] == "notifications/progress"
    return tag, request


def test_calls_are_answered_in_both_eras(server: Server, path: str) -> None:
    for revision in (HANDSHAKE, STATELESS):
        with client_of(server, path, revision) as client:
            assert client.call("fast", {"number": 7}).answer().value == 7
            assert client.call("echo_sql", {"number": 8}).answer().value == 8
            answer = client.call("tick", {"tag": next(_tags), "times": 3}).answer()
            assert [message.get("method") for message in answer.messages] == ["notifications/progress"] * 3 + [None]


def test_a_disconnect_cancels_a_stateless_call(server: Server, path: str) -> None:
    with client_of(server, path, STATELESS) as client:
        for tool, leave in itertools.product(("wait", "stream", "poll"), LEAVING.values()):
            tag, request = begin(server, client, tool)
            leave(request)
            # A handler in a thread is not interrupted: it notices.
            server.event(tag, "noticed" if tool == "poll" else "cancelled")


def test_a_disconnect_detaches_a_handshake_call(server: Server, path: str) -> None:
    with client_of(server, path, HANDSHAKE) as client:
        for tool, reset in itertools.product(("wait", "stream"), (False, True)):
            tag = next(_tags)
            request = client.call(tool, {"tag": tag, "seconds": 0.1})
            server.event(tag, "started")
            request.leave(reset=reset)
            server.event(tag, "ended")
            assert [event["what"] for event in server.events(tag)] == ["started", "ended"]
        assert client.call("fast", {"number": 3}).answer().value == 3


def test_a_question_can_be_answered_after_a_disconnect(server: Server, path: str) -> None:
    with client_of(server, path, HANDSHAKE) as client:
        tag = next(_tags)
        request = client.call("ask", {"tag": tag})
        question = next(request.events())
        assert question["method"] == "elicitation/create"
        request.leave()
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
        assert client.post(answer).answer().status == 202
        server.event(tag, "ended")


def test_a_cancelled_handshake_call_stops_and_is_not_answered(server: Server, path: str) -> None:
    with client_of(server, path, HANDSHAKE) as client:
        for tool in ("wait", "stream", "ignore_cancel"):
            tag, request = begin(server, client, tool)
            client.notify("notifications/cancelled", {"requestId": client.last_id})
            server.event(tag, "cancelled")
            assert request.answer().messages == []


def test_a_disconnect_from_a_silent_stream_cancels_its_call() -> None:
    limits = {"SSE_UPGRADE_AFTER": 0.05, "KEEP_ALIVE": 0.05}
    with serve("uvicorn", settings={"MCP": {"AUTH": "none", "LIMITS": limits}}) as server:
        for path in DOORS.values():
            with client_of(server, path, STATELESS) as client:
                tag, request = begin(server, client, "wait")
                assert request.head() == 200
                assert request.headers["content-type"] == "text/event-stream"
                request.leave()
                server.event(tag, "cancelled")
