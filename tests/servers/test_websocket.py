"""WebSockets: accepted handshakes, the effects of disconnects, and differences between servers.

Two servers are tested in depth; on the others, and on other WebSocket libraries, one test goes through the same.
"""

import itertools
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any, NamedTuple

import pytest

from tests.servers.client import STATELESS
from tests.servers.harness import Server, serve
from tests.servers.sockets import Socket
from tests.support.waiting import WAIT_SECONDS, wait_until


class Way(NamedTuple):
    """A server, and how it speaks WebSocket."""

    kind: str
    options: tuple[str, ...] = ()
    denies: bool = True
    """Can it send an HTTP answer in place of a socket?"""
    private: bool = False
    """Does it send no close codes but private ones?"""


WAYS = {
    "uvicorn": Way("uvicorn"),
    "uvicorn-websockets": Way("uvicorn", ("--ws", "websockets")),
    "uvicorn-wsproto": Way("uvicorn", ("--ws", "wsproto")),
    "daphne": Way("daphne", denies=False, private=True),
    "granian": Way("granian"),
    "hypercorn": Way("hypercorn"),
    "gunicorn": Way("gunicorn"),
}
SETTINGS = {"MCP": {"AUTH": "tests.servers.site.people.anyone", "LIMITS": {"BODY": 1 << 16, "KEEP_ALIVE": 1}}}
TOKEN = {"Authorization": "Bearer ann"}
DEPTH = ("uvicorn", "daphne")
LONG_SECONDS = 600.0
_tags = map("socket-{}".format, itertools.count())
Start = Callable[[str], Server]


@contextmanager
def serve_way(way: Way) -> Iterator[Server]:
    """A server in a process of its own."""
    with serve(way.kind, settings=SETTINGS, options=way.options) as server:
        yield server


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """The servers of these tests, started when first asked for."""
    with ExitStack() as stack:
        running: dict[str, Server] = {}

        def start(name: str) -> Server:
            if name not in running:
                way = WAYS[name]
                running[name] = stack.enter_context(serve_way(way))
            return running[name]

        yield start


@pytest.fixture(params=DEPTH)
def way(request: pytest.FixtureRequest) -> Way:
    """The servers that are tested in depth."""
    return WAYS[request.param]


@pytest.fixture
def server(start: Start, way: Way) -> Iterator[Server]:
    """Its process, where afterwards nothing runs, nothing is left of any socket, and nothing went wrong."""
    server = start(way.kind)
    yield server
    assert_nothing_is_left(server)


def assert_nothing_is_left(server: Server) -> None:
    server.settle()
    wait_until(lambda: not server.listening(), server.probe)
    wait_until(lambda: not live_sessions(server), lambda: live_sessions(server))
    left = [name for name in server.probe()["tasks"] if "transports" in name]
    assert not left


def live_sessions(server: Server) -> int:
    """Sessions in the database that have not ended."""
    with closing(sqlite3.connect(server.database["NAME"])) as connection:
        statement = "SELECT count(*) FROM mcp_django_session WHERE terminated_at IS NULL"
        count: int = connection.execute(statement).fetchone()[0]
    return count


def open_socket(server: Server, *, session: bool = False) -> Socket:
    socket = Socket(server.port, headers=TOKEN)
    assert socket.status == 101
    if session:
        socket.initialize()
    return socket


def open_refused_socket(server: Server, *args: Any, **kwargs: Any) -> Socket:
    with Socket(server.port, *args, **kwargs) as socket:
        return socket


def test_a_refused_handshake_has_the_reason_where_the_server_supports_it(server: Server, way: Way) -> None:
    no_token = open_refused_socket(server)
    bad_origin = open_refused_socket(server, headers={**TOKEN, "Origin": "http://evil.example"})
    subprotocol = open_refused_socket(server, headers=TOKEN, subprotocols=["other"])
    two_tokens = open_refused_socket(server, headers=TOKEN, subprotocols=["mcp", "mcp.bearer.bob"])
    elsewhere = open_refused_socket(server, "/elsewhere", headers=TOKEN)
    found = [socket.status for socket in (no_token, bad_origin, subprotocol, two_tokens, elsewhere)]
    assert found == ([401, 403, 400, 400, 404] if way.denies else [403] * 5)
    if way.denies:
        assert (no_token.header("WWW-Authenticate") or "").startswith("Bearer ")
        assert b'"mcp"' in bytes(subprotocol.response.body or b"")


def test_a_socket_is_opened_with_either_form_of_token(server: Server) -> None:
    with Socket(server.port, headers=TOKEN) as socket:
        assert (socket.status, socket.header("Sec-WebSocket-Protocol")) == (101, None)
        assert socket.value("fast", {"number": 1}) == 1
    with Socket(server.port, "/mcp/ws/", subprotocols=["mcp", "mcp.bearer.ann"]) as socket:
        assert (socket.status, socket.header("Sec-WebSocket-Protocol")) == (101, "mcp")
        assert "ann" not in str(socket.response.headers)
        assert socket.value("fast", {"number": 2}) == 2


