"""`subscriptions/listen` over HTTP: idle streams, open for days, many per process.

The streams share resources. In the ASGI app a stream has no timer, and no task but the server's own, which waits for
the client to disconnect. Messages are sent by a short-lived task.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from time import time
from typing import Any, NamedTuple

from mcp_django.aio.tasks import run_aside
from mcp_django.protocol import sse
from mcp_django.server.subscriptions.listen import Subscription
from mcp_django.transports.credential_monitor import Warranted
from mcp_django.transports.security import Pairs
from mcp_django.transports.stream_registry import OpenStreams

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

logger = logging.getLogger("mcp_django.server")


class Opened(NamedTuple):
    """A subscription that a call has opened, with its credential."""

    subscription: Subscription
    warrant: Warranted | None = None
    """The credential to monitor; None if the stream needs none."""


class Listener:
    """A subscription stream of a client of the ASGI app."""

    __slots__ = (
        "_busy",
        "_ended",
        "_headers",
        "_send",
        "_since",
        "_streams",
        "_subscription",
        "_waiting",
        "warrant",
    )

    def __init__(self, opened: "Opened", send: Send, headers: Pairs, streams: OpenStreams) -> None:
        self._subscription, self._send, self._headers, self._streams = opened.subscription, send, headers, streams
        self.warrant = opened.warrant
        self._busy = True
        """True while a task sends."""
        self._since: float | None = None
        """Loop time at which the pending send started; None if none is pending."""
        self._waiting: asyncio.Task[Any] | None = None
        """The server's task, which waits for the client to disconnect."""
        self._ended = False
        streams.add(self)

    async def serve(self, receive: Receive) -> None:
        """Send messages until the client or the server ends the stream."""

        subscription, self._waiting = self._subscription, asyncio.current_task()
        try:
            headers, self._headers = self._headers, ()
            await self._say({"type": "http.response.start", "status": 200, "headers": list(headers)})
            del headers
            subscription.wake = self._wake
            await self._flush(b"")
            while not self._ended and (await receive())["type"] != "http.disconnect":
                pass
        except OSError:
            pass  # The client disconnected; some servers report it here.
        except asyncio.CancelledError:
            # Some servers do not report that the answer is complete, so the end of the stream cancels this task.
            if not self._ended or self._waiting is None or self._waiting.uncancel():
                raise
        finally:
            self.leave()

    def leave(self) -> None:
        """Release the stream after its client disconnected."""
        self._ended, self._waiting, self._subscription.wake = True, None, None
        self._subscription.cancel()
        self._streams.discard(self)

    def _wake(self) -> None:
        if not self._busy and not self._ended:
            self._begin(b"")

    def _begin(self, first: bytes) -> None:
        self._busy = True
        run_aside(self._pass_on(first))

    async def _pass_on(self, first: bytes) -> None:
        try:
            await self._flush(first)
        except Exception as problem:  # The client disconnected; each server raises its own exception.
            logger.debug("A subscription stream could not be sent", exc_info=problem)
            self.drop()

    async def _flush(self, first: bytes) -> None:
        """Send `body`, then all pending messages."""
        try:
            if first:
                await self._give(first)
            while not self._ended:
                try:
                    messages = await self._subscription.take()
                except Exception:
                    logger.exception("The changes of a subscription could not be read; its stream ends")
                    self.drop()
                    return
                if messages is None:
                    await self._give(b"", more=False)
                    self.drop()
                elif messages:
                    await self._give(b"".join(map(sse.event, messages)))
                else:
                    return
        finally:
            self._busy = False

    async def _give(self, body: bytes, *, more: bool = True) -> None:
        await self._say({"type": "http.response.body", "body": body, "more_body": more})

    async def _say(self, message: dict[str, Any]) -> None:
        self._since = asyncio.get_running_loop().time()
        await self._send(message)
        self._since = None

    def look(self, patience: float) -> None:
        """Send a keep-alive comment, or end the stream when it is stuck or expired.

        A stream is stuck when its client has read nothing for `send_timeout` seconds. Called periodically.
        """
        if self._since is not None and asyncio.get_running_loop().time() - self._since > patience:
            logger.info("A client has stopped reading its subscription stream; the stream ends")
            self.drop()
        elif self._subscription.is_expired(time()):
            self._subscription.end()
        elif not self._busy and not self._ended:
            self._begin(sse.KEEP_ALIVE)

    def end(self) -> None:
        """Close the stream after its pending messages."""
        self._subscription.end()

    def lose(self) -> None:
        """Close the stream because its credential has become invalid."""
        self._subscription.end()

    def drop(self) -> None:
        """End the stream at once."""
        if not self._ended:
            self._ended = True
            if self._waiting is not None and self._waiting is not asyncio.current_task():
                self._waiting.cancel()


class ChangeSource:
    """A subscription as the body of a Django response, which is pulled, not pushed."""

    def __init__(self, opened: "Opened", streams: OpenStreams) -> None:
        self._subscription, self._streams = opened.subscription, streams
        self.warrant = opened.warrant
        self._news = asyncio.Event()
        self._subscription.wake = self._news.set
        streams.add(self)

    async def read(self, patience: float) -> bytes | None:
        """Return the next events, a comment after `timeout`, or None at the end."""
        while True:
            self._news.clear()
            messages = await self._subscription.take()
            if messages is None:
                return None
            if messages:
                return b"".join(map(sse.event, messages))
            try:
                async with asyncio.timeout(patience):
                    await self._news.wait()
            except TimeoutError:
                return sse.KEEP_ALIVE

    def sent(self) -> None:
        """Ignore the notice of the last byte. Thread-safe."""

    def left(self) -> None:
        """Release the stream. Called also after the end, and maybe more than once."""
        self._subscription.cancel()
        self._streams.discard(self)

    def look(self, patience: float) -> None:
        """Close the stream if its credential has expired. Called periodically."""
        if self._subscription.is_expired(time()):
            self._subscription.end()

    def end(self) -> None:
        """Close the stream after its pending messages."""
        self._subscription.end()

    def lose(self) -> None:
        """Close the stream because its credential has become invalid."""
        self._subscription.end()

    def drop(self) -> None:
        """End the stream at once."""
        self._subscription.cancel()
