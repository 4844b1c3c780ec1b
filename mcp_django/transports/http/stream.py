"""The body of a streamed answer, for both doors."""

import asyncio

from ...protocol import sse
from ...runtime.calls import Flight


class EventStream:
    """A call's messages as server-sent events. A class and not an async generator: its `close` is always called, and
    it never raises.

    A generator's `finally` runs late, in another task, or not at all when the cancellation hits a `send`; and an
    exception that escapes a stream leaves some servers with a client that hangs.
    """

    def __init__(self, flight: Flight, keep_alive: float) -> None:
        self._flight, self._keep_alive = flight, keep_alive
        self._loop = asyncio.get_running_loop()

    def __aiter__(self) -> "EventStream":
        return self

    async def __anext__(self) -> bytes:
        try:
            messages = await self._flight.call.outbox.read(self._keep_alive)
        except asyncio.CancelledError:
            self._flight.disconnected()
            raise
        if messages is None:
            raise StopAsyncIteration
        return b"".join(map(sse.event, messages)) if messages else sse.KEEP_ALIVE

    def close(self) -> None:
        """The answer is over, for whatever reason. Django calls it from a thread."""
        self._flight.answered = True
        try:
            self._loop.call_soon_threadsafe(self._flight.disconnected)
        except RuntimeError:
            pass  # the loop is closed, and what ran on it is gone with it

    def __del__(self) -> None:
        # Django does not close the response of a client that leaves while middleware still has it, nor one whose
        # `send` raises (`django/core/handlers/asgi.py`, `ASGIHandler.handle`); it is garbage, sometimes in a cycle.
        if not self._flight.answered:
            self.close()
