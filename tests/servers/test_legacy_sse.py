"""HTTP+SSE on every server, through both doors: a stream, calls, a question, and who leaves."""

import json
import signal
from collections.abc import Callable
from urllib.request import urlopen

import pytest

from tests.servers.client import Request
from tests.servers.harness import DOORS, PATIENCE, SERVERS, Server, serve, until
from tests.servers.legacy_client import LegacyClient

LEAVING: dict[str, Callable[[Request], object]] = {
    "with FIN": lambda request: request.leave(),
    "with RST": lambda request: request.leave(reset=True),
    "half": lambda request: request.half_close(),
}
# hypercorn's workers hear nothing of a signal until its own time is over, and then cut what is open.
HEARING = [kind for kind in SERVERS if kind != "hypercorn"]


def listening(server: Server) -> int:
    """Streams that are open."""
    with urlopen(f"http://127.0.0.1:{server.port}/probe?listening=1", timeout=PATIENCE) as answer:
        found: int = json.load(answer)["listening"]
    return found


def settled(server: Server) -> None:
    """Wait until nothing of any stream is left."""
    until(lambda: not listening(server), otherwise=server.probe)
    server.settle()


def test_calls_are_answered_on_the_stream(server: Server, path: str) -> None:
    with LegacyClient(server.port, f"{path}/sse") as client:
        assert client.uri.startswith(f"{path}/sse?session_id=")
        assert [client.tool("fast", {"number": number}) for number in range(20)] == list(range(20))
        ids = [client.call("fast", {"number": number}) for number in range(20)]
        assert sorted(client.message()["id"] for _ in ids) == ids
    settled(server)


def test_a_question_is_asked_and_answered(server: Server, path: str) -> None:
    with LegacyClient(server.port, f"{path}/sse") as client:
        id = client.call("ask", {"tag": "asked"})
        question = client.message()
        assert question["method"] == "elicitation/create"
        declined = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
        assert client.post(declined).status == 202
        assert client.message()["id"] == id
    settled(server)


@pytest.mark.parametrize("how", LEAVING)
def test_leaving_ends_the_session_and_cancels_its_calls(server: Server, path: str, how: str) -> None:
    tag = f"left {how} {server.kind} {path}"
    with LegacyClient(server.port, f"{path}/sse") as client:
        client.call("wait", {"tag": tag})
        server.event(tag, "started")
        assert client.stream is not None
        LEAVING[how](client.stream)
        server.event(tag, "cancelled")
    settled(server)


def test_a_silent_stream_that_is_left_is_noticed(server: Server, path: str) -> None:
    clients = [LegacyClient(server.port, f"{path}/sse") for _ in range(10)]
    for client in clients:
        client.open()
    assert listening(server) == 10
    for number, client in enumerate(clients):
        client.leave(reset=bool(number % 2))
    settled(server)


@pytest.mark.parametrize(
    ("kind", "view_only"), [*((kind, False) for kind in HEARING), ("uvicorn", True), ("daphne", True)]
)
def test_a_process_that_ends_ends_its_streams(kind: str, view_only: bool) -> None:
    environ = {"SITE_DOORS": "view"} if view_only else {}
    with serve(kind, environ=environ) as server:
        paths = (DOORS["view"],) if view_only else DOORS.values()
        clients = [LegacyClient(server.port, f"{path}/sse") for path in paths]
        for client in clients:
            client.__enter__()
        ended = server.terminate()
        assert all(client.is_over() for client in clients)
        for client in clients:
            client.leave()
        assert ended.code in (0, -signal.SIGTERM)
        assert ended.seconds < 8
        assert [line for line in server.complaints() if "ifespan" not in line] == []
