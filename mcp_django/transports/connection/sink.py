"""The sink of one call in the queue of its connection."""

from collections.abc import Callable

from mcp_django.server.calls.message_queue import Outbox


class ConnectionSink:
    """A `MessageSink` that writes to the queue of a connection and stores nothing."""

    __slots__ = ("_is_aborted", "_on_finished", "_outbox")

    def __init__(self, outbox: Outbox, on_finished: Callable[[], None]) -> None:
        self._outbox = outbox
        self._on_finished = on_finished
        self._is_aborted = False

    async def put(self, message: bytes) -> None:
        """Send a message; wait while the client is slow."""
        if not self._is_aborted:
            await self._outbox.wait_for_room()
        self.put_nowait(message)

    def put_nowait(self, message: bytes) -> None:
        """Send a message without waiting."""
        if not self._is_aborted:
            self._outbox.put_nowait(message)

    def has_room(self) -> bool:
        """Return True if the client reads fast enough."""
        return self._outbox.has_room()

    def put_cancellation(self, message: bytes) -> None:
        """Send a message even after an abort, because the client is still connected."""
        self._outbox.put_nowait(message)

    def finish(self, message: bytes | None = None) -> None:
        """Send the last message, if any."""
        if message is not None:
            self.put_nowait(message)
        self._on_finished()

    def abort(self) -> None:
        """Abort: send nothing more for the call."""
        self._is_aborted = True

    def disconnect_reader(self, retry: float | None) -> bool:
        """Return False: a client cannot reconnect to this connection."""
        return False
