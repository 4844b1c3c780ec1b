"""A client of HTTP+SSE on bare sockets: its stream on one, each POST on one of its own, at whichever worker.

with LegacyClient(port, "/mcp/sse") as client:
    assert client.tool("fast", {"number": 1}) == 1
"""

import itertools
import json
import threading
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from tests.servers.client import HANDSHAKE, Answer, Request
from tests.support.sse_decoder import Decoder, ServerSentEvent


class LegacyClient:
    """Opens its stream and shakes hands when entered, and hangs up when left."""

    def __init__(
        self, port: int, path: str, *, posts_to: int | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """The stream is at `port`, POSTs go to `posts_to`, which may be another worker's."""
        self.port, self.path = port, path
        self.posts_to = port if posts_to is None else posts_to
        self.headers = {"Authorization": "Bearer tests", **(headers or {})}
        self.uri = ""
        self.stream: Request | None = None
        self._events: Iterator[ServerSentEvent] = iter(())
        self._ids = itertools.count(1)
        self._lock = threading.Lock()

    def __enter__(self) -> "LegacyClient":
        self.open()
        answer = self.request(
            "initialize",
            {
                "protocolVersion": HANDSHAKE,
                "capabilities": {"elicitation": {"form": {}}},
                "clientInfo": {"name": "tests", "version": "1"},
            },
        )
        assert answer["result"]["protocolVersion"] == HANDSHAKE
        assert self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}).status == 202
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def open(self) -> None:
        """Open the stream and read where messages go."""
        self.stream = self._send(self.port, "GET", self.path, b"", {"Accept": "text/event-stream"})
        assert self.stream.head() == 200
        self._events = self._read(self.stream)
        first = next(self._events)
        assert first.event == "endpoint"
        self.uri = first.data.decode()

    def leave(self, *, reset: bool = False) -> None:
        """Hang up."""
        if self.stream is not None:
            self.stream.leave(reset=reset)

    def post(self, message: Any, *, port: int | None = None) -> Answer:
        """POST a message, or bytes as they are."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        request = self._send(self.posts_to if port is None else port, "POST", self.uri, body, {})
        return request.answer()

    def send(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Send a request, and see it accepted; its id."""
        with self._lock:
            id = next(self._ids)
        answer = self.post({"jsonrpc": "2.0", "id": id, "method": method, "params": dict(params or {})})
        assert answer.status == 202, answer
        return id

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> int:
        """Send a `tools/call`; its id."""
        return self.send("tools/call", {"name": tool, "arguments": dict(arguments or {})})

    def message(self) -> dict[str, Any]:
        """The next message of the stream. Raises StopIteration at its end."""
        event = next(self._events)
        assert event.event == "message", event
        message: dict[str, Any] = json.loads(event.data)
        return message

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request; its answer, of which nothing else comes before."""
        id = self.send(method, params)
        answer = self.message()
        assert answer["id"] == id, answer
        return answer

    def tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Call a tool; return its result."""
        answer = self.request("tools/call", {"name": name, "arguments": dict(arguments or {})})
        return answer["result"]["structuredContent"]["result"]

    def is_over(self) -> bool:
        """Read the stream to its end."""
        try:
            for _ in self._events:
                pass
        except OSError:
            pass
        return True

    def _read(self, stream: Request) -> Iterator[ServerSentEvent]:
        decoder = Decoder()
        for piece in stream._pieces():
            yield from decoder.feed(piece)

    def _send(self, port: int, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Request:
        fields = {"Host": f"127.0.0.1:{port}", **self.headers, **headers}
        if method == "POST":
            fields |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        return Request(port, "\r\n".join([*lines, "", ""]).encode() + body)
