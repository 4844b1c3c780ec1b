"""A real server on a real socket: half-open connections and broken HTTP, after which the next request is served."""

import contextlib
import json
import socket
import urllib.request

import pytest

from tests.interaction.clients import META, STATELESS
from tests.support.waiting import WAIT_SECONDS

pytestmark = pytest.mark.integration

BODY = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": "add_numbers",
            "arguments": {"a": 1, "b": 2},
            "_meta": {META + "protocolVersion": STATELESS, META + "clientCapabilities": {}},
        },
    }
).encode()
HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": STATELESS,
    "Mcp-Method": "tools/call",
    "Mcp-Name": "add_numbers",
}
IN_FLIGHT = 32
"""The fixtures server's limit of calls of one principal: the default."""


@pytest.fixture(params=["/mcp", "/view/mcp"], ids=["asgi", "view"])
def path(request: pytest.FixtureRequest) -> str:
    """Both transports."""
    return request.param


def head(path: str, port: int, **more: str) -> bytes:
    """The head of a request, without the blank line."""
    fields = {"Host": f"127.0.0.1:{port}", **HEADERS, **{name.replace("_", "-"): value for name, value in more.items()}}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode() + b"\r\n"


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS)
    connection.settimeout(WAIT_SECONDS)
    return connection


def exchange_bytes(port: int, data: bytes, *, half_close: bool = False) -> bytes:
    """Send, and read until the server hangs up; with `half_close` close the sending side first."""
    with connect(port) as connection:
        connection.sendall(data)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
        return received


def still_served(port: int, path: str) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=BODY, headers=HEADERS)
    with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as response:
        assert json.loads(response.read())["result"]["structuredContent"] == {"result": 3}


def test_white_space_around_routing_headers_survives_the_server(port: int, path: str) -> None:
    request = head(path, port, Content_Length=str(len(BODY)), Connection="close")
    padded = request.replace(b"Mcp-Name: add_numbers", b"Mcp-Name:   add_numbers  \t ")
    assert b" 200 " in exchange_bytes(port, padded + b"\r\n" + BODY).splitlines()[0]


def test_a_disconnect_within_the_head_does_no_harm(port: int, path: str) -> None:
    with connect(port) as connection:
        connection.sendall(head(path, port)[:40])
    still_served(port, path)


def test_a_disconnect_within_the_body_does_no_harm(port: int, path: str) -> None:
    with connect(port) as connection:
        connection.sendall(head(path, port, Content_Length=str(len(BODY))) + b"\r\n" + BODY[:20])
    still_served(port, path)


def test_a_client_that_never_sends_its_body_does_not_block_others(port: int, path: str) -> None:
    with connect(port) as connection:
        connection.sendall(head(path, port, Content_Length=str(len(BODY))) + b"\r\n" + BODY[:20])
        still_served(port, path)


def test_many_half_open_connections_do_not_block_others(port: int, path: str) -> None:
    half_open = [connect(port) for _ in range(50)]
    try:
        for connection in half_open:
            connection.sendall(head(path, port, Content_Length=str(len(BODY))) + b"\r\n" + BODY[:20])
        still_served(port, path)
    finally:
        for connection in half_open:
            connection.close()
    still_served(port, path)


def test_a_reset_during_a_call_does_no_harm(port: int, path: str) -> None:
    body = BODY.replace(b"add_numbers", b"slow_compute").replace(b'{"a": 1, "b": 2}', b'{"seconds": 30}')
    request = head(path, port, Content_Length=str(len(body))).replace(b"add_numbers", b"slow_compute")
    connection = connect(port)
    connection.sendall(request + b"\r\n" + body)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    connection.close()
    still_served(port, path)


def test_disconnects_free_the_places_of_their_calls(port: int, path: str) -> None:
    """As many calls run as one principal may have. One more waits, and is answered once the clients have left them."""
    body = BODY.replace(b"add_numbers", b"slow_compute").replace(b'{"a": 1, "b": 2}', b'{"seconds": 600}')
    request = head(path, port, Content_Length=str(len(body))).replace(b"add_numbers", b"slow_compute") + b"\r\n" + body
    with connect(port) as waiting:
        with contextlib.ExitStack() as connections:
            for _ in range(IN_FLIGHT):
                connections.enter_context(connect(port)).sendall(request)
            waiting.sendall(head(path, port, Content_Length=str(len(BODY)), Connection="close") + b"\r\n" + BODY)
        assert b" 200 " in waiting.recv(65536).splitlines()[0]


def test_a_chunked_body_is_read(port: int, path: str) -> None:
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (BODY[:30], BODY[30:])) + b"0\r\n\r\n"
    request = head(path, port, Transfer_Encoding="chunked", Connection="close")
    assert b" 200 " in exchange_bytes(port, request + b"\r\n" + chunks).splitlines()[0]


def test_a_chunked_body_beyond_the_limit_is_refused(port: int, path: str) -> None:
    piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    request = head(path, port, Transfer_Encoding="chunked", Connection="close")
    with connect(port) as connection:
        connection.sendall(request + b"\r\n")
        with contextlib.suppress(OSError):  # refused before everything was sent
            for _ in range(80):
                connection.sendall(piece)
            connection.sendall(b"0\r\n\r\n")
        received = connection.recv(65536)
    assert received == b"" or b" 413 " in received.splitlines()[0]
    still_served(port, path)


def test_a_declared_body_beyond_the_limit_is_refused_unread(port: int, path: str) -> None:
    if path != "/mcp":
        pytest.skip("Django reads the whole body before it calls a view")
    with connect(port) as connection:
        connection.sendall(head(path, port, Content_Length=str(50_000_000)) + b"\r\n" + BODY)
        assert b" 413 " in connection.recv(65536).splitlines()[0]
    still_served(port, path)


def test_bytes_that_are_not_http_do_no_harm(port: int, path: str, subtests: pytest.Subtests) -> None:
    for data in [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"POST /mcp HTTP/9.9\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
    ]:
        with subtests.test(data=data):
            with contextlib.suppress(OSError):
                exchange_bytes(port, data, half_close=True)
            still_served(port, path)


def test_a_half_closed_connection_does_no_harm(port: int, path: str) -> None:
    exchange_bytes(port, head(path, port, Content_Length=str(len(BODY))) + b"\r\n" + BODY, half_close=True)
    still_served(port, path)


def test_requests_may_be_pipelined_on_one_connection(port: int, path: str) -> None:
    request = head(path, port, Content_Length=str(len(BODY)))
    last = head(path, port, Content_Length=str(len(BODY)), Connection="close")
    received = exchange_bytes(port, request + b"\r\n" + BODY + last + b"\r\n" + BODY)
    assert received.count(b"HTTP/1.1 200 ") == 2
