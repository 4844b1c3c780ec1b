"""The body of a streamed answer, for both doors, and what it is made of."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from mcp_django.protocol import sse
from mcp_django.runtime.calls.task import Flight
from mcp_django.runtime.streams.event_ids import Ids
from mcp_django.runtime.streams.replay_buffer import Said
from mcp_django.transports.credential_monitor import Warranted, watch


class Source(Protocol):
    """What a stream consists of, in bytes."""

    async def read(self, patience: float) -> bytes | None:
        """The next events, or after `patience` seconds of silence a comment; None at the end."""

    def sent(self) -> None:
        """All has been sent that will be. Called from any thread."""

    def left(self) -> None:
        """Nobody reads any more, also after the end. May be called more than once."""


class Reader(Protocol):
    """A place on a stream whose messages are numbered."""

    retry: float | None
    """Seconds after which the client is asked to come back; None when it is not sent away."""

    @property
    def position(self) -> int:
        """The number up to which everything has been read."""

    async def read(self, patience: float) -> list[Said] | None:
        """What waits; an empty list after `patience` seconds of silence; None at the end."""

    def leave(self) -> None:
        """Nobody reads here any more."""


class Messages:
    """A call's messages, for one client that cannot come back."""

    def __init__(self, flight: Flight) -> None:
        self._flight, self._outbox = flight, flight.call.outbox

    async def read(self, patience: float) -> bytes | None:
        messages = await self._outbox.read(patience)
        if messages is None:
            return None
        return b"".join(map(sse.event, messages)) if messages else sse.KEEP_ALIVE

    def sent(self) -> None:
        self._flight.answered = True

    def left(self) -> None:
        self._flight.disconnected()


class Events:
    """Messages with ids, after any of which a client can go on elsewhere.

    With `polling` it opens with an event that has no data, so that there is an id before there is a message, and ends
    with another when the client is sent away (2025-11-25, basic/transports).
    """

    def __init__(
        self,
        reader: Reader,
        ids: Ids,
        *,
        polling: bool,
        flight: Flight | None = None,
        alive: Callable[[], None] | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        """`flight` is the call whose first answer this is. `alive` is called as long as somebody reads, now and then;
        `on_end` once, when nobody does any more.
        """
        self._reader, self._id, self._polling, self._flight = reader, ids, polling, flight
        self._alive, self._on_end = alive, on_end
        self._opening = polling
        self._told = -1

    async def read(self, patience: float) -> bytes | None:
        reader = self._reader
        if self._opening:
            self._opening, self._told = False, reader.position
            return sse.priming(self._id(reader.position))
        if self._alive is not None:
            self._alive()
        said = await reader.read(patience)
        if said:
            self._told = said[-1].n
            return b"".join([sse.numbered(self._id(n), message) for n, message in said])
        if said is None:
            return self._farewell()
        if self._polling and reader.position > self._told:
            # What others were told meanwhile need not be looked through when this client comes back.
            self._told = reader.position
            return sse.priming(self._id(reader.position))
        return sse.KEEP_ALIVE

    def _farewell(self) -> bytes | None:
        retry, self._reader.retry = self._reader.retry, None
        if retry is None or not self._polling:
            return None
        return sse.priming(self._id(self._reader.position), retry=round(retry * 1000))

    def sent(self) -> None:
        if self._flight is not None:
            self._flight.answered = True

    def left(self) -> None:
        if self._flight is not None:
            self._flight.disconnected()
        self._reader.leave()
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()


class WatchedSource:
    """A stream that ends when its client may not read it any more."""

    def __init__(self, source: Source, warrant: Warranted) -> None:
        self._source = source
        self.warrant: Warranted | None = warrant
        self._watch = watch()
        self._watch.add(self)

    async def read(self, patience: float) -> bytes | None:
        return await self._source.read(patience)

    def sent(self) -> None:
        self._source.sent()

    def left(self) -> None:
        self._watch.discard(self)
        self._source.left()

    def lose(self) -> None:
        """The client counts as gone."""
        self.left()


class EventStream:
    """A stream's body. A class and not an async generator: its `close` is always called, and it never raises.

    A generator's `finally` runs late, in another task, or not at all when the cancellation hits a `send`; and an
    exception that escapes a stream leaves some servers with a client that hangs.
    """

    def __init__(self, source: Source, keep_alive: float) -> None:
        self._source, self._keep_alive = source, keep_alive
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def __aiter__(self) -> "EventStream":
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._source.read(self._keep_alive)
        except asyncio.CancelledError:
            self._source.left()
            raise
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    def end(self) -> None:
        """The answer is over, for whatever reason. Called on the loop."""
        self._closed = True
        self._source.sent()
        self._source.left()

    def close(self) -> None:
        """The same from any thread; Django's is not the loop's."""
        self._closed = True
        self._source.sent()
        try:
            self._loop.call_soon_threadsafe(self._source.left)
        except RuntimeError:
            pass  # the loop is closed, and what ran on it is gone with it

    def __del__(self) -> None:
        # Django does not close the response of a client that leaves while middleware still has it, nor one whose
        # `send` raises (`django/core/handlers/asgi.py`, `ASGIHandler.handle`); it is garbage, sometimes in a cycle.
        if not self._closed:
            self.close()
