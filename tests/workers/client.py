"""A client of the handshake era in asyncio, of which there can be many: each request names the worker it goes to.

Connections are one request each and can be cut at any moment. Ids of events count once their event is complete, as
the standard has it (WHATWG HTML, section 9.2.6).
"""

import asyncio
import itertools
import json
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

from tests.servers.client import HANDSHAKE, META, STATELESS
from tests.support.sse_decoder import Decoder, ServerSentEvent
from tests.support.waiting import WAIT_SECONDS

PATH = "/mcp"
Message = dict[str, Any]


class Stream:
    """The answer to one request, whose head has been read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.status, self.headers = 0, dict[str, str]()
        self.ended = False
        """True after the terminating chunk of the response; a broken connection has none."""

    async def read_head(self) -> Self:
        """Read status and headers. Raises OSError or EOFError when the server is gone."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").strip().split("\r\n")
        self.status = int(first.split()[1])
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return self

    async def events(self) -> AsyncIterator[ServerSentEvent]:
        """Events as they arrive, those without data included, until the server ends the stream."""
        assert self.headers.get("content-type", "").startswith("text/event-stream"), (self.status, self.headers)
        decoder = Decoder()
        async for piece in self._pieces():
            for event in decoder.feed(piece):
                yield event

    async def messages(self) -> AsyncIterator[Message]:
        """The JSON-RPC messages of the answer, whether it is a stream or not; none of a refusal in words."""
        kind = self.headers.get("content-type", "")
        if kind.startswith("text/event-stream"):
            async for event in self.events():
                if event.data:
                    yield json.loads(event.data)
        elif kind.startswith("application/json"):
            yield json.loads(b"".join([piece async for piece in self._pieces()]))

    def cut(self, *, reset: bool) -> None:
        """Close the connection, with RST or with FIN, also with unread data."""
        transport = self._writer.transport
        if reset:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    async def _pieces(self) -> AsyncIterator[bytes]:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int(await self._reader.readuntil(b"\r\n"), 16):
                yield (await self._reader.readexactly(size + 2))[:size]
        else:
            yield await self._reader.readexactly(int(self.headers.get("content-length", "0")))
        self.ended = True


@asynccontextmanager
async def request(
    port: int, method: str, headers: Mapping[str, str], body: bytes = b"", *, path: str = PATH
) -> AsyncIterator[Stream]:
    """One request on a connection of its own, which is closed at the end of the block."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    stream = Stream(reader, writer)
    try:
        fields = {"Host": f"127.0.0.1:{port}", "Content-Length": str(len(body)), "Connection": "close", **headers}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        yield await stream.read_head()
    finally:
        stream.cut(reset=False)


def returned(result: Message) -> Any:
    """Read the result of a tool, in any revision; the third added structured content."""
    return json.loads(result["content"][0]["text"])


class Refused(Exception):
    """The server answered with another status than the one that was hoped for."""

    def __init__(self, status: int, data: object) -> None:
        super().__init__(f"{status}: {data}")
        self.status = status


class UserClient:
    """A client of one revision. The name of its user is its credential."""

    def __init__(self, name: str, revision: str = STATELESS) -> None:
        self.name, self.revision = name, revision
        self.key: str | None = None
        """The session's, in the handshake era."""
        self.ids = itertools.count(1)

    @classmethod
    async def initialized(cls, name: str, port: int, revision: str = HANDSHAKE) -> Self:
        """Open a session."""
        user = cls(name, revision)
        opening = {
            "protocolVersion": revision,
            "capabilities": {"elicitation": {"form": {}}},
            "clientInfo": {"name": name, "version": "1"},
        }
        message = {"jsonrpc": "2.0", "id": next(user.ids), "method": "initialize", "params": opening}
        async with user.post(port, message) as stream:
            assert stream.status == 200, stream.status
            assert [m["result"]["protocolVersion"] async for m in stream.messages()] == [revision]
            user.key = stream.headers["mcp-session-id"]
        await user.notify(port, "notifications/initialized")
        return user

    def post(self, port: int, message: Message, headers: Mapping[str, str] | None = None) -> Any:
        """POST a message as it is: a block with the answer."""
        kinds = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        return request(port, "POST", {**self._headers(), **kinds, **(headers or {})}, json.dumps(message).encode())

    def listen(self, port: int, last_event_id: str | None = None) -> Any:
        """GET the session's stream, or go on with the stream that an event belongs to: a block with the answer."""
        resume = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        return request(port, "GET", {**self._headers(), "Accept": "text/event-stream", **resume})

    def call(self, port: int, tool: str, arguments: Message | None = None, **more: Any) -> Any:
        """Begin a `tools/call` that wants progress: a block with the answer. `more` are further params."""
        given = {"name": tool, "arguments": arguments or {}, "_meta": {"progressToken": 1}, **more}
        return self.ask(port, "tools/call", given, name=tool)

    def ask(self, port: int, method: str, params: Message | None = None, *, name: str | None = None) -> Any:
        """Begin any request: a block with the answer. Its id is in `last_id`."""
        params, routing = dict(params or {}), dict[str, str]()
        if self.revision == STATELESS:
            own = {META + "protocolVersion": STATELESS, META + "clientCapabilities": {"elicitation": {"form": {}}}}
            params["_meta"] = {**params.get("_meta", {}), **own}
            routing = {"Mcp-Method": method} | ({"Mcp-Name": name} if name else {})
        self.last_id = next(self.ids)
        return self.post(port, {"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}, routing)

    async def result(self, port: int, method: str, params: Message | None = None, *, name: str | None = None) -> Any:
        """The result of a request. Raises Refused with the status and the error for an error."""
        async with asyncio.timeout(WAIT_SECONDS), self.ask(port, method, params, name=name) as stream:
            data = [message async for message in stream.messages()]
            if stream.status != 200 or not data or "result" not in data[-1]:
                raise Refused(stream.status, data)
            return data[-1]["result"]

    async def value(self, port: int, tool: str, arguments: Message | None = None) -> Any:
        """Call a tool and return its value."""
        result = await self.result(port, "tools/call", {"name": tool, "arguments": arguments or {}}, name=tool)
        if result.get("isError"):
            raise Refused(200, result)
        return returned(result)

    async def notify(self, port: int, method: str, params: Message | None = None) -> int:
        """Send a notification. Return the status."""
        return await self.send(port, {"jsonrpc": "2.0", "method": method, "params": params or {}})

    async def send(self, port: int, message: Message) -> int:
        """Send a message that gets no answer; the status."""
        async with asyncio.timeout(WAIT_SECONDS), self.post(port, message) as stream:
            status: int = stream.status
            return status

    async def delete(self, port: int) -> int:
        """End the session; the status."""
        async with asyncio.timeout(WAIT_SECONDS), request(port, "DELETE", self._headers()) as stream:
            return stream.status

    def _headers(self) -> dict[str, str]:
        fields = {"Authorization": f"Bearer {self.name}"}
        if self.key is not None:
            fields["Mcp-Session-Id"] = self.key
        if self.key is not None or self.revision == STATELESS:
            fields["MCP-Protocol-Version"] = self.revision
        return fields
