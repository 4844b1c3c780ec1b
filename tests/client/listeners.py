"""Servers on loopback that control each byte, to misbehave as no regular server does."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(connected: Connected, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve connections with a function; yield the port, and close all connections at the end."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await connected(reader, writer)
        except asyncio.CancelledError:
            pass
        finally:
            writer.close()
            with suppress(ConnectionError, ssl.SSLError, asyncio.CancelledError):
                await writer.wait_closed()
            tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(list(tasks))


class Exchange:
    """A request, and the ways to respond to it."""

    def __init__(self, head: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        first, *lines = head.split("\r\n")
        self.method, self.path, _ = first.split(" ")
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
        self.message: Any = json.loads(body) if body else None
        self._writer = writer

    async def answer(self, status: int = 200, body: bytes | str = b"", **headers: str) -> None:
        """Send a whole response; `_` in names of headers is `-`."""
        body = body.encode() if isinstance(body, str) else body
        await self.begin(status, content_length=str(len(body)), **headers)
        await self.write(body)

    async def begin(self, status: int = 200, **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} Whatever", "Connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.write("\r\n".join([*lines, "", ""]))

    async def write(self, data: bytes | str) -> None:
        self._writer.write(data.encode() if isinstance(data, str) else data)
        await self._writer.drain()

    async def result(self, **result: Any) -> None:
        """Respond to the call with a result."""
        body = {"jsonrpc": "2.0", "id": self.message["id"], "result": result}
        await self.answer(200, json.dumps(body), content_type="application/json")

    def event(self, **fields: Any) -> str:
        """Send an event with a message about the call."""
        return f"data: {json.dumps({'jsonrpc': '2.0', 'id': self.message['id'], **fields})}\r\n\r\n"


Served = Callable[[Exchange], Awaitable[None]]


def exchanges(served: Served | Mapping[str, Served]) -> Connected:
    """Serve one request on a connection with a function, or with that of the method of the message."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next((int(line[15:]) for line in head.lower().split("\r\n") if line.startswith("content-length:")), 0)
        exchange = Exchange(head.rstrip(), await reader.readexactly(length), writer)
        if callable(served):
            await served(exchange)
        else:
            await served[exchange.message["method"] if exchange.message else exchange.method](exchange)

    return connected
