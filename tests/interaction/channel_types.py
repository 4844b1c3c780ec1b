"""How messages travel on each kind of channel, in this process and on the test's own loop."""

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mcp_django.auth.requests import AuthRequest
from mcp_django.protocol.headers import Headers
from mcp_django.transports.credentials import Credential
from mcp_django.transports.services import get_transport_services
from mcp_django.transports.stdio.redirect import StandardStreams
from mcp_django.transports.stdio.stdio import StdioTransport
from mcp_django.wiring import create_authenticator
from tests.interaction.channel import Channel, Refused
from tests.interaction.wire import Exchange, http_scope

if TYPE_CHECKING:
    from tests.interaction.clients import Client
    from tests.interaction.transports import Transport

CHUNK = 1 << 16
HEADERS = ("content-type", "accept")
"""Those that a message has which is an HTTP request."""


class WebSocketChannel(Channel):
    """A socket, of which the test plays the server."""

    def __init__(self, transport: "Transport", client: "Client") -> None:
        super().__init__(client.revision)
        self._app = transport.app
        pairs = [(n, v) for n, v in client.headers({}).items() if v is not None and n not in HEADERS]
        self._scope = http_scope("GET", f"{client.path()}/ws", pairs, type="websocket", scheme="ws")
        self._scope |= {"subprotocols": [], "extensions": {"websocket.http.response": {}}}
        self._coming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._sent: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._reading = asyncio.Event()
        self._reading.set()
        self.code: int | None = None
        """That of the server's close frame."""

    async def open(self) -> None:
        self._coming.put_nowait({"type": "websocket.connect"})
        self._serving = asyncio.ensure_future(self._serve())
        event = await self._sent.get()
        if event is None:
            await self._serving
        assert event is not None, "the application sent nothing"
        if event["type"] == "websocket.http.response.start":
            body = await self._sent.get()
            headers = {name.decode(): value.decode() for name, value in event["headers"]}
            raise Refused(event["status"], headers, (body or {}).get("body", b""))
        assert event["type"] == "websocket.accept", event

    async def _serve(self) -> None:
        try:
            await self._app(self._scope, self._coming.get, self._send)
        finally:
            self._sent.put_nowait(None)

    async def _send(self, event: dict[str, Any]) -> None:
        await self._reading.wait()
        self._sent.put_nowait(event)

    async def write(self, body: bytes) -> None:
        self._coming.put_nowait({"type": "websocket.receive", "text": body.decode()})

    async def read(self) -> bytes | None:
        event = await self._sent.get()
        if event is None or event["type"] == "websocket.close":
            self.code = event and event.get("code", 1000)
            return None
        assert event["type"] == "websocket.send", event
        text: str = event["text"]
        return text.encode()

    async def close(self) -> None:
        self._reading.set()
        self._coming.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await self._serving

    def stop_reading(self) -> None:
        self._reading.clear()

    def read_on(self) -> None:
        self._reading.set()


class SSEChannel(Channel):
    """An event stream, and a POST for each message."""

    def __init__(self, transport: "Transport", client: "Client") -> None:
        super().__init__(client.revision)
        self._app = transport.app
        self._pairs = {name: value for name, value in client.headers({}).items() if value is not None}
        self._path = f"{client.path()}/sse"

    async def open(self) -> None:
        headers = {**self._pairs, "accept": "text/event-stream"}
        del headers["content-type"]
        self._stream = Exchange(self._app, http_scope("GET", self._path, headers), [b""], lambda _: None)
        status, found = await self._stream.started()
        if status != 200:
            reply = await self._stream.reply()
            raise Refused(status, found, reply.body)
        first = await self._stream.frame()
        assert first is not None, "the stream ended"
        assert (first.event, first.data is not None) == ("endpoint", True), first
        self._endpoint = urlsplit((first.data or b"").decode())

    async def write(self, body: bytes) -> None:
        target = http_scope("POST", self._endpoint.path, self._pairs, query_string=self._endpoint.query.encode())
        reply = await Exchange(self._app, target, [body], lambda _: None).reply()
        if reply.status != 202 and reply.messages:
            self._receive(reply.body)

    async def read(self) -> bytes | None:
        while (frame := await self._stream.frame()) is not None:
            if frame.data is not None:
                assert frame.event in (None, "message"), frame
                return frame.data
        return None

    async def close(self) -> None:
        self._stream.leave()
        await self._stream.end()

    def stop_reading(self) -> None:
        self._stream.stop_reading()

    def read_on(self) -> None:
        self._stream.read_on()


class StdioChannel(Channel):
    """Two pipes, as a process has them for its standard streams."""

    def __init__(self, transport: "Transport", client: "Client") -> None:
        super().__init__(client.revision)
        self._client = client
        self._come = b""
        self._reading = asyncio.Event()
        self._reading.set()

    async def open(self) -> None:
        client = self._client
        headers = Headers([(n.encode(), v.encode()) for n, v in client.headers({}).items() if v is not None])
        verifier = create_authenticator(client.server)
        principal = await verifier.authenticate(AuthRequest(headers, "127.0.0.1"))
        (theirs, self._sink), (self._source, ours) = os.pipe(), os.pipe()
        for end in (self._sink, self._source):
            os.set_blocking(end, False)
        credential = None if principal.is_local else Credential(verifier, AuthRequest(headers))
        self._serving = asyncio.ensure_future(
            StdioTransport(get_transport_services(client.server), StandardStreams(theirs, ours)).serve(
                principal, credential
            )
        )

    async def write(self, body: bytes) -> None:
        rest, loop = body + b"\n", asyncio.get_running_loop()
        while rest:
            try:
                rest = rest[os.write(self._sink, rest) :]
            except BlockingIOError:
                await _ready(self._sink, loop.add_writer, loop.remove_writer)

    async def read(self) -> bytes | None:
        loop = asyncio.get_running_loop()
        while True:
            line, newline, rest = self._come.partition(b"\n")
            if newline:
                self._come = rest
                await self._reading.wait()
                return line
            await self._reading.wait()
            try:
                data = os.read(self._source, CHUNK)
            except BlockingIOError:
                await _ready(self._source, loop.add_reader, loop.remove_reader)
                continue
            if not data:
                assert not self._come, f"the channel ends within a line: {self._come!r}"
                return None
            self._come += data

    async def close(self) -> None:
        os.close(self._sink)
        os.close(self._source)
        if not self.over:
            self._serving.cancel()  # calls that run would be waited for, as long as the process may
        await asyncio.wait([self._serving])
        if not self._serving.cancelled():
            self._serving.result()

    def stop_reading(self) -> None:
        self._reading.clear()

    def read_on(self) -> None:
        self._reading.set()


async def _ready(descriptor: int, add: Callable[..., None], remove: Callable[[int], Any]) -> None:
    """Wait until a descriptor takes or gives something."""
    ready = asyncio.Event()
    add(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        remove(descriptor)


CHANNEL_TYPES: "dict[str, Callable[[Transport, Client], Channel]]" = {
    "websocket": WebSocketChannel,
    "sse": SSEChannel,
    "stdio": StdioChannel,
}
