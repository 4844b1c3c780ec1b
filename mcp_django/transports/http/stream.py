"""The body of a streamed answer, for both doors, and what it is made of."""

import asyncio
from typing import Protocol

from ...protocol import sse
from ...runtime.calls import Flight


class Source(Protocol):
    """What a stream consists of, in bytes."""

    async def read(self, patience: float) -> bytes | None:
        """The next events, or after `patience` seconds of silence a comment; None at the end."""

    def sent(self) -> None:
        """All has been sent that will be. Called from any thread."""

    def left(self) -> None:
        """Nobody reads any more, also after the end. May be called more than once."""


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

    def close(self) -> None:
        """The answer is over, for whatever reason. Django calls it from a thread."""
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
