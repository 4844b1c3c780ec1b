"""A client of HTTP+SSE in front of an ASGI application: its stream, and its POSTs."""

import asyncio
import itertools
import json
from typing import Any, NamedTuple

import pytest

from tests.interaction.messages import message_check
from tests.interaction.wire import App, http_scope
from tests.support.sse_decoder import Decoder, ServerSentEvent

REVISION = "2025-11-25"
both_doors = pytest.mark.parametrize("door", ["asgi", "view"], indirect=True)
"""Runs a test through the ASGI mount and through the Django view."""


class Reply(NamedTuple):
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The JSON-RPC error in the body."""
        error: dict[str, Any] = json.loads(self.body)["error"]
        return error


class OpenRequest:
    """A request that is not answered yet. While `reading` is cleared, the application cannot send."""

    def __init__(self, app: App, scope: dict[str, Any], body: bytes = b"") -> None:
        self._body, self._gone = [body], asyncio.Event()
        self.reading = asyncio.Event()
        self.reading.set()
        self._sent: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._decoder, self.events = Decoder(), list[ServerSentEvent]()
        self.raw = b""
        self.task = asyncio.ensure_future(self._run(app, scope))

    async def _run(self, app: App, scope: dict[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._send)
        finally:
            self._sent.put_nowait(None)

    async def _receive(self) -> dict[str, Any]:
        if self._body:
            return {"type": "http.request", "body": self._body.pop(), "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, event: dict[str, Any]) -> None:
        await self.reading.wait()
        if not self._gone.is_set():
            self._sent.put_nowait(event)

    async def next(self) -> dict[str, Any] | None:
        """Return the next message of the application; None when it has returned."""
        sent = await self._sent.get()
        if sent is None:
            await self.task
        return sent

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers."""
        start = await self.next()
        assert start is not None
        return start["status"], {name.decode().lower(): value.decode("latin-1") for name, value in start["headers"]}

    async def reply(self) -> Reply:
        """Everything."""
        status, headers = await self.head()
        body = b""
        while (sent := await self.next()) is not None:
            body += sent.get("body", b"")
        return Reply(status, headers, body)

    async def event(self) -> ServerSentEvent | None:
        """The next event of a stream; None at its end."""
        while not self.events:
            sent = await self.next()
            if sent is None:
                return None
            self.raw += sent.get("body", b"")
            self.events += self._decoder.feed(sent.get("body", b""))
        return self.events.pop(0)

    async def leave(self) -> None:
        """The client hangs up, and the application returns."""
        self._gone.set()
        self.reading.set()
        await asyncio.wait([self.task])


class Client:
    """One client of one server."""

    def __init__(self, app: App, path: str = "/mcp/interaction/sse", token: str | None = "alice") -> None:
        self.app, self.path, self.token = app, path, token
        self.uri = ""
        self.stream: OpenRequest | None = None
        self.messages = list[dict[str, Any]]()
        self._ids, self._requests = itertools.count(1), list[dict[str, Any]]()

    def headers(self, **more: str | None) -> dict[str, str]:
        base = {"host": "127.0.0.1:8000", "authorization": None if self.token is None else f"Bearer {self.token}"}
        merged = {**base, **{name.replace("_", "-"): value for name, value in more.items()}}
        return {name: value for name, value in merged.items() if value is not None}

    def get(self, path: str | None = None, *, accept: str | None = "text/event-stream", **scope: Any) -> OpenRequest:
        """Begin a GET."""
        headers = {**self.headers(accept=accept), **scope.pop("headers", {})}
        return OpenRequest(self.app, http_scope("GET", path or self.path, headers, **scope))

    async def open(self, **scope: Any) -> str:
        """Open the stream; return the URI of its first event."""
        self.stream = self.get(**scope)
        status, _ = await self.stream.head()
        assert status == 200
        first = await self.stream.event()
        assert first is not None
        assert first.event == "endpoint"
        self.uri = first.data.decode()
        return self.uri

    def begin_post(self, body: Any, uri: str | None = None, *, method: str = "POST", **scope: Any) -> OpenRequest:
        """Begin to POST a message, or bytes as they are."""
        path, _, query = (self.uri if uri is None else uri).partition("?")
        headers = {**self.headers(content_type="application/json"), **scope.pop("headers", {})}
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return OpenRequest(self.app, http_scope(method, path, headers, query_string=query.encode(), **scope), raw)

    async def post(self, body: Any, uri: str | None = None, **scope: Any) -> Reply:
        """The answer to such a POST."""
        return await self.begin_post(body, uri, **scope).reply()

    async def send(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Send a request; its id."""
        id = next(self._ids)
        message = {"jsonrpc": "2.0", "id": id, "method": method, **({} if params is None else {"params": params})}
        self._requests.append(message)
        reply = await self.post(message)
        assert (reply.status, reply.body) == (202, b"Accepted"), reply
        return id

    async def message(self) -> dict[str, Any]:
        """The next message of the stream, which is one that the revision defines."""
        assert self.stream is not None
        event = await self.stream.event()
        assert event is not None, "the stream ended"
        assert event.event == "message"
        message: dict[str, Any] = json.loads(event.data)
        message_check(REVISION, self._requests)(message)
        self.messages.append(message)
        return message

    async def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request; return its response. Earlier messages are in `messages`."""
        id = await self.send(method, params)
        while (message := await self.message()).get("id") != id:
            pass
        return message

    async def tool(self, name: str, **arguments: Any) -> Any:
        """Call a tool; return its result."""
        answer = await self.request("tools/call", {"name": name, "arguments": arguments})
        content = answer["result"]["structuredContent"]
        return content.get("result", content)

    async def hello(self, capabilities: dict[str, Any] | None = None, **scope: Any) -> dict[str, Any]:
        """Open the stream and initialize; return the result."""
        await self.open(**scope)
        answer = await self.request(
            "initialize",
            {
                "protocolVersion": REVISION,
                "capabilities": capabilities or {},
                "clientInfo": {"name": "tests", "version": "1"},
            },
        )
        assert (await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).status == 202
        result: dict[str, Any] = answer["result"]
        return result

    async def leave(self) -> None:
        """Hang up."""
        assert self.stream is not None
        await self.stream.leave()
