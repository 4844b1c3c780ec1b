"""A client of HTTP+SSE (2024-11-05) on bare sockets: one that listens, and one more for each message it sends."""

import json
import re
import socket
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple

from tests.load.websockets import Channel, leave
from tests.servers.client import HANDSHAKE, Request

PATH = "/mcp/sse"
WAYS = ("fin", "reset", "half close")
"""How a stream may be left."""


class Event(NamedTuple):
    """One event of a stream."""

    name: str
    data: str


class Refused(Exception):
    """A request was answered with another status than it should be."""

    def __init__(self, status: int) -> None:
        super().__init__(f"answered with {status}")
        self.status = status


class _Listening(Request):
    """The connection of the stream."""

    def __init__(self, port: int, data: bytes, buffer: int | None) -> None:
        super().__init__(port, b"")
        if buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.sendall(data)

    def _exactly(self, size: int) -> bytes:
        parts, missing = [self._unread[:size]], size - len(self._unread)
        self._unread = self._unread[size:]
        while missing > 0:
            data = self.socket.recv(min(missing, 1 << 18))
            if not data:
                raise ConnectionError("the server hung up within a piece")
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def named_events(self) -> Iterator[Event]:
        """Events as they arrive; comments are left out."""
        for piece in self._pieces():
            *events, self._event = re.split(rb"\r?\n\r?\n", self._event + piece)
            for event in events:
                fields = dict(re.findall(rb"(?m)^(\w+): ?(.*?)\r?$", event))
                if b"data" in fields:
                    yield Event(fields.get(b"event", b"message").decode(), fields[b"data"].decode())


class EventStream(Channel):
    """One stream and its endpoint. Nothing is read unless asked for."""

    def __init__(self, port: int, revision: str = HANDSHAKE, *, buffer: int | None = None, path: str = PATH) -> None:
        """`buffer` is how many bytes the system may receive before anybody reads them."""
        super().__init__(revision)
        self.port = port
        self.stream = _Listening(port, request("GET", port, path, b""), buffer)
        self._events = self.stream.named_events()
        status = self.stream.head()
        if status != 200:
            raise Refused(status)
        name, self.endpoint = next(self._events)
        assert name == "endpoint"

    def __enter__(self) -> "EventStream":
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stream.socket.close()

    @property
    def socket(self) -> socket.socket:
        """That of the stream."""
        return self.stream.socket

    def send(self, message: Mapping[str, Any]) -> None:
        status = self.post(json.dumps(message).encode())
        if status != 202:
            raise Refused(status)

    def post(self, body: bytes) -> int:
        """Send a body. Returns the status."""
        return Request(self.port, request("POST", self.port, self.endpoint, body)).answer().status

    def receive(self) -> dict[str, Any] | None:
        try:
            for event in self._events:
                message: dict[str, Any] = json.loads(event.data)
                return message
        except OSError:
            pass
        return None

    def leave(self, way: str) -> None:
        """Go, in one of `WAYS`."""
        try:
            if way == "half close":
                self.socket.shutdown(socket.SHUT_WR)
                self.socket.settimeout(0.05)
                self.socket.recv(1)
        except OSError:
            pass
        leave(self.socket, reset=way == "reset")


def request(method: str, port: int, path: str, body: bytes) -> bytes:
    """One HTTP request."""
    fields = {
        "Host": f"127.0.0.1:{port}",
        "Authorization": "Bearer tests",
        "Connection": "close" if method == "POST" else "keep-alive",
    }
    if method == "GET":
        fields["Accept"] = "text/event-stream"
    else:
        fields |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body