def test_both_eras_are_served_and_messages_keep_their_order(server: Server) -> None:
    with open_socket(server) as socket:
        assert socket.initialize()["result"]["serverInfo"]["name"] == "django"
        assert socket.value("echo_sql", {"number": 5}) == 5
        socket.revision = STATELESS
        tag = next(_tags)
        id = socket.call("tick", {"tag": tag, "times": 20, "pause": 0})
        said = [socket.message()["params"]["progress"] for _ in range(20)]
        assert said == list(range(20))
        assert socket.message()["id"] == id


def test_a_cancellation_overtakes_a_long_call(server: Server) -> None:
    with open_socket(server) as socket:
        for tool, event in (("wait", "cancelled"), ("sql", "sql-ended")):
            tag = next(_tags)
            id = socket.call(tool, {"tag": tag, "seconds": LONG_SECONDS})
            server.event(tag, "started" if tool == "wait" else "sql-running")
            socket.notify("notifications/cancelled", requestId=id)
            server.event(tag, event)
        assert socket.value("fast", {"number": 3}) == 3  # and there is no message of the others


def test_a_disconnect_ends_calls_and_the_session(server: Server) -> None:
    for tool, how in (
        ("wait", "close"),
        ("wait", "reset"),
        ("poll", "hang up"),
        ("sql", "close"),
        ("async_sql", "reset"),
    ):
        socket = open_socket(server, session=True)
        tag = next(_tags)
        socket.call(tool, {"tag": tag, "seconds": LONG_SECONDS})
        server.event(tag, "sql-running" if "sql" in tool else "started")
        socket.leave(close=how == "close", reset=how == "reset")
        server.event(tag, {"wait": "cancelled", "poll": "noticed"}.get(tool, "sql-ended"))


def test_a_binary_frame_and_one_that_is_too_large_close_the_socket(server: Server, way: Way) -> None:
    with open_socket(server, session=True) as socket:
        tag = next(_tags)
        socket.call("wait", {"tag": tag})
        server.event(tag, "started")
        socket.binary(b"{}")
        assert (socket.closed() or (0,))[0] == (4003 if way.private else 1003)
        assert server.event(tag, "cancelled")
    with open_socket(server) as socket:
        socket.text('"' + "x" * (1 << 16) + '"')
        assert (socket.closed() or (0,))[0] == (4009 if way.private else 1009)


def test_a_thousand_frames_at_once_are_answered_and_block_no_other_client(server: Server) -> None:
    with open_socket(server) as busy, open_socket(server) as other:
        first = [busy.request("tools/list") for _ in range(1000)]
        assert other.value("fast", {"number": 4}) == 4
        # In any order: permissions of some of them are read from the database.
        assert sorted(busy.message()["id"] for _ in range(1000)) == first


CONTRACT: list[Callable[[Server, Way], None]] = [
    test_a_refused_handshake_has_the_reason_where_the_server_supports_it,
    lambda server, way: test_a_socket_is_opened_with_either_form_of_token(server),
    lambda server, way: test_both_eras_are_served_and_messages_keep_their_order(server),
    lambda server, way: test_a_cancellation_overtakes_a_long_call(server),
    lambda server, way: test_a_disconnect_ends_calls_and_the_session(server),
    test_a_binary_frame_and_one_that_is_too_large_close_the_socket,
]


@pytest.mark.parametrize("name", [name for name in WAYS if name not in DEPTH])
def test_other_servers_and_libraries_behave_the_same(name: str) -> None:
    with serve_way(WAYS[name]) as server:
        for check in CONTRACT:
            check(server, WAYS[name])
            assert_nothing_is_left(server)
        end_with_open_sockets(name, server)


@pytest.mark.parametrize("name", DEPTH)
def test_shutdown_lets_calls_finish_and_closes_sockets(name: str) -> None:
    with serve_way(WAYS[name]) as server:
        end_with_open_sockets(name, server)


def end_with_open_sockets(name: str, server: Server) -> None:
    way = WAYS[name]
    with open_socket(server, session=True) as idle, open_socket(server, session=True) as busy:
        id = busy.call("hold", {"tag": "last"})
        server.event("last", "started")
        server.process.send_signal(signal.SIGTERM)
        if name != "granian":
            server.release()
        said = None if name == "granian" else busy.message()["id"]
        if name == "hypercorn" and sys.version_info >= (3, 12):
            # Its `Server.wait_closed()` waits there for the clients to leave (hypercorn/asyncio/run.py).
            codes = None
            for socket in (busy, idle):
                socket.leave(close=True)
        else:
            codes = [(socket.closed() or (None,))[0] for socket in (busy, idle)]
        server.process.wait(WAIT_SECONDS)
    # Granian cuts a socket whose application is still running.
    assert said == (None if name == "granian" else id)
    assert server.event("last", "cancelled" if name == "granian" else "ended")
    if name == "granian":
        # Sometimes an idle one too, before it got the close frame.
        assert codes in ([None, 1001], [None, None])
    else:
        assert codes in (None, [4001] * 2 if way.private else [1001] * 2)
    assert not live_sessions(server)
    # Hypercorn cancels open sockets, and asyncio logs that.
    assert name == "hypercorn" or not server.complaints()
