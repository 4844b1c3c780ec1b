"""Message streams for the SDK: one to read messages, and one to write them.

When a connection ends by itself, the read stream returns the ClientConnectionError with the reason, and then ends.
Waiting calls get the SDK's "Connection closed", which `open_streams` replaces by the reason.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Self

import anyio
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, jsonrpc_message_adapter

from mcp_django.client.errors import ClientConnectionError
from mcp_django.client.failures import flatten_error
from mcp_django.client.sdk_compat import Streams

__all__ = ["MessageConnection", "Streams", "decode_message", "encode_message"]


def decode_message(raw: bytes | str) -> SessionMessage:
    """Parse a message for the SDK. Raises ValueError if it is invalid."""
    return SessionMessage(jsonrpc_message_adapter.validate_json(raw, by_name=False))


def encode_message(message: SessionMessage) -> str:
    """Encode a message for the wire, in one line."""
    return message.message.model_dump_json(by_alias=True, exclude_unset=True)


class _ClosableStream:
    """Base class of both streams: a context manager that closes the stream."""

    _closed = False

    def close(self) -> None:
        self._closed = True

    async def aclose(self) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()


class MessageReader(_ClosableStream):
    """Read stream over `receive`.

    At the end of the connection `receive` raises its ClientConnectionError.
    """

    def __init__(self, receive: Callable[[], Awaitable[SessionMessage]]) -> None:
        self._receive = receive
        self._is_ended = False

    async def receive(self) -> SessionMessage | Exception:
        if self._closed:
            raise anyio.ClosedResourceError
        if self._is_ended:
            raise anyio.EndOfStream
        try:
            return await self._receive()
        except ClientConnectionError as ended:
            self._is_ended = True
            return ended

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class MessageWriter(_ClosableStream):
    """Write stream over `send`.

    After the end of the connection `send` raises OSError or ClientConnectionError.
    """

    def __init__(self, send: Callable[[SessionMessage], Awaitable[None]]) -> None:
        self._send = send

    async def send(self, message: SessionMessage, /) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
        try:
            await self._send(message)
        except (OSError, ClientConnectionError) as problem:
            raise anyio.BrokenResourceError from problem


class MessageConnection:
    """Base class of the connections of this package's own transports."""

    error: ClientConnectionError | None = None
    """The error that ended the connection, if any."""

    async def receive(self) -> SessionMessage:
        """Return the next message. Raises ClientConnectionError at the end."""
        raise NotImplementedError

    async def send(self, message: SessionMessage) -> None:
        """Send a message. Raises OSError or ClientConnectionError at the end."""
        raise NotImplementedError

    async def get_close_reason(self) -> ClientConnectionError | None:
        """Return the error that ended the connection, or None."""
        return self.error

    @asynccontextmanager
    async def open_streams(self) -> AsyncIterator[Streams]:
        """Open the message streams. Raises the reason for the end in place of generic errors."""
        try:
            yield MessageReader(self.receive), MessageWriter(self.send)
        except (MCPError, BaseExceptionGroup) as error:
            closed = all(isinstance(leaf, MCPError) and leaf.code == CONNECTION_CLOSED for leaf in flatten_error(error))
            if closed and (close_reason := await self.get_close_reason()) is not None:
                raise close_reason from error
            raise
