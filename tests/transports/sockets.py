"""One WebSocket against an ASGI application, driven by hand: the test plays server and client.

    socket = Socket(mount(application), "/mcp/ws")
    assert await socket.accepted() is None
    reply = await socket.request("tools/list")
    socket.leave()
    await socket.end()

It waits for events, never for time.
"""

import asyncio
import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tests.interaction.messages import message_check

STATELESS, HANDSHAKE = "2026-07-28", "2025-11-25"
META = "io.modelcontextprotocol/"
DENIAL = "websocket.http.response"
App = Callable[[Any, Any, Any], Any]


class Denial(NamedTuple):
    """An HTTP response in place of a socket; 403 alone where a server has no denial response."""

    status: int
    headers: dict[str, str]
    body: bytes


def socket_scope(path: str, headers: Mapping[str, str] | Iterable[tuple[str, str]] = (), **more: Any) -> dict[str, Any]:
    """The scope of a handshake from loopback, as uvicorn gives it."""
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    if "host" not in dict(pairs):
        pairs.append(("host", "127.0.0.1:8000"))
    offered = [part.strip() for name, value in pairs if name == "sec-websocket-protocol" for part in value.split(",")]
    return {
        "type": "websocket",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "scheme": "ws",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in pairs],
        "subprotocols": offered,
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
        "extensions": {DENIAL: {}},
        **more,
    }


class Socket:
    """A socket of a client. The `send` of the server raises OSError once the client has left."""

    def __init__(
        self, app: App, path: str = "/mcp/ws", headers: Mapping[str, str] | Iterable[tuple[str, str]] = (), **scope: Any
    ) -> None:
        """`scope` replaces entries of the scope."""
        self.scope = socket_scope(path, headers, **scope)
        self._app = app
        self._coming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._coming.put_nowait({"type": "websocket.connect"})
        self._sent: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._reading = asyncio.Event()
        self.failure: BaseException | None = None
        """What `send` raises."""
        self._reading.set()
        self.stuck = asyncio.Event()
        """Does `send` wait for the client?"""
        self._ids = itertools.count(1)
        self.requests: list[dict[str, Any]] = []
        """Those that were sent, whose answers are checked against the schema of `revision`."""
        self.revision = STATELESS
        self.task: asyncio.Task[None] = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            await self._app(self.scope, self._coming.get, self._send)
        finally:
            self._sent.put_nowait(None)

    async def _send(self, event: dict[str, Any]) -> None:
        if not self._reading.is_set():
            self.stuck.set()
            await self._reading.wait()
        if self.failure is not None:
            raise self.failure
        self._sent.put_nowait(event)

    def leave(self, code: int = 1005) -> None:
        """The client is gone."""
        self.failure = ConnectionResetError("the socket is closed")
        self._reading.set()
        self.disconnect(code)

    def disconnect(self, code: int = 1006) -> None:
        """Report a disconnect to the application, while `send` works as before, or waits for ever."""
        self._coming.put_nowait({"type": "websocket.disconnect", "code": code})

    def stop_reading(self) -> None:
        """From here on the server's `send` waits, as it does behind a full socket."""
        self._reading.clear()

    def read_on(self) -> None:
        self.stuck.clear()
        self._reading.set()

    def put(self, **frame: Any) -> None:
        """A frame comes in: `text=` or `bytes=`."""
        self._coming.put_nowait({"type": "websocket.receive", **frame})

    def post(self, message: Any) -> None:
        """A JSON-RPC message comes in."""
        if isinstance(message, dict) and "id" in message and "method" in message:
            self.requests.append(message)
        self.put(text=json.dumps(message))

    def call(self, tool: str, /, **arguments: Any) -> int:
        """Begin a `tools/call` of the revision; its id."""
        return self.start("tools/call", {"name": tool, "arguments": arguments})

    def start(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Begin a request of the revision; its id."""
        id, params = next(self._ids), dict(params or {})
        if self.revision == STATELESS:
            about = {META + "protocolVersion": STATELESS, META + "clientCapabilities": {"elicitation": {}}}
            params["_meta"] = {**about, **params.get("_meta", {})}
        self.post({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return id

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A request and its answer, when nothing else is sent before."""
        id = self.start(method, params)
        answer = await self.message()
        assert answer.get("id") == id, answer
        return answer

    async def value(self, tool: str, /, **arguments: Any) -> Any:
        """Call a tool; return its value."""
        answer = await self.request("tools/call", {"name": tool, "arguments": arguments})
        assert not answer["result"].get("isError"), answer
        content: dict[str, Any] = answer["result"]["structuredContent"]
        return content["result"] if set(content) == {"result"} else content

    def notify(self, method: str, **params: Any) -> None:
        self.post({"jsonrpc": "2.0", "method": method, "params": params})

    async def handshake(self, revision: str = HANDSHAKE, **capabilities: Any) -> dict[str, Any]:
        """Send `initialize` and `notifications/initialized`; return the result."""
        self.revision = revision
        who = {"protocolVersion": revision, "capabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}}
        answer = await self.request("initialize", who)
        self.notify("notifications/initialized")
        result: dict[str, Any] = answer["result"]
        return result

    async def event(self) -> dict[str, Any] | None:
        """The next thing that the application sends; None when it has returned."""
        event = await self._sent.get()
        if event is None:
            self._sent.put_nowait(None)
            await self.task
        return event

    async def accepted(self) -> str | None:
        """Wait until the socket is accepted; the subprotocol."""
        event = await self.event()
        assert event is not None, "the application sent nothing"
        assert event["type"] == "websocket.accept", event
        chosen: str | None = event["subprotocol"]
        return chosen

    async def denied(self) -> Denial:
        """Wait until the socket is refused, and the application has returned."""
        event = await self.event()
        assert event is not None, "the application sent nothing"
        denial = Denial(403, {}, b"")
        if event["type"] != "websocket.close":
            assert event["type"] == f"{DENIAL}.start", event
            body = await self.event()
            assert body is not None
            assert body["type"] == f"{DENIAL}.body", body
            headers = {name.decode(): value.decode() for name, value in event["headers"]}
            denial = Denial(event["status"], headers, body["body"])
        assert await self.event() is None
        return denial

    async def message(self) -> dict[str, Any]:
        """The next JSON-RPC message, which is one that its revision defines."""
        event = await self.event()
        assert event is not None, "the application has returned"
        assert event["type"] == "websocket.send", event
        message: dict[str, Any] = json.loads(event["text"])
        message_check(self.revision, self.requests)(message)
        return message

    async def closed(self) -> tuple[int, str]:
        """Wait until the server closes the socket, and the application has returned: code and reason. Messages before
        that are passed over.
        """
        while (event := await self.event()) is not None and event["type"] == "websocket.send":
            pass
        assert event is not None, "the application returned without a close frame"
        assert event["type"] == "websocket.close", event
        assert await self.event() is None
        return event["code"], event["reason"]

    async def finish(self) -> None:
        """Wait until the application has returned; an exception of its own fails the test."""
        await self.task
