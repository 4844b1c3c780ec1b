"""WebSocket: one JSON-RPC message in each text frame, below the subprotocol `mcp`, in either era.

The revisions define no WebSocket. A server that closes the socket says why by its code: those of RFC 6455 (section 7.4)
and those that servers of MCP use besides, which end up as words in the ClientConnectionError.
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
from mcp_django.client.transports.log_redaction import FRAMES
from mcp_django.client.transports.streams import Reader, Streams, Writer, decoded, encoded, explained

if TYPE_CHECKING:
    from mcp_django.client.transports.targets import WebSocket

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT: Final = 2.0
"""Seconds that a server has to answer the close frame."""
CODES: Final = {
    1000: "it was done",
    1001: "it shuts down",
    1002: "it found a breach of the protocol",
    1003: "it takes no such messages",
    1006: "the connection was cut",
    1007: "a message was not UTF-8",
    1008: "its policy forbids something",
    1009: "a message was too large",
    1011: "it met an error of its own",
    1012: "it restarts",
    1013: "too much was asked of it",
    4401: "the credential is not good, or no longer",
    4403: "the credential is not good for enough",
    4404: "the session is over",
}
"""What close codes mean."""
PRIVATE: Final = {code + 3000: code for code in (1001, 1003, 1009, 1013)}
"""What servers say that can send private codes only, such as daphne."""
STATUSES: Final = {401: "it wants a credential, or a better one", 403: "it does not let this client in"}


class SocketClosed(ClientConnectionError):
    """The socket was closed, or not opened.

    `code` is the close code (1006 where there was none), `status` that of HTTP when the handshake was refused.
    """

    def __init__(self, message: str, *, code: int | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.code, self.status = code, status


@asynccontextmanager
async def open_websocket(target: WebSocket) -> AsyncIterator[Streams]:
    """The streams of a socket. Raises SocketClosed when it cannot be opened, or when it broke."""
    socket = _Socket(target.shown, target.max_message_size, await _opened(target))
    try:
        async with explained(socket.why):
            yield Reader(socket.receive), Writer(socket.send)
    finally:
        await socket.connection.close()


class _Socket:
    """An open socket."""

    def __init__(self, where: str, limit: int, connection: ClientConnection) -> None:
        self.connection = connection
        self.ended: SocketClosed | None = None
        self._where, self._limit = where, limit

    async def why(self) -> SocketClosed | None:
        """Why the socket ended, if it did."""
        return self.ended

    async def receive(self) -> SessionMessage:
        """The next message; what is none is left out. Raises SocketClosed."""
        while True:
            try:
                frame = await self.connection.recv()
            except ConnectionClosed as closed:
                self.ended = self._closed(closed)
                raise self.ended from None
            try:
                return decoded(frame)
            except ValueError:
                logger.warning("%s sent a frame that is no message; it is left out", self._where)

    async def send(self, message: SessionMessage) -> None:
        try:
            await self.connection.send(encoded(message))
        except ConnectionClosed as closed:
            self.ended = self.ended or self._closed(closed)
            raise self.ended from None

    def _closed(self, closed: ConnectionClosed) -> SocketClosed:
        """Whoever sent a close frame first has said why."""
        frame = closed.rcvd if closed.rcvd is not None and (closed.rcvd_then_sent or closed.sent is None) else None
        if frame is not None:
            meaning = CODES.get(PRIVATE.get(frame.code, frame.code), "it did not say why")
            return SocketClosed(f"The server closed the socket ({frame.code}): {meaning}", code=frame.code)
        code = closed.sent.code if closed.sent is not None else 1006
        if code == 1009:
            return SocketClosed(f"The server sent a message of more than {self._limit} bytes", code=code)
        if code == 1011:
            return SocketClosed("The server did not answer pings any more", code=code)
        return SocketClosed("The connection was cut", code=1006)


async def _opened(target: WebSocket) -> ClientConnection:
    url = target.url
    if target.ticket is not None:
        url = _with_ticket(url, await target.ticket())
    context: dict[str, Any] = {} if target.ssl_context is None else {"ssl": target.ssl_context}
    try:
        connection = await _Connect(
            url,
            subprotocols=[Subprotocol(target.subprotocol)],
            additional_headers=dict(target.headers),
            compression=None,
            proxy=True if target.environment_proxies else None,
            open_timeout=target.open_timeout,
            ping_interval=target.ping_interval,
            ping_timeout=target.ping_timeout,
            close_timeout=CLOSE_TIMEOUT,
            max_size=target.max_message_size,
            logger=FRAMES,
            **context,
        )
    except InvalidStatus as refused:
        status = refused.response.status_code
        why = STATUSES.get(status, "its answer to the handshake was no socket")
        raise SocketClosed(f"The server answered HTTP {status}: {why}", status=status) from None
    except NegotiationError:
        raise SocketClosed(f"The server selected another subprotocol than {target.subprotocol!r}") from None
    except TimeoutError:
        raise SocketClosed(f"The server did not open a socket within {target.open_timeout:g} seconds") from None
    except (InvalidProxy, ProxyError):
        raise SocketClosed("The proxy (see HTTPS_PROXY) let no socket through") from None
    except (OSError, WebSocketException, EOFError) as problem:
        raise SocketClosed(f"The server could not be reached: {_kind(problem)}") from None
    if connection.subprotocol != target.subprotocol:
        await connection.close(1002)
        raise SocketClosed(f"The server did not select the subprotocol {target.subprotocol!r}")
    return connection


class _Connect(connect):
    """A handshake that follows no redirect: headers and tickets are for the address that was named."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


def _with_ticket(url: str, ticket: str) -> str:
    parts = urlsplit(url)
    query = "&".join(filter(None, (parts.query, urlencode({"ticket": ticket}))))
    return urlunsplit(parts._replace(query=query))


def _kind(problem: Exception) -> str:
    """What went wrong, in the system's words; a peer's own words are left out."""
    return (problem.strerror if isinstance(problem, OSError) else None) or type(problem).__name__
