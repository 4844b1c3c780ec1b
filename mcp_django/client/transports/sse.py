"""HTTP+SSE: events to read; the first one names the URL for messages.

The SDK's transport is not used, because a call gets no response when its POST is refused, and because it limits events
to 1 MiB. Here a refused POST is answered with an error. The end of the stream ends the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import httpx2
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCRequest

from mcp_django.client.errors import ClientConnectionError
from mcp_django.client.transports.http import build_client_settings, describe_transport_error, has_unexpected_encoding
from mcp_django.client.transports.streams import MessageConnection, Streams, decode_message, encode_message
from mcp_django.protocol.log_text import get_logger

if TYPE_CHECKING:
    from mcp_django.client.transports.targets import SSE

logger = get_logger(__name__)

MAX_QUEUED_MESSAGES: Final = 64
"""Maximum number of unread messages; beyond it reading from the server pauses."""
_STREAM_HEADERS: Final = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
_POST_HEADERS: Final = {"Content-Type": "application/json"}


@asynccontextmanager
async def open_sse(target: SSE) -> AsyncIterator[Streams]:
    """Open the message streams.

    Raises ClientConnectionError if connecting fails or the connection breaks.
    """
    async with httpx2.AsyncClient(**build_client_settings(target)) as client:
        connection = _SSEConnection(target, client)
        reading = asyncio.create_task(connection.read_events(), name="mcp-sse")
        try:
            await connection.wait_for_endpoint()
            async with connection.open_streams() as streams:
                yield streams
        finally:
            reading.cancel()
            await asyncio.wait([reading])


class _SSEConnection(MessageConnection):
    """A stream of events, and the endpoint for messages."""

    def __init__(self, target: SSE, client: httpx2.AsyncClient) -> None:
        self._target = target
        self._client = client
        self._endpoint: asyncio.Future[httpx2.URL] = asyncio.get_running_loop().create_future()
        self._messages: asyncio.Queue[SessionMessage | None] = asyncio.Queue(MAX_QUEUED_MESSAGES)

    async def wait_for_endpoint(self) -> None:
        """Wait for the endpoint event.

        Raises ClientConnectionError if the stream ends without one.
        """
        waiting = asyncio.shield(self._endpoint)
        try:
            await asyncio.wait_for(waiting, self._target.read_timeout)
        except TimeoutError:
            raise ClientConnectionError("The server did not send the URL for messages") from None

    async def receive(self) -> SessionMessage:
        if self.error is not None and self._messages.empty():
            raise self.error
        message = await self._messages.get()
        if message is None:
            assert self.error is not None
            raise self.error
        return message

    async def send(self, message: SessionMessage) -> None:
        """Post a message. A refused call is answered with an error."""
        if self.error is not None:
            raise self.error
        body, url = encode_message(message).encode(), self._endpoint.result()
        try:
            async with self._client.stream(
                "POST", url, content=body, headers=_POST_HEADERS, follow_redirects=False
            ) as response:
                status = response.status_code
            problem_text = None if 200 <= status < 300 else f"The server answered HTTP {status}"
        except (httpx2.TransportError, httpx2.StreamError) as problem:
            problem_text = f"The message could not be sent: {describe_transport_error(problem)}"
        except ClientConnectionError as ended:  # raised by `auth`, for example if a person is needed
            self._close(ended)
            raise

        call = message.message
        if problem_text is None or not isinstance(call, JSONRPCRequest):
            return
        error = ErrorData(code=INTERNAL_ERROR, message=problem_text)
        await self._messages.put(SessionMessage(JSONRPCError(jsonrpc="2.0", id=call.id, error=error)))

    async def read_events(self) -> None:
        """Read the stream of events to its end."""
        try:
            async with self._client.stream(
                "GET", self._target.url, headers=_STREAM_HEADERS, follow_redirects=False
            ) as response:
                if response.status_code != HTTPStatus.OK:
                    raise ClientConnectionError(f"The server answered HTTP {response.status_code}")
                if has_unexpected_encoding(response):
                    raise ClientConnectionError("The stream of events has an unrequested content encoding")
                async for event in httpx2.EventSource(response, max_event_size=self._target.max_message_size):
                    await self._handle_event(event)
            raise ClientConnectionError("The server ended the stream of events")
        except ClientConnectionError as ended:
            self._close(ended)
        except (httpx2.TransportError, httpx2.StreamError, httpx2.SSEError) as problem:
            problem_text = "could not be reached" if not self._endpoint.done() else "interrupted the stream of events"
            self._close(ClientConnectionError(f"The server {problem_text}: {describe_transport_error(problem)}"))
        except Exception as problem:  # raised by `auth`, which may be custom code
            failed = ClientConnectionError(f"The server could not be reached: {type(problem).__name__}")
            failed.__cause__ = problem
            self._close(failed)

    async def _handle_event(self, event: httpx2.ServerSentEvent) -> None:
        if event.event == "endpoint":
            self._set_endpoint(event.data)
        elif event.event == "message" and event.data:
            try:
                message = decode_message(event.data)
            except ValueError:
                logger.warning("Ignored an invalid message from %s", self._target.display_name)
                return
            await self._messages.put(message)

    def _set_endpoint(self, endpoint: str) -> None:
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

    def _close(self, ended: ClientConnectionError) -> None:
        self.error = self.error or ended
        if not self._endpoint.done():
            self._endpoint.set_exception(ended)
        with contextlib.suppress(asyncio.QueueFull):  # the reader raises `error` after the last message
            self._messages.put_nowait(None)
