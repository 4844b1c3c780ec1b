"""WebSocket: one JSON-RPC message in each text frame, in both eras.

The subprotocol is `mcp`. The revisions define no WebSocket transport. Close codes of RFC 6455 (section 7.4), and those
common among MCP servers, are described in the ClientConnectionError.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit, urlunsplit

from mcp.shared.message import SessionMessage
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidProxy,
    InvalidStatus,
    NegotiationError,
    ProxyError,
    WebSocketException,
)
from websockets.typing import Subprotocol

from mcp_django.client.errors import ClientConnectionError
from mcp_django.client.transports.streams import MessageConnection, Streams, decode_message, encode_message
from mcp_django.protocol.log_text import get_logger

if TYPE_CHECKING:
    from mcp_django.client.transports.targets import WebSocket

logger = get_logger(__name__)

CLOSE_TIMEOUT_SECONDS: Final = 2.0
"""Seconds for the server to answer the close frame."""
CLOSE_CODE_MEANINGS: Final = {
    1000: "normal closure",
    1001: "the server shuts down",
    1002: "protocol error",
    1003: "unsupported message type",
    1006: "the connection was lost",
    1007: "a message was not UTF-8",
    1008: "policy violation",
    1009: "a message was too large",
    1011: "internal server error",
    1012: "the server restarts",
    1013: "the server is overloaded",
    4401: "the credential is invalid or expired",
    4403: "the credential has insufficient permissions",
    4404: "the session has ended",
}
"""Descriptions of close codes."""
PRIVATE_CLOSE_CODES: Final = {code + 3000: code for code in (1001, 1003, 1009, 1013)}
"""Standard close codes by the private codes of servers such as daphne.

Those servers can only send private codes.
"""
FRAMES_LOGGER: Final = get_logger("mcp_django.client.websocket.frames")
"""Logger for the WebSocket library's frames of client connections."""
_HANDSHAKE_FORMATS: Final = frozenset({"> GET %s HTTP/1.1", "> %s: %s", "< %s: %s"})
HANDSHAKE_STATUS_MEANINGS: Final = {401: "a valid credential is required", 403: "access is denied"}


def _is_no_handshake(record: logging.LogRecord) -> bool:
    """Return False for records of the HTTP requests and headers that open a WebSocket."""
    return record.msg not in _HANDSHAKE_FORMATS


FRAMES_LOGGER.addFilter(_is_no_handshake)


class SocketClosed(ClientConnectionError):
    """The WebSocket was closed, or could not be opened.

    `code` is the close code (1006 without a close frame), `status` the HTTP status of a refused handshake.
    """

    def __init__(self, message: str, *, code: int | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


@asynccontextmanager
async def open_websocket(target: WebSocket) -> AsyncIterator[Streams]:
    """Open the message streams.

    Raises SocketClosed if opening fails or the connection breaks.
    """
    socket = _ClientSocket(target.display_name, target.max_message_size, await _open_connection(target))
    try:
        async with socket.open_streams() as streams:
            yield streams
    finally:
        await socket.connection.close()


class _ClientSocket(MessageConnection):
    """An open WebSocket connection."""

    def __init__(self, display_name: str, limit: int, connection: ClientConnection) -> None:
        self.connection = connection
        self._display_name = display_name
        self._limit = limit

    async def receive(self) -> SessionMessage:
        """Return the next message, skipping invalid frames. Raises SocketClosed."""
        while True:
            try:
                frame = await self.connection.recv()
            except ConnectionClosed as closed:
                self.error = self._build_closed_error(closed)
                raise self.error from None
            try:
                return decode_message(frame)
            except ValueError:
                logger.warning("Ignored an invalid message from %s", self._display_name)

    async def send(self, message: SessionMessage) -> None:
        try:
            await self.connection.send(encode_message(message))
        except ConnectionClosed as closed:
            self.error = self.error or self._build_closed_error(closed)
            raise self.error from None

    def _build_closed_error(self, closed: ConnectionClosed) -> SocketClosed:
        """Build the error from the close frame that was sent first."""
        frame = closed.rcvd if closed.rcvd is not None and (closed.rcvd_then_sent or closed.sent is None) else None
        if frame is not None:
            meaning = CLOSE_CODE_MEANINGS.get(PRIVATE_CLOSE_CODES.get(frame.code, frame.code), "no known reason")
            return SocketClosed(f"The server closed the socket ({frame.code}): {meaning}", code=frame.code)
        code = closed.sent.code if closed.sent is not None else 1006
        if code == 1009:
            return SocketClosed(f"The server sent a message of more than {self._limit} bytes", code=code)
        if code == 1011:
            return SocketClosed("The server stopped answering pings", code=code)
        return SocketClosed("The connection was lost", code=1006)


async def _open_connection(target: WebSocket) -> ClientConnection:
    url = target.url
    if target.ticket is not None:
        url = _add_ticket(url, await target.ticket())
    context: dict[str, Any] = {} if target.ssl_context is None else {"ssl": target.ssl_context}
    try:
        connection = await _ConnectWithoutRedirects(
            url,
            subprotocols=[Subprotocol(target.subprotocol)],
            additional_headers=dict(target.headers),
            compression=None,
            proxy=True if target.environment_proxies else None,
            open_timeout=target.open_timeout,
            ping_interval=target.ping_interval,
            ping_timeout=target.ping_timeout,
            close_timeout=CLOSE_TIMEOUT_SECONDS,
            max_size=target.max_message_size,
            logger=FRAMES_LOGGER,
            **context,
        )
    except InvalidStatus as refused:
        status = refused.response.status_code
        why = HANDSHAKE_STATUS_MEANINGS.get(status, "it refused the WebSocket handshake")
        raise SocketClosed(f"The server answered HTTP {status}: {why}", status=status) from None
    except NegotiationError:
        raise SocketClosed(f"The server selected a subprotocol other than {target.subprotocol!r}") from None
    except TimeoutError:
        raise SocketClosed(
            f"The server did not complete the handshake within {target.open_timeout:g} seconds"
        ) from None
    except (InvalidProxy, ProxyError):
        raise SocketClosed("The proxy (see HTTPS_PROXY) refused the connection") from None
    except (OSError, WebSocketException, EOFError) as problem:
        raise SocketClosed(f"The server could not be reached: {_describe_error(problem)}") from None

    if connection.subprotocol != target.subprotocol:
        await connection.close(1002)
        raise SocketClosed(f"The server did not select the subprotocol {target.subprotocol!r}")
    return connection


class _ConnectWithoutRedirects(connect):
    """A handshake without redirects: headers and tickets are for the given URL."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


def _add_ticket(url: str, ticket: str) -> str:
    parts = urlsplit(url)
    query = "&".join(filter(None, (parts.query, urlencode({"ticket": ticket}))))
    return urlunsplit(parts._replace(query=query))


def _describe_error(problem: Exception) -> str:
    """Describe an error by the system's text or its class, without text from the peer."""
    return (problem.strerror if isinstance(problem, OSError) else None) or type(problem).__name__
