"""Streams of changes: the server notices a disconnect, and sends changes to the other clients.

That the end of the process answers such a stream is tested in `test_shutdown`.
"""

from tests.servers.client import LEAVING, STATELESS, Client, Request
from tests.servers.harness import DOORS, Server, serve
from tests.support.waiting import wait_until

WANTED = {"notifications": {"toolsListChanged": True}}
ID = "io.modelcontextprotocol/subscriptionId"


def listen(client: Client) -> Request:
    """Open a stream of changes, and read its acknowledgement."""
    request = client.request("subscriptions/listen", WANTED)
    assert request.head() == 200
    assert next(request.events())["method"] == "notifications/subscriptions/acknowledged"
    return request


def wait_for_listeners(server: Server, count: int) -> None:
    """Wait until so many streams are open."""
    wait_until(lambda: server.listening() == count, server.probe)


def test_a_disconnect_from_a_silent_stream_is_noticed(server: Server, path: str) -> None:
    with Client(server.port, path, STATELESS) as client:
        for leave in LEAVING.values():
            request = listen(client)
            assert server.listening() == 1
            leave(request)
            wait_for_listeners(server, 0)
    server.settle()


def test_a_change_reaches_all_subscribers_and_disconnected_ones_are_removed(server: Server, path: str) -> None:
    with Client(server.port, path, STATELESS) as client:
        staying, leaving = [listen(client) for _ in range(5)], [listen(client) for _ in range(5)]
        for number, request in enumerate(leaving):
            request.leave(reset=bool(number % 2))
        assert client.call("change", {"kind": "tools"}).answer().value == "tools"
        messages = [next(request.events()) for request in staying]
        assert [message["method"] for message in messages] == ["notifications/tools/list_changed"] * 5
        assert [message["params"]["_meta"][ID] for message in messages] == [1, 2, 3, 4, 5]
        wait_for_listeners(server, 5)
        for request in staying:
            request.leave()
        wait_for_listeners(server, 0)
    server.settle()


def test_a_change_reaches_the_clients_of_the_other_worker() -> None:
    """Without a channel layer workers look once a second."""
    with serve("uvicorn", workers=2) as server:
        path = DOORS["asgi"]
        requests = [listen(Client(server.port, path, STATELESS)) for _ in range(12)]
        with Client(server.port, path, STATELESS) as client:
            client.call("change", {"kind": "tools"}).answer()
        methods = [next(request.events())["method"] for request in requests]
        assert methods == ["notifications/tools/list_changed"] * 12
        for request in requests:
            request.leave()
