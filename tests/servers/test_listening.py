"""Streams of changes on every server: who leaves is noticed, who stays is told, and the process ends with an answer."""

import signal
from collections.abc import Callable

import pytest

from tests.servers.client import STATELESS, Client, Request
from tests.servers.harness import DOORS, SERVERS, Server, serve, until

WANTED = {"notifications": {"toolsListChanged": True}}
ID = "io.modelcontextprotocol/subscriptionId"
LEAVING: dict[str, Callable[[Request], object]] = {
    "with FIN": lambda request: request.leave(),
    "with RST": lambda request: request.leave(reset=True),
    "half": lambda request: request.half_close(),
}
# hypercorn's workers hear nothing of a signal until its own time is over, and then cut what is open.
HEARING = [kind for kind in SERVERS if kind != "hypercorn"]


def listen(client: Client) -> Request:
    """A stream, acknowledged."""
    request = client.request("subscriptions/listen", WANTED)
    assert request.head() == 200
    assert next(request.events())["method"] == "notifications/subscriptions/acknowledged"
    return request


def nobody_listens(server: Server) -> None:
    until(lambda: not server.probe()["listening"], otherwise=server.probe)


@pytest.mark.parametrize("how", LEAVING)
def test_a_client_that_leaves_a_silent_stream_is_noticed(server: Server, path: str, how: str) -> None:
    with Client(server.port, path, STATELESS) as client:
        request = listen(client)
        assert server.probe()["listening"] == 1
        LEAVING[how](request)
        nobody_listens(server)
    server.settle()


def test_all_who_listen_are_told_and_those_who_left_are_forgotten(server: Server, path: str) -> None:
    with Client(server.port, path, STATELESS) as client:
        staying, leaving = [listen(client) for _ in range(5)], [listen(client) for _ in range(5)]
        for number, request in enumerate(leaving):
            request.leave(reset=bool(number % 2))
        assert client.call("change", {"kind": "tools"}).answer().value == "tools"
        told = [next(request.events()) for request in staying]
        assert [message["method"] for message in told] == ["notifications/tools/list_changed"] * 5
        assert [message["params"]["_meta"][ID] for message in told] == [1, 2, 3, 4, 5]
        until(lambda: server.probe()["listening"] == 5, otherwise=server.probe)
        for request in staying:
            request.leave()
        nobody_listens(server)
    server.settle()


@pytest.mark.parametrize(
    ("kind", "view_only"), [*((kind, False) for kind in HEARING), ("uvicorn", True), ("daphne", True)]
)
def test_the_end_of_the_process_is_the_answer_to_a_stream(kind: str, view_only: bool) -> None:
    environ = {"SITE_DOORS": "view"} if view_only else {}
    with serve(kind, environ=environ) as server:
        paths = (DOORS["view"],) if view_only else DOORS.values()
        streams = [listen(Client(server.port, path, STATELESS)) for path in paths]
        ended = server.terminate()
        for stream in streams:
            (last,) = stream.events()
            assert last["result"]["resultType"] == "complete"
            assert last["result"]["_meta"][ID] == last["id"] == 1
            stream.leave()
        assert ended.code in (0, -signal.SIGTERM)
        assert ended.seconds < 8
        assert [line for line in server.complaints() if "ifespan" not in line] == []


def test_a_change_reaches_the_clients_of_the_other_worker() -> None:
    """Without a channel layer workers look once a second."""
    with serve("uvicorn", workers=2) as server:
        path = DOORS["asgi"]
        requests = [listen(Client(server.port, path, STATELESS)) for _ in range(12)]
        with Client(server.port, path, STATELESS) as client:
            client.call("change", {"kind": "tools"}).answer()
        told = [next(request.events())["method"] for request in requests]
        assert told == ["notifications/tools/list_changed"] * 12
        for request in requests:
            request.leave()
