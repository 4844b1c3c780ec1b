"""Frames that no client should send, and too many of them: the socket ends or continues, and other clients are served.

The close codes of all servers are tested in `tests/servers/test_websocket.py`.
"""

import contextlib
import itertools
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from tests.load.websockets import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Refused, WebSocket, frame, upgrade
from tests.servers.harness import MOST_DIFFERENT, Server, serve
from tests.support.waiting import WAIT_SECONDS, wait_until

BODY = 1 << 16
SETTINGS = {"MCP": {"AUTH": "tests.servers.site.people.anyone", "LIMITS": {"BODY": BODY}}}
CALL = json.dumps({"jsonrpc": "2.0", "id": 99, "method": "ping"}).encode()
CONTROL = frame(b"x" * 126, PING)
BROKEN = {
    "an unmasked frame": frame(CALL, masked=False),
    "a reserved opcode": frame(CALL, 3),
    "a reserved bit": bytes([0xF1]) + frame(CALL)[1:],
    "a continuation of nothing": frame(CALL, CONTINUATION),
    "a message within a message": frame(b"a", final=False) + frame(CALL),
    "a ping that is too long": CONTROL,
    "a ping in fragments": frame(b"a", PING, final=False),
    "text that is no UTF-8": frame(b'{"jsonrpc":"2.0","id":1,"method":"\xff"}'),
    "a length with the highest bit": bytes([0x81, 0xFF]) + b"\xff" * 8 + bytes(4),
    "a close frame of one byte": frame(b"x", CLOSE),
    "a reserved close code": frame((1005).to_bytes(2, "big"), CLOSE),
    "plain HTTP": b"GET / HTTP/1.1\r\n\r\n" * 10,
    "noise": bytes(range(256)) * 64,
}
"""Frames that break the WebSocket protocol itself: the servers hang up, each with a code of its choice."""


@pytest.fixture(scope="module", params=MOST_DIFFERENT)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """One server for the module: a broken socket of one test must not affect the next."""
    with serve(request.param, settings=SETTINGS) as server:
        yield server


@pytest.fixture(autouse=True)
def unharmed(server: Server) -> Iterator[None]:
    """A client that was there before is served as before, and nothing is left of the others."""
    with WebSocket(server.port) as bystander:
        yield
        assert bystander.value("fast", {"number": 11}) == 11
        bystander.leave("close frame and wait")
    wait_until(lambda: not server.listening(), server.probe)


def test_frames_that_break_the_protocol_end_the_socket(server: Server, subtests: pytest.Subtests) -> None:
    for what, data in BROKEN.items():
        with subtests.test(what), WebSocket(server.port) as client:
            with contextlib.suppress(OSError):
                client.socket.sendall(data)
                client.socket.shutdown(socket.SHUT_WR)
            client.drained()


def test_messages_that_are_binary_or_too_long_close_the_socket(server: Server) -> None:
    private = server.kind == "daphne"
    with WebSocket(server.port) as client:
        client.socket.sendall(frame(CALL, BINARY))
        assert client.drained() == (4003 if private else 1003)
    with WebSocket(server.port) as client:
        client.socket.sendall(frame(b" " * (BODY + 1)))
        assert client.drained() == (4009 if private else 1009)
    # More than the servers themselves take: daphne 1 MiB, uvicorn 16.
    with WebSocket(server.port) as client:
        with contextlib.suppress(OSError):
            client.socket.sendall(frame(bytes(1 << 20), final=False))
            for _ in range(80):
                client.socket.sendall(frame(bytes(1 << 20), CONTINUATION, final=False))
        assert client.drained() in (1009, 1005, None)


BAD_MESSAGES = [
    ("", -32700),
    ("{", -32700),
    ("\x00", -32700),
    ("[" * 5_000, -32600),
    ('{"a":' * 25 + "1" + "}" * 25, -32600),
    ("1", -32600),
    ("null", -32600),
    ("[]", -32600),
    ("{}", -32600),
    ('{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
    ('{"jsonrpc":"2.0","id":1,"method":7}', -32600),
]


def test_bad_messages_are_answered_and_the_socket_goes_on(server: Server, subtests: pytest.Subtests) -> None:
    with WebSocket(server.port) as client:
        for text, code in BAD_MESSAGES:
            with subtests.test(text[:50]):
                client.socket.sendall(frame(text.encode()))
                answer = client.receive()
                assert answer is not None
                assert answer["error"]["code"] == code, answer
                assert client.value("fast", {"number": 1}) == 1


def test_fragments_pings_and_pongs_do_not_disturb_messages(server: Server) -> None:
    text = json.dumps({"jsonrpc": "2.0", "id": 5, "method": "ping", "params": {"_meta": {"x": "y" * 5_000}}}).encode()
    parts = [frame(text[:1], TEXT, final=False)]
    parts += [frame(text[at : at + 1], CONTINUATION, final=at == len(text) - 1) for at in range(1, len(text))]
    with WebSocket(server.port) as client:
        client.socket.sendall(b"".join(parts))
        assert client.answer(5)["result"] == {}
    with WebSocket(server.port) as client:
        text, between = CALL, frame(b"between", PING) * 100
        client.socket.sendall(frame(text[:9], final=False) + between + frame(text[9:], CONTINUATION))
        frames = list(itertools.islice(client.frames(), 101))
        assert [payload for opcode, payload in frames if opcode == PONG] == [b"between"] * 100
        assert json.loads(next(payload for opcode, payload in frames if opcode == TEXT))["id"] == 99
        client.socket.sendall(frame(b"unsolicited", PONG) * 5_000)
        assert client.value("fast", {"number": 2}) == 2


def test_frames_after_a_close_frame_do_nothing(server: Server) -> None:
    with WebSocket(server.port) as client:
        call = client.message("tools/call", {"name": "wait", "arguments": {"tag": "after"}})
        after = frame(json.dumps(call | {"id": 1}).encode())
        with contextlib.suppress(OSError):
            client.socket.sendall(frame((1000).to_bytes(2, "big"), CLOSE) + after * 1_000)
        client.drained()
    assert not server.events("after")


REFUSED_FIELDS = [
    {"Sec-WebSocket-Version": "12"},
    {"Sec-WebSocket-Protocol": "soap, graphql"},
    {"Origin": "https://elsewhere.example"},
    {"Host": "elsewhere.example"},
    {"Authorization": ""},
]


def test_refused_handshakes_leave_no_channels(server: Server) -> None:
    """Twenty of each at once, answered or not."""
    connect = partial(socket.create_connection, ("127.0.0.1", server.port), timeout=WAIT_SECONDS)
    for fields in REFUSED_FIELDS:
        request = upgrade(server.port, **fields)
        with ExitStack() as stack:
            sockets = [stack.enter_context(connect()) for _ in range(20)]
            for each in sockets:
                each.sendall(request)
            for each in sockets[::2]:
                assert not each.recv(64).startswith(b"HTTP/1.1 101"), fields
    with pytest.raises((Refused, ConnectionError)):
        WebSocket(server.port, path="/elsewhere")


def test_a_handshake_in_single_bytes_is_answered(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in upgrade(server.port):
            connection.sendall(bytes([byte]))
        assert connection.recv(64).startswith(b"HTTP/1.1 101")
