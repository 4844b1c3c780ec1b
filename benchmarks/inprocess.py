"""The measured project without an HTTP server.

Its ASGI application is called in the same way as by a server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from benchmarks.wire import Dialect, Expected, Requests, Target, Work, initialize, initialized, session_headers

Message = MutableMapping[str, Any]
Application = Callable[[Any, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

PORT = 18_000
"""The port in the Host header. No server listens there."""


class Exchange:
    """A request and its response.

    As in uvicorn, `receive` returns the body, and then waits for the end of the response.
    """

    def __init__(self, request: bytes, expected: Expected) -> None:
        head, _, self.body = request.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        method, path, _ = first.split(b" ")
        self.headers: Headers = [(name.lower(), value) for name, _, value in (line.partition(b": ") for line in lines)]
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method.decode(),
            "scheme": "http",
            "path": path.decode(),
            "raw_path": path,
            "query_string": b"",
            "root_path": "",
            "headers": self.headers,
            "client": ("127.0.0.1", 40_000),
            "server": ("127.0.0.1", PORT),
            "state": {},
        }
        self._expected, self._received = expected, False
        self._ended = asyncio.Event()
        self.status, self.answer, self.answer_headers = 0, b"", Headers()

    async def receive(self) -> Message:
        """Return the body; then wait for the whole answer and return the disconnect."""
        if not self._received:
            self._received = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self._ended.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Add a message to the answer."""
        if message["type"] == "http.response.start":
            self.status, self.answer_headers = message["status"], list(message.get("headers", ()))
            return
        self.answer += message.get("body", b"")
        if not message.get("more_body", False):
            self._ended.set()

    def check(self) -> None:
        """Raise AssertionError if the answer is wrong."""
        if self.status not in (200, 202) or not self._expected.fits(self.answer):
            raise AssertionError(f"expected {self._expected}, got {self.status} {self.answer[:700]!r}")


class Caller:
    """A caller of one application, with one kind of request."""

    def __init__(
        self,
        application: Application,
        work: Work,
        dialect: Dialect,
        *,
        tools: int = 5,
        headers: dict[str, str] | None = None,
    ) -> None:
        self._application, self._work, self._tools = application, work, tools
        self._target = Target(port=PORT, path="/mcp", dialect=dialect, headers=headers or {})
        self._requests: Requests | None = None

    async def open(self) -> None:
        """Make the handshake, if the dialect has one."""
        session = ""
        if self._target.dialect is Dialect.HANDSHAKE:
            opened = await self._call(self._target.post(initialize()), Expected((b'"serverInfo"',)))
            keys = [value.decode() for name, value in opened.answer_headers if name.lower() == b"mcp-session-id"]
            session = keys[0] if keys else ""
            await self._call(self._target.post(initialized(), session_headers(session)), Expected(()))
        self._requests = Requests(self._target, self._work, session=session, tools=self._tools)

    def exchange(self) -> Exchange:
        """Return the next request, which is not sent yet."""
        assert self._requests is not None, "open() comes first"
        return Exchange(*self._requests.make())

    async def call(self) -> None:
        """Make a request in a task of its own, as a server does.

        Raises AssertionError for a wrong answer.
        """
        assert self._requests is not None, "open() comes first"
        await self._call(*self._requests.make())

    async def _call(self, request: bytes, expected: Expected) -> Exchange:
        exchange = Exchange(request, expected)
        await asyncio.get_running_loop().create_task(self.run(exchange))
        exchange.check()
        return exchange

    async def run(self, exchange: Exchange) -> None:
        """Run the application on one exchange."""
        # A task needs a coroutine, and an ASGI application returns only an awaitable.
        await self._application(exchange.scope, exchange.receive, exchange.send)
