"""`subscriptions/listen` over HTTP: idle streams, open for days, many per process.

The streams share resources. In the ASGI app a stream has no timer, and no task but the server's own, which waits for
the client to disconnect. Messages are sent by a short-lived task.
"""

import asyncio
from time import time
from typing import Any, NamedTuple

from mcp_django.aio.tasks import run_in_background, wait_for_event
from mcp_django.protocol import sse
from mcp_django.protocol.log_text import get_logger
from mcp_django.server.subscriptions.listen import Subscription
from mcp_django.transports.credential_monitor import RevocableCredential
from mcp_django.transports.http.messages import Receive, Send
from mcp_django.transports.http.sse_body import SSESource
from mcp_django.transports.security import HeaderPairs
from mcp_django.transports.stream_registry import LoopStreamRegistry

logger = get_logger("mcp_django.server")


class OpenedSubscription(NamedTuple):
    """A subscription stream that answers a call."""

    headers: HeaderPairs
    subscription: Subscription
    credential: RevocableCredential | None = None
    """The credential to monitor; None if the stream needs none."""


class SubscriptionResponse:
    """The response to a subscription, which ends with its credential and its process."""

    __slots__ = ("_streams", "_subscription", "credential")

    def __init__(self, opened: OpenedSubscription, streams: LoopStreamRegistry) -> None:
        self._subscription = opened.subscription
        self._streams = streams
        self.credential = opened.credential
        streams.add(self)

    def check(self, send_timeout: float) -> None:
        """Close the stream if its credential has expired. Called periodically."""
        if self._subscription.is_expired(time()):
            self._subscription.close()

    def end(self) -> None:
        """Close the stream after its pending messages."""
        self._subscription.close()

    def on_revoked(self) -> None:
        """Close the stream because its credential has become invalid."""
        self._subscription.close()

    def abort(self) -> None:
        """End the stream at once."""
        self._subscription.cancel()

    def close(self) -> None:
        """Release the stream. Called also after the end, and maybe more than once."""
        self._subscription.cancel()
        self._streams.remove(self)


class ListenStream(SubscriptionResponse):
    """A subscription stream of a client of the ASGI app, which is pushed."""

    __slots__ = ("_headers", "_is_ended", "_is_sending", "_send", "_send_started_at", "_server_task")

    def __init__(self, opened: OpenedSubscription, send: Send, streams: LoopStreamRegistry) -> None:
        super().__init__(opened, streams)
        self._send = send
        self._headers = opened.headers
        self._is_sending = True
        """True while a task sends."""
        self._send_started_at: float | None = None
        """Loop time at which the pending send started; None if none is pending."""
        self._server_task: asyncio.Task[Any] | None = None
        """The server's task, which waits for the client to disconnect."""
        self._is_ended = False

    async def serve(self, receive: Receive) -> None:
        """Send messages until the client or the server ends the stream."""

        subscription = self._subscription
        self._server_task = asyncio.current_task()
        try:
            headers = self._headers
            self._headers = ()
            await self._send_message({"type": "http.response.start", "status": 200, "headers": list(headers)})
            del headers
            subscription.wake = self._wake
            await self._flush(b"")
            while not self._is_ended and (await receive())["type"] != "http.disconnect":
                pass
        except OSError:
            pass  # The client disconnected; some servers report it here.
        except asyncio.CancelledError:
            # Some servers do not report that the answer is complete, so the end of the stream cancels this task.
            if not self._is_ended or self._server_task is None or self._server_task.uncancel():
                raise
        finally:
            self.close()

    def close(self) -> None:
        """Release the stream after its client disconnected."""
        self._is_ended = True
        self._server_task = None
        self._subscription.wake = None
        super().close()

    def _wake(self) -> None:
        if not self._is_sending and not self._is_ended:
            self._start_sending(b"")

    def _start_sending(self, body: bytes) -> None:
        self._is_sending = True
        run_in_background(self._send_pending(body))

    async def _send_pending(self, body: bytes) -> None:
        try:
            await self._flush(body)
        except Exception as error:  # The client disconnected; each server raises its own exception.
            logger.debug("A subscription stream could not be sent", exc_info=error)
            self.abort()

    async def _flush(self, body: bytes) -> None:
        """Send `body`, then all pending messages."""
        try:
            if body:
                await self._send_body(body)
            while not self._is_ended:
                try:
                    messages = await self._subscription.take_messages()
                except Exception:
                    logger.exception("The changes of a subscription could not be read; its stream ends")
                    self.abort()
                    return
                if messages is None:
                    await self._send_body(b"", more=False)
                    self.abort()
                elif messages:
                    await self._send_body(b"".join(map(sse.event, messages)))
                else:
                    return
        finally:
            self._is_sending = False

    async def _send_body(self, body: bytes, *, more: bool = True) -> None:
        await self._send_message({"type": "http.response.body", "body": body, "more_body": more})

    async def _send_message(self, message: dict[str, Any]) -> None:
        self._send_started_at = asyncio.get_running_loop().time()
        await self._send(message)
        self._send_started_at = None

    def check(self, send_timeout: float) -> None:
        """Send a keep-alive comment, or end the stream when it is stuck or expired.

        A stream is stuck when its client has read nothing for `send_timeout` seconds. Called periodically.
        """
        if (
            self._send_started_at is not None
            and asyncio.get_running_loop().time() - self._send_started_at > send_timeout
        ):
            logger.info("A client has stopped reading its subscription stream; the stream ends")
            self.abort()
        elif self._subscription.is_expired(time()):
            self._subscription.close()
        elif not self._is_sending and not self._is_ended:
            self._start_sending(sse.KEEP_ALIVE)

    def abort(self) -> None:
        """End the stream at once."""
        if not self._is_ended:
            self._is_ended = True
            if self._server_task is not None and self._server_task is not asyncio.current_task():
                self._server_task.cancel()


class SubscriptionSource(SubscriptionResponse, SSESource):
    """A subscription as the body of a Django response, which is pulled."""

    def __init__(self, opened: OpenedSubscription, streams: LoopStreamRegistry) -> None:
        super().__init__(opened, streams)
        self._wake_event = asyncio.Event()
        self._subscription.wake = self._wake_event.set

    async def read(self, timeout: float) -> bytes | None:
        while True:
            self._wake_event.clear()
            messages = await self._subscription.take_messages()
            if messages is None:
                return None
            if messages:
                return b"".join(map(sse.event, messages))
            if not await wait_for_event(self._wake_event, timeout):
                return sse.KEEP_ALIVE
