"""Event-stream responses: the body and the sources of its events."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from mcp_django.protocol import sse
from mcp_django.runtime.calls.task import Flight
from mcp_django.runtime.streams.event_ids import Ids
from mcp_django.runtime.streams.replay_buffer import Said
from mcp_django.transports.credential_monitor import Warranted, watch


class Source(Protocol):
    """A source of the encoded events of a stream."""

    async def read(self, patience: float) -> bytes | None:
        """Return the next events, a comment after `timeout`, or None at the end."""

    def sent(self) -> None:
        """Record that everything has been sent. Thread-safe."""

    def left(self) -> None:
        """Release the stream. Called also after the end, and maybe more than once."""


class Reader(Protocol):
    """A reader of a stream with numbered messages."""

    retry: float | None
    """Seconds until the client should reconnect; None unless it is disconnected."""

    @property
    def position(self) -> int:
        """Number up to which the stream has been read."""

    async def read(self, patience: float) -> list[Said] | None:
        """Return waiting messages, an empty list after `timeout`, or None at the end."""

    def leave(self) -> None:
        """Release the reader."""


class Messages:
    """Messages of a call, for a client that cannot resume the stream."""

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
    """Messages with ids, after any of which a client can resume the stream.

    With `polling` the stream opens with an event without data, so that an id exists before the first message. It ends
    with such an event when the server disconnects the client (2025-11-25, basic/transports).
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
        """Set the reader and its callbacks.

        `task` is the call whose first response this is. `on_read` is called at each read; `on_end` once, when the
        stream is released.
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
            # Skipped messages of other streams need not be scanned when this client reconnects.
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
    """A source that ends when the credential of its client is revoked."""

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
        """Release the stream as if the client had disconnected."""
        self.left()


class EventStream:
    """Async iterator over the body of a stream, with a reliable `close`.

    It is not an async generator: the `finally` of a generator runs late, in another task, or not at all when the
    cancellation hits a `send`. With some servers, an exception that escapes a stream leaves the client hanging.
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
        """Finish the response for any reason. Must be called on the loop."""
        self._closed = True
        self._source.sent()
        self._source.left()

    def close(self) -> None:
        """Finish the response from any thread; Django closes responses outside the loop."""
        self._closed = True
        self._source.sent()
        try:
            self._loop.call_soon_threadsafe(self._source.left)
        except RuntimeError:
            pass  # The loop is closed, and its tasks with it.

    def __del__(self) -> None:
        # Django does not close a response whose client disconnects while middleware runs, nor one whose `send` raises
        # (`django/core/handlers/asgi.py`, `ASGIHandler.handle`). The garbage collector closes it, sometimes in a cycle.
        if not self._closed:
            self.close()
