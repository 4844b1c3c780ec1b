"""The sink of one call in the queue of its connection."""

from collections.abc import Callable

from mcp_django.server.calls.message_queue import Outbox


class Way:
    """A `MessageSink` that writes to the queue of a connection and stores nothing."""

    __slots__ = ("_channel", "_cut", "_landed")

    def __init__(self, channel: Outbox, landed: Callable[[], None]) -> None:
        self._channel, self._landed, self._cut = channel, landed, False

    async def put(self, message: bytes) -> None:
        """Send a message; wait while the client is slow."""
        if not self._cut:
            await self._channel.room()
        self.put_nowait(message)

    def put_nowait(self, message: bytes) -> None:
        """Send a message without waiting."""
        if not self._cut:
            self._channel.put_nowait(message)

    def has_room(self) -> bool:
        """Return True if the client reads fast enough."""
        return self._channel.has_room()

    def take_back(self, message: bytes) -> None:
        """Send a message even after an abort, because the client is still connected."""
        self._channel.put_nowait(message)

    def finish(self, message: bytes | None = None) -> None:
        """Send the last message, if any."""
        if message is not None:
            self.put_nowait(message)
        self._landed()

    def cut(self) -> None:
        """Abort: send nothing more for the call."""
        self._cut = True

    def release(self, retry: float | None) -> bool:
        """Return False: a client cannot reconnect to this connection."""
        return False
