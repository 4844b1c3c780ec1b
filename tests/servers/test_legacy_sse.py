"""HTTP+SSE: a stream, calls, a question, and clients that leave.

That a process which ends also ends these streams is tested in `test_shutdown`.
"""

from tests.servers.client import LEAVING
from tests.servers.harness import Server
from tests.servers.legacy_client import LegacyClient
from tests.servers.test_listening import wait_for_listeners
from tests.support.waiting import wait_until


def test_calls_and_a_question_are_answered_on_the_stream(server: Server, path: str) -> None:
    with LegacyClient(server.port, f"{path}/sse") as client:
        assert client.uri.startswith(f"{path}/sse?session_id=")
        assert [client.tool("fast", {"number": number}) for number in range(5)] == list(range(5))
        ids = [client.call("fast", {"number": number}) for number in range(20)]
        assert sorted(client.message()["id"] for _ in ids) == ids
        id = client.call("ask", {"tag": "asked"})
        question = client.message()
        assert question["method"] == "elicitation/create"
        declined = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
        assert client.post(declined).status == 202
        assert client.message()["id"] == id
    wait_for_listeners(server, 0)
    server.settle()


def test_a_disconnect_ends_the_session_and_cancels_its_calls(server: Server, path: str) -> None:
    for name, leave in LEAVING.items():
        tag = f"left by {name} {path}"
        with LegacyClient(server.port, f"{path}/sse") as client:
            client.call("wait", {"tag": tag})
            server.event(tag, "started")
            assert client.stream is not None
            leave(client.stream)
            server.event(tag, "cancelled")
    wait_for_listeners(server, 0)
    server.settle()


def test_a_disconnect_from_a_silent_stream_is_noticed(server: Server, path: str) -> None:
    clients = [LegacyClient(server.port, f"{path}/sse") for _ in range(10)]
    for client in clients:
        client.open()
    assert server.listening() == 10
    for number, client in enumerate(clients):
        client.leave(reset=bool(number % 2))
    wait_for_listeners(server, 0)
    server.settle()


def test_a_post_for_a_stream_after_the_disconnect_is_refused(server: Server, path: str) -> None:
    ping = {"jsonrpc": "2.0", "id": 9, "method": "ping"}
    for is_reset in (False, True):
        with LegacyClient(server.port, f"{path}/sse") as client:
            client.tool("fast", {"number": 1})
            client.leave(reset=is_reset)
            wait_until(lambda client=client: client.post(ping).status == 404)
