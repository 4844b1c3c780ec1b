"""A client on a bare socket that can leave at any moment, in any way a socket can be left.

with Client(port, "/mcp", STATELESS) as client:
    request = client.call("wait", {"tag": "a"})
    request.leave(reset=True)
"""

import itertools
import json
import re
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple

from tests.support.waiting import WAIT_SECONDS

STATELESS = "2026-07-28"
HANDSHAKE = "2025-11-25"
META = "io.modelcontextprotocol/"


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    headers: dict[str, str]
    messages: list[dict[str, Any]]
    """The JSON-RPC messages of the body: one, or those of the stream."""

    @property
    def message(self) -> dict[str, Any]:
        """The last message: the response."""
        return self.messages[-1]

    @property
    def value(self) -> Any:
        """The value that the tool returned."""
        assert self.status == 200, self
        assert not self.message["result"].get("isError"), self
        return self.message["result"]["structuredContent"]["result"]


class Request:
    """One request on a connection of its own. Nothing of its answer is read unless asked for."""

    def __init__(self, port: int, data: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(data)
        self._unread = self._event = b""
        self._chunked = False
        self.status, self.headers = 0, dict[str, str]()
        self.last_id: str | None = None
        """The id of the last event that has arrived."""

    def leave(self, *, reset: bool = False) -> None:
        """Hang up: with FIN, or with RST."""
        if reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def half_close(self) -> None:
        """Send FIN, and keep reading."""
        self.socket.shutdown(socket.SHUT_WR)

    def head(self) -> int:
        """Read up to the end of the headers. Returns the status."""
        while not self.status:
            head, found, rest = self._unread.partition(b"\r\n\r\n")
            if not found:
                self._receive()
                continue
            self._unread = rest
            first, *lines = head.decode("latin-1").split("\r\n")
            self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            self._chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
            self.status = int(first.split()[1])
        return self.status

    def events(self) -> Iterator[dict[str, Any]]:
        """The messages of a stream as they arrive; comments are left out. It may be left and taken up again."""
        for piece in self._pieces():
            *events, self._event = re.split(rb"\r?\n\r?\n", self._event + piece)
            for event in events:
                ids = [line[3:].strip().decode() for line in event.splitlines() if line.startswith(b"id:")]
                self.last_id = ids[-1] if ids else self.last_id
                data = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
                if data and any(data):
                    yield json.loads(b"\n".join(data))

    def answer(self) -> Answer:
        """Read everything."""
        status = self.head()
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            messages = list(self.events())
        else:
            body = b"".join(self._pieces())
            is_json = body and self.headers.get("content-type", "").startswith("application/json")
            messages = [json.loads(body)] if is_json else []
        self.socket.close()
        return Answer(status, self.headers, messages)

    def _pieces(self) -> Iterator[bytes]:
        self.head()
        if self._chunked:
            while size := int(self._line(), 16):
                piece = self._exactly(size)
                self._line()
                yield piece
            self._line()
        elif "content-length" in self.headers:
            yield self._exactly(int(self.headers["content-length"]))
        elif self.status not in (202, 204):
            while True:
                yield self._unread
                self._unread = b""
                try:
                    self._receive()
                except ConnectionError:
                    return

    def _line(self) -> bytes:
        while b"\r\n" not in self._unread:
            self._receive()
        line, _, self._unread = self._unread.partition(b"\r\n")
        return line

    def _exactly(self, size: int) -> bytes:
        while len(self._unread) < size:
            self._receive()
        data, self._unread = self._unread[:size], self._unread[size:]
        return data

    def _receive(self) -> None:
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError(f"the server hung up after {self._unread!r}")
        self._unread += data


LEAVING: dict[str, Callable[[Request], None]] = {
    "FIN": lambda request: request.leave(),
    "RST": lambda request: request.leave(reset=True),
    "half close": lambda request: request.half_close(),
}
"""Ways in which a client may leave. Servers take all three for the end."""


class Client:
    """Speaks one revision to one door. In the handshake era it opens a session when entered, and ends it.

    Its open requests are closed with it.
    """

    def __init__(self, port: int, path: str, revision: str, headers: Mapping[str, str] | None = None) -> None:
        """`headers` are added to each of its requests."""
        self.port, self.path, self.revision, self.headers = port, path, revision, dict(headers or {})
        self.session: str | None = None
        self._requests: list[Request] = []
        self._ids = itertools.count(1)

    def __enter__(self) -> "Client":
        if self.revision != STATELESS:
            who = {"name": "tests", "version": "1"}
            capabilities = {"elicitation": {"form": {}}}
            opening = {"protocolVersion": self.revision, "capabilities": capabilities, "clientInfo": who}
            answer = self.request("initialize", opening).answer()
            assert answer.status == 200, answer
            self.session = answer.headers["mcp-session-id"]
            self.notify("notifications/initialized")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.session is not None and kind is None:
            self._send("DELETE", b"", {}).answer()
        for request in self._requests:
            request.socket.close()

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None, *, part: float = 1.0) -> Request:
        """Begin a `tools/call`, which wants progress."""
        params = {"name": tool, "arguments": dict(arguments or {}), "_meta": {"progressToken": "token"}}
        return self.request("tools/call", params, name=tool, part=part)

    def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, name: str | None = None, part: float = 1.0
    ) -> Request:
        """Begin a request, of which this part is sent. Its id is in `last_id`."""
        params = dict(params or {})
        routing = {}
        if self.revision == STATELESS:
            own = {META + "protocolVersion": self.revision, META + "clientCapabilities": {"elicitation": {"form": {}}}}
            params["_meta"] = {**params.get("_meta", {}), **own}
            routing = {"Mcp-Method": method} | ({"Mcp-Name": name} if name else {})
        self.last_id = next(self._ids)
        return self.post({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}, routing, part)

    def listen(self, last: str | None = None) -> Request:
        """GET: open the session's own stream, or go on after the event with the id `last`."""
        headers = {"Accept": "text/event-stream"} | ({} if last is None else {"Last-Event-ID": last})
        return self._send("GET", b"", headers)

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification, and see it accepted."""
        answer = self.post({"jsonrpc": "2.0", "method": method, "params": dict(params or {})}).answer()
        assert answer.status == 202, answer

    def post(self, message: Mapping[str, Any], headers: Mapping[str, str] | None = None, part: float = 1.0) -> Request:
        """Send a message as it is, or the first part of it."""
        return self._send("POST", json.dumps(message).encode(), headers or {}, part)

    def _send(self, method: str, body: bytes, headers: Mapping[str, str], part: float = 1.0) -> Request:
        fields = {
            "Host": f"127.0.0.1:{self.port}",
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Accept": "application/json, text/event-stream",
            "Authorization": "Bearer tests",
            **self.headers,
            **headers,
        }
        if self.session is not None:
            fields["Mcp-Session-Id"] = self.session
        if self.revision == STATELESS or self.session is not None:
            fields["MCP-Protocol-Version"] = self.revision
        lines = [f"{method} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        data = "\r\n".join([*lines, "", ""]).encode() + body
        request = Request(self.port, data[: int(len(data) * part)])
        self._requests.append(request)
        return request
