"""`subscriptions/listen` over HTTP: streams that say little and stay open for days, a thousand to a process.

So what they need is shared: behind the ASGI door such a stream has no task but the server's own, which waits for the
client to leave, and no timer; what is to be sent is sent by a task that lives as long as that takes.
"""

import asyncio
import contextvars
import logging
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping
from time import time
from typing import Any, NamedTuple

from ...protocol import sse
from ...runtime.lifecycle import Lifecycle
from ...server.subscriptions import Subscription
from ..guards import Pairs

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

logger = logging.getLogger("mcp_django.server")

VERIFY_EVERY = 60.0
"""Seconds, about, after which is asked again whether the credential of a stream is good: it may have been revoked."""
SLOTS = 15
"""Parts in which the streams of a loop are looked after, one after the other, so that the loop never is for long."""


Verify = Callable[[], Awaitable[bool]]


class Opened(NamedTuple):
    """A stream that a call has opened, to be served."""

    subscription: Subscription
    verify: Verify | None = None
    """Is the credential that it was opened with still good? None where there is none."""


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
        "slot",
        "verify",
    )

    def __init__(self, opened: "Opened", send: Send, headers: Pairs, streams: "OpenStreams") -> None:
        self._subscription, self._send, self._headers, self._streams = opened.subscription, send, headers, streams
        self.verify = opened.verify
        self._busy = True
        """Is somebody sending?"""
        self._since: float | None = None
        """When the server was given what it has not taken yet, by the loop's clock."""
        self._waiting: asyncio.Task[Any] | None = None
        """The server's task, which waits for the client to leave."""
        self._ended = False
        self.slot = 0
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

    def drop(self) -> None:
        """It is over."""
        if not self._ended:
            self._ended = True
            if self._waiting is not None and self._waiting is not asyncio.current_task():
                self._waiting.cancel()


class ChangeSource:
    """The same as the body of a Django response, which is read and not pushed."""

    def __init__(self, opened: "Opened", streams: "OpenStreams") -> None:
        self._subscription, self._streams = opened.subscription, streams
        self.verify = opened.verify
        self._news = asyncio.Event()
        self.slot = 0
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

    def drop(self) -> None:
        """It is over, whatever waits."""
        self._subscription.cancel()


Open = Listener | ChangeSource
_running: set[asyncio.Task[None]] = set()
"""The loop knows its tasks weakly."""


def run_aside(work: Coroutine[Any, Any, None]) -> None:
    """Run it in a task of its own, in a clean context."""
    _running.add(task := asyncio.get_running_loop().create_task(work, context=contextvars.Context()))
    task.add_done_callback(_running.discard)


async def _verify(stream: Open, verify: Verify) -> None:
    if not await verify():
        stream.end()


class OpenStreams:
    """The streams of changes that are open on one loop: looked after together, and ended when the process is."""

    def __init__(self, lifecycle: Lifecycle, *, every: float, patience: float) -> None:
        """Each is looked at `every` so many seconds; after `patience` a client that reads nothing counts as gone."""
        self._lifecycle, self._every, self._patience = lifecycle, every, patience
        self._slots: tuple[set[Open], ...] = tuple(set() for _ in range(SLOTS))
        self._next = self._round = 0
        self._rounds = max(1, round(VERIFY_EVERY / every))
        self._timer: asyncio.TimerHandle | None = None
        self._take_back: Callable[[], None] | None = None
        self._empty = asyncio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._slots))

    def add(self, stream: Open) -> None:
        """It is open. While the process ends, it is told so at once."""
        if not len(self):
            self._empty.clear()
        stream.slot = min(range(SLOTS), key=lambda slot: len(self._slots[slot]))
        self._slots[stream.slot].add(stream)
        if self._timer is None:
            self._wait()
        if self._lifecycle.is_draining():
            stream.end()
        elif self._take_back is None:
            self._take_back = self._lifecycle.on_drain(self._drain)

    def discard(self, stream: Open) -> None:
        """It is over."""
        self._slots[stream.slot].discard(stream)
        if not len(self):
            self._empty.set()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._take_back is not None:
                self._take_back()
                self._take_back = None

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._every / SLOTS, self._look, context=contextvars.Context())

    def _look(self) -> None:
        self._wait()
        self._next = (self._next + 1) % SLOTS
        self._round += not self._next
        for stream in tuple(self._slots[self._next]):
            stream.look(self._patience)
            if stream.verify is not None and self._round % self._rounds == 0:
                run_aside(_verify(stream, stream.verify))

    def _all(self) -> Iterable[Open]:
        return [stream for slot in self._slots for stream in slot]

    def _drain(self) -> None:
        self._take_back = None
        for stream in self._all():
            stream.end()
        self._lifecycle.board(_Landing(self._lifecycle, self._empty, self._all))


class _Landing:
    """The end of all streams of a loop, as the lifecycle waits for it."""

    def __init__(self, lifecycle: Lifecycle, empty: asyncio.Event, rest: Callable[[], Iterable[Open]]) -> None:
        self.loop = asyncio.get_running_loop()
        self._rest = rest
        self.answered = False
        self.task: asyncio.Task[None] | None = self.loop.create_task(
            self._wait(lifecycle, empty), context=contextvars.Context()
        )

    async def _wait(self, lifecycle: Lifecycle, empty: asyncio.Event) -> None:
        try:
            await empty.wait()
        finally:
            self.answered = True
            lifecycle.flights.discard(self)

    def shut_down(self) -> None:
        """Those whose clients do not read are cut off."""
        for stream in self._rest():
            stream.drop()


class Listeners:
    """The open streams of one server in this process."""

    def __init__(self, lifecycle: Lifecycle, *, every: float, patience: float) -> None:
        self._lifecycle, self._every, self._patience = lifecycle, every, patience
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, OpenStreams] = weakref.WeakKeyDictionary()

    def here(self) -> OpenStreams:
        """Those of the running loop."""
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            found = self._loops[loop] = OpenStreams(self._lifecycle, every=self._every, patience=self._patience)
        return found
