"""`subscriptions/listen` over HTTP: streams that say little and stay open for days, a thousand to a process.

So what they need is shared: behind the ASGI door such a stream has no task but the server's own, which waits for the
client to leave, and no timer; what is to be sent is sent by a task that lives as long as that takes.
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
    """A stream that a call has opened, to be served."""

    subscription: Subscription
    warrant: Warranted | None = None
    """What it goes on with. None where it needs none."""


class Listener:
    """A client's stream behind the ASGI door."""

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
        """Is somebody sending?"""
        self._since: float | None = None
        """When the server was given what it has not taken yet, by the loop's clock."""
        self._waiting: asyncio.Task[Any] | None = None
        """The server's task, which waits for the client to leave."""
        self._ended = False
        streams.add(self)

    async def serve(self, receive: Receive) -> None:
        """Send what there is until either side ends it."""
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
            pass  # the client is gone; some servers say so here
        except asyncio.CancelledError:
            # Servers do not all say that the answer is complete, so the end of the stream ends the waiting.
            if not self._ended or self._waiting is None or self._waiting.uncancel():
                raise
        finally:
            self.leave()

    def leave(self) -> None:
        """Nobody is there any more."""
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
        except Exception as problem:  # the client is gone, for which servers have many words
            logger.debug("A stream of changes could not be sent on", exc_info=problem)
            self.drop()

    async def _flush(self, first: bytes) -> None:
        """Send `first`, then what waits, until nothing does."""
        try:
            if first:
                await self._give(first)
            while not self._ended:
                try:
                    messages = await self._subscription.take()
                except Exception:
                    logger.exception("What changed could not be told on a stream, which ends")
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
        """Keep the stream alive, unless its client has read nothing for `patience` seconds or its credential has
        expired. Called now and then.
        """
        if self._since is not None and asyncio.get_running_loop().time() - self._since > patience:
            logger.info("A client has stopped reading its stream of changes, and counts as gone")
            self.drop()
        elif self._subscription.is_expired(time()):
            self._subscription.end()
        elif not self._busy and not self._ended:
            self._begin(sse.KEEP_ALIVE)

    def end(self) -> None:
        """End it in order."""
        self._subscription.end()

    def lose(self) -> None:
        """End it: its warrant is good no more."""
        self._subscription.end()

    def drop(self) -> None:
        """It is over."""
        if not self._ended:
            self._ended = True
            if self._waiting is not None and self._waiting is not asyncio.current_task():
                self._waiting.cancel()


class ChangeSource:
    """The same as the body of a Django response, which is read and not pushed."""

    def __init__(self, opened: "Opened", streams: OpenStreams) -> None:
        self._subscription, self._streams = opened.subscription, streams
        self.warrant = opened.warrant
        self._news = asyncio.Event()
        self._subscription.wake = self._news.set
        streams.add(self)

    async def read(self, patience: float) -> bytes | None:
        """The next events, or after `patience` seconds of silence a comment; None at the end."""
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
        """All has been sent that will be. Called from any thread."""

    def left(self) -> None:
        """Nobody reads any more, also after the end. May be called more than once."""
        self._subscription.cancel()
        self._streams.discard(self)

    def look(self, patience: float) -> None:
        """End it when its credential has expired. Called now and then."""
        if self._subscription.is_expired(time()):
            self._subscription.end()

    def end(self) -> None:
        """End it in order."""
        self._subscription.end()

    def lose(self) -> None:
        """End it: its warrant is good no more."""
        self._subscription.end()

    def drop(self) -> None:
        """It is over, whatever waits."""
        self._subscription.cancel()
