"""What becomes of a call whose client leaves: on every server, through both doors, in both eras.

Times are taken on the machine's monotonic clock: the client's when it hangs up, the handler's when it notices.
"""

import itertools
from collections.abc import Iterator

import pytest

from tests.servers.client import HANDSHAKE, STATELESS, Client, Request
from tests.servers.delays import median
from tests.servers.harness import Server, serve, until

CANCELLED_WITHIN = 0.05
"""Seconds from the client's close to the handler's CancelledError."""
_tags = map("call-{}".format, itertools.count())


@pytest.fixture
def stateless(server: Server, path: str) -> Iterator[Client]:
    """A client of the stateless era, which leaves behind a server where nothing runs and nothing went wrong."""
    with Client(server.port, path, STATELESS) as client:
        yield client
    server.settle()


@pytest.fixture
def handshake(server: Server, path: str) -> Iterator[Client]:
    """A client of the handshake era, which leaves behind a server where nothing runs and nothing went wrong."""
    with Client(server.port, path, HANDSHAKE) as client:
        yield client
    server.settle()


def begun(server: Server, client: Client, tool: str, event: str = "started") -> tuple[str, Request]:
    """A call that is under way: its handler has noted `event`, and a tool that talks has been heard."""
    tag = next(_tags)
    request = client.call(tool, {"tag": tag})
    server.event(tag, event)
    if tool in ("stream", "talking_sql"):
        assert next(request.events())["method"] == "notifications/progress"
    return tag, request


def leave(request: Request, number: int) -> float:
    """Hang up, each time in another way: with FIN, with RST, half. Servers take all three for the end. Returns when."""
    return request.half_close() if number % 3 == 2 else request.leave(reset=number % 3 == 1)


@pytest.mark.parametrize("tool", ["wait", "stream"])
def test_leaving_cancels_a_stateless_call(server: Server, stateless: Client, tool: str) -> None:
    def cut(number: int) -> float:
        tag, request = begun(server, stateless, tool)
        left = leave(request, number)
        return server.event(tag, "cancelled")["at"] - left

    assert median(f"{server.kind} {stateless.path} {tool}", cut) < CANCELLED_WITHIN


def test_leaving_is_noticed_by_a_stateless_call_in_a_thread(server: Server, stateless: Client) -> None:
    def cut(number: int) -> float:
        tag, request = begun(server, stateless, "poll")
        left = leave(request, number)
        return server.event(tag, "noticed")["at"] - left

    assert median(f"{server.kind} {stateless.path} poll", cut) < CANCELLED_WITHIN


@pytest.mark.parametrize("tool", ["wait", "stream"])
def test_leaving_detaches_a_handshake_call(server: Server, handshake: Client, tool: str) -> None:
    for reset in (False, True):
        tag = next(_tags)
        request = handshake.call(tool, {"tag": tag, "seconds": 0.05})
        server.event(tag, "started")
        request.leave(reset=reset)
        server.event(tag, "ended")
        assert [event["what"] for event in server.events(tag)] == ["started", "ended"]
    assert handshake.call("fast", {"number": 3}).answer().value == 3


def test_a_question_can_be_answered_after_its_stream_was_left(server: Server, handshake: Client) -> None:
    tag = next(_tags)
    request = handshake.call("ask", {"tag": tag})
    question = next(request.events())
    assert question["method"] == "elicitation/create"
    request.leave()
    answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
    assert handshake.post(answer).answer().status == 202
    assert server.event(tag, "ended")


@pytest.mark.parametrize("tool", ["wait", "stream", "stubborn"])
def test_a_cancelled_handshake_call_stops_and_says_nothing_more(server: Server, handshake: Client, tool: str) -> None:
    def cut(_: int) -> float:
        tag, request = begun(server, handshake, tool)
        asked = until(lambda: True)
        handshake.notify("notifications/cancelled", {"requestId": handshake.last_id})
        cancelled: float = server.event(tag, "cancelled")["at"]
        assert request.answer().messages == []
        return cancelled - asked

    assert median(f"{server.kind} {handshake.path} {tool}, cancelled", cut) < CANCELLED_WITHIN


@pytest.mark.parametrize("door", ["/mcp", "/view/mcp"])
def test_leaving_a_silent_stream_cancels_its_call(door: str) -> None:
    limits = {"SSE_UPGRADE_AFTER": 0.05, "KEEP_ALIVE": 0.05}
    with serve("uvicorn", settings={"MCP": {"AUTH": "none", "LIMITS": limits}}) as server:
        with Client(server.port, door, STATELESS) as client:
            tag, request = begun(server, client, "wait")
            assert request.head() == 200
            assert request.headers["content-type"] == "text/event-stream"
            request.leave()
            assert server.event(tag, "cancelled")
        server.settle()
