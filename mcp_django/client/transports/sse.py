"""HTTP+SSE: events to read; the first one names the URL for messages.

The SDK's transport is not used, because a call gets no response when its POST is refused, and because it limits events
to 1 MiB. Here a refused POST is answered with an error. The end of the stream ends the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import httpx2
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCRequest

from mcp_django.client.errors import ClientConnectionError
from mcp_django.client.transports.http import http_client_settings, is_packed, reason
from mcp_django.client.transports.streams import Reader, Streams, Writer, decoded, encoded, explained

if TYPE_CHECKING:
    from mcp_django.client.transports.targets import SSE

logger = logging.getLogger(__name__)

WAITING: Final = 64
"""Maximum number of unread messages; beyond it reading from the server pauses."""
_HEADERS: Final = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
_JSON: Final = {"Content-Type": "application/json"}


@asynccontextmanager
async def open_sse(target: SSE) -> AsyncIterator[Streams]:
    """Open the message streams.

    Raises ClientConnectionError if connecting fails or the connection breaks.
    """
    async with httpx2.AsyncClient(**http_client_settings(target)) as client:
        connection = _Connection(target, client)
        reading = asyncio.create_task(connection.read(), name="mcp-sse")
        try:
            await connection.opened()
            async with explained(connection.why):
                yield Reader(connection.receive), Writer(connection.send)
        finally:
            reading.cancel()
            await asyncio.wait([reading])


class _Connection:
    """A stream of events, and the endpoint for messages."""

    def __init__(self, target: SSE, client: httpx2.AsyncClient) -> None:
        self.ended: ClientConnectionError | None = None
        self._target, self._client = target, client
        self._endpoint: asyncio.Future[httpx2.URL] = asyncio.get_running_loop().create_future()
        self._read: asyncio.Queue[SessionMessage | None] = asyncio.Queue(WAITING)

    async def opened(self) -> None:
        """Wait for the endpoint event.

        Raises ClientConnectionError if the stream ends without one.
        """
        waiting = asyncio.shield(self._endpoint)
        try:
            await asyncio.wait_for(waiting, self._target.read_timeout)
        except TimeoutError:
            raise ClientConnectionError("The server did not send the URL for messages") from None

    async def why(self) -> ClientConnectionError | None:
        """Return the error that ended the stream, or None."""
        return self.ended

    async def receive(self) -> SessionMessage:
        if self.ended is not None and self._read.empty():
            raise self.ended
        message = await self._read.get()
        if message is None:
            assert self.ended is not None
            raise self.ended
        return message

    async def send(self, message: SessionMessage) -> None:
        """Post a message. A refused call is answered with an error."""
        if self.ended is not None:
            raise self.ended
        body, url = encoded(message).encode(), self._endpoint.result()
        try:
            async with self._client.stream(
                "POST", url, content=body, headers=_JSON, follow_redirects=False
            ) as response:
                status = response.status_code
            said = None if 200 <= status < 300 else f"The server answered HTTP {status}"
        except (httpx2.TransportError, httpx2.StreamError) as problem:
            said = f"The message could not be sent: {_reason(problem)}"
        except ClientConnectionError as ended:  # raised by `auth`, for example if a person is needed
            self._end(ended)
            raise

        call = message.message
        if said is None or not isinstance(call, JSONRPCRequest):
            return
        error = ErrorData(code=INTERNAL_ERROR, message=said)
        await self._read.put(SessionMessage(JSONRPCError(jsonrpc="2.0", id=call.id, error=error)))

    async def read(self) -> None:
        """Read the stream of events to its end."""
        try:
            async with self._client.stream(
                "GET", self._target.url, headers=_HEADERS, follow_redirects=False
            ) as response:
                if response.status_code != HTTPStatus.OK:
                    raise ClientConnectionError(f"The server answered HTTP {response.status_code}")
                if is_packed(response):
                    raise ClientConnectionError("The stream of events has an unrequested content encoding")
                async for event in httpx2.EventSource(response, max_event_size=self._target.max_message_size):
                    await self._take(event)
            raise ClientConnectionError("The server ended the stream of events")
        except ClientConnectionError as ended:
            self._end(ended)
        except (httpx2.TransportError, httpx2.StreamError, httpx2.SSEError) as problem:
            said = "could not be reached" if not self._endpoint.done() else "interrupted the stream of events"
            self._end(ClientConnectionError(f"The server {said}: {_reason(problem)}"))
        except Exception as problem:  # raised by `auth`, which may be custom code
            failed = ClientConnectionError(f"The server could not be reached: {type(problem).__name__}")
            failed.__cause__ = problem
            self._end(failed)

    async def _take(self, event: httpx2.ServerSentEvent) -> None:
        if event.event == "endpoint":
            self._name(event.data)
        elif event.event == "message" and event.data:
            try:
                message = decoded(event.data)
            except ValueError:
                logger.warning("Ignored an invalid message from %s", self._target.shown)
                return
            await self._read.put(message)

    def _name(self, endpoint: str) -> None:
        """Store the endpoint once.

        It must have the stream's origin, which the credentials belong to.
        """
        stream = httpx2.URL(self._target.url)
        try:
            url = stream.join(endpoint)
        except httpx2.InvalidURL:
            raise ClientConnectionError("The server sent an invalid URL for messages") from None
        if (url.scheme, url.host, url.port) != (stream.scheme, stream.host, stream.port):
            raise ClientConnectionError("The server sent a URL for messages on another origin")
        if not self._endpoint.done():
            self._endpoint.set_result(url.copy_with(userinfo=stream.userinfo))

    def _end(self, ended: ClientConnectionError) -> None:
        self.ended = self.ended or ended
        if not self._endpoint.done():
            self._endpoint.set_exception(ended)
        with contextlib.suppress(asyncio.QueueFull):  # the reader raises `error` after the last message
            self._read.put_nowait(None)


def _reason(problem: Exception) -> str:
    return reason(problem) if isinstance(problem, httpx2.TransportError) else type(problem).__name__
