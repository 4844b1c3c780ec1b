"""A WebSocket client on a bare socket that can leave at any moment, in any way a WebSocket can be left.

with WebSocket(port, HANDSHAKE) as client:
    number = client.call("wait", {"tag": "a"})
    client.leave("reset")
"""

import base64
import contextlib
import itertools
import json
import os
import select
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from tests.servers.client import HANDSHAKE, META, STATELESS
from tests.support.waiting import WAIT_SECONDS

PATH = "/mcp/ws"
CAPABILITIES = {"elicitation": {"form": {}}}
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
WAYS = ("close frame", "close frame and wait", "fin", "reset", "half close")
"""How a socket may be left."""


def upgrade(port: int, path: str = PATH, **headers: str) -> bytes:
    """The request that opens a WebSocket."""
    fields = {
        "Host": f"127.0.0.1:{port}",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        "Sec-WebSocket-Protocol": "mcp",
        "Authorization": "Bearer tests",
        **headers,
    }
    return "\r\n".join(
        [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    ).encode()


def frame(payload: bytes, opcode: int = TEXT, *, final: bool = True, masked: bool = True) -> bytes:
    """A client's frame (RFC 6455, section 5.2), under a mask of zeros."""
    size, mask = len(payload), 0x80 if masked else 0
    head = bytes([opcode | (0x80 if final else 0)])
    if size < 126:
        head += bytes([mask | size])
    elif size < 1 << 16:
        head += bytes([mask | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([mask | 127]) + size.to_bytes(8, "big")
    return head + (bytes(4) if masked else b"") + payload


class Refused(Exception):
    """The handshake was answered with another status; the text is the answer."""


class Channel:
    """Base of the clients of channels: ids, requests of both eras, responses separated from other messages."""

    def __init__(self, revision: str) -> None:
        self.revision = revision
        self.other_messages: list[dict[str, Any]] = []
        """Messages that came while an answer was waited for."""
        self._ids = itertools.count(1)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message."""
        raise NotImplementedError

    def receive(self) -> dict[str, Any] | None:
        """The next message; None once the channel is closed."""
        raise NotImplementedError

    def open(self) -> None:
        """In the handshake era: shake hands."""
        if self.revision == STATELESS:
            return
        who = {"name": "tests", "version": "1"}
        opening = {"protocolVersion": self.revision, "capabilities": CAPABILITIES, "clientInfo": who}
        answer = self.answer(self.request("initialize", opening))
        assert "serverInfo" in answer["result"], answer
        self.notify("notifications/initialized")

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Send a request. Returns its id."""
        number = next(self._ids)
        self.send(self.message(method, params) | {"id": number})
        return number

    def message(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A message of this revision, without an id."""
        params = dict(params or {})
        if self.revision == STATELESS:
            own = {META + "protocolVersion": self.revision, META + "clientCapabilities": CAPABILITIES}
            params["_meta"] = {**params.get("_meta", {}), **own}
        return {"jsonrpc": "2.0", "method": method, "params": params}

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        self.send(self.message(method, params))

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> int:
        """Send a `tools/call`, which wants progress. Returns its id."""
        number = next(self._ids)
        params = {"name": tool, "arguments": dict(arguments or {}), "_meta": {"progressToken": number}}
        self.send(self.message("tools/call", params) | {"id": number})
        return number

    def answer(self, number: int) -> dict[str, Any]:
        """Wait for the response to a request; other messages are added to `other_messages`."""
        while (message := self.receive()) is not None:
            if message.get("id") == number and "method" not in message:
                return message
            self.other_messages.append(message)
        raise ConnectionError(f"no answer to {number} before the end")

    def value(self, tool: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Call a tool, and return its result."""
        answer = self.answer(self.call(tool, arguments))
        assert not answer["result"].get("isError"), answer
        return answer["result"]["structuredContent"]["result"]

    def until(self, method: str) -> dict[str, Any]:
        """Wait for a message with this method."""
        while (message := self.receive()) is not None:
            if message.get("method") == method:
                return message
            self.other_messages.append(message)
        raise ConnectionError(f"no {method} before the end")


class WebSocket(Channel):
    """One WebSocket. Nothing is read unless asked for."""

    def __init__(self, port: int, revision: str = HANDSHAKE, *, buffer: int | None = None, path: str = PATH) -> None:
        """`buffer` is how many bytes the system may receive before anybody reads them."""
        super().__init__(revision)
        self.socket = socket.socket()
        if buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(WAIT_SECONDS)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.code: int | None = None
        """The close code, once it has come."""
        self._unread = bytearray()
        self._at = 0
        try:
            self._shake_hands(upgrade(port, path))
        except BaseException:
            self.socket.close()
            raise

    def _shake_hands(self, request: bytes) -> None:
        self.socket.sendall(request)
        while b"\r\n\r\n" not in self._unread:
            self._more()
        head, _, self._unread = self._unread.partition(b"\r\n\r\n")
        if head[9:12] != b"101":
            raise Refused(bytes(head + self._unread).decode("latin-1"))

    def __enter__(self) -> "WebSocket":
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, message: Mapping[str, Any]) -> None:
        self.socket.sendall(frame(json.dumps(message).encode()))

    def receive(self) -> dict[str, Any] | None:
        for opcode, payload in self.frames():
            if opcode == TEXT:
                message: dict[str, Any] = json.loads(payload)
                return message
        return None

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """Frames as they arrive, up to the end; pings and the close frame are answered. It may be left and taken up
        again.
        """
        while True:
            while (found := self._take()) is None:
                try:
                    self._more()
                except OSError:
                    return
            opcode, payload = found
            if opcode == CLOSE:
                self.code = int.from_bytes(payload[:2], "big") or 1005
                self._answer(payload, CLOSE)
            elif opcode == PING:
                self._answer(payload, PONG)
            yield opcode, payload

    def _answer(self, payload: bytes, opcode: int) -> None:
        with contextlib.suppress(OSError):
            self.socket.sendall(frame(payload, opcode))

    def _take(self) -> tuple[int, bytes] | None:
        unread, at = self._unread, self._at
        if len(unread) < at + 2:
            return None
        size, begin = unread[at + 1], at + 2
        if size >= 126:
            begin = at + (4 if size == 126 else 10)
            size = int.from_bytes(unread[at + 2 : begin], "big")
        if len(unread) < begin + size:
            return None
        payload, self._at = bytes(unread[begin : begin + size]), begin + size
        return unread[at] & 0x0F, payload

    def _more(self) -> None:
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError(f"the server hung up after {bytes(self._unread[self._at :])[:300]!r}")
        del self._unread[: self._at]
        self._at = 0
        self._unread += data

    def drained(self) -> int | None:
        """Read to the end. Returns the close code; None when there was none.

        Raises AssertionError when messages come for longer than tests wait.
        """
        end = time.monotonic() + WAIT_SECONDS
        for _ in self.frames():
            assert time.monotonic() < end, "it goes on and on"
        return self.code

    def is_closed(self) -> bool:
        """Return True if the server has closed the connection, without reading its data."""
        poll = select.poll()
        poll.register(self.socket, select.POLLRDHUP)
        return bool(poll.poll(0))

    def leave(self, way: str) -> None:
        """Go, in one of `WAYS`."""
        try:
            if way.startswith("close frame"):
                self.socket.sendall(frame((1000).to_bytes(2, "big"), CLOSE))
            if way == "close frame and wait":
                self.drained()
            if way == "half close":
                self.socket.shutdown(socket.SHUT_WR)
                self.socket.settimeout(0.05)
                self.socket.recv(1)
        except OSError:
            pass
        leave(self.socket, reset=way == "reset")


def leave(connection: socket.socket, *, reset: bool) -> None:
    """Hang up, with FIN or RST."""
    if reset:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
