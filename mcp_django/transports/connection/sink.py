"""The way of one call into the channel that it shares."""

from collections.abc import Callable

from mcp_django.server.calls.message_queue import Outbox


class Way:
    """A call's way into the channel: a `Track` without a memory."""

    __slots__ = ("_channel", "_cut", "_landed")

    def __init__(self, channel: Outbox, landed: Callable[[], None]) -> None:
        self._channel, self._landed, self._cut = channel, landed, False

    async def put(self, message: bytes) -> None:
        """Say something; waits while the client is behind."""
        if not self._cut:
            await self._channel.room()
        self.put_nowait(message)

    def put_nowait(self, message: bytes) -> None:
        """Say something, whatever the client does."""
        if not self._cut:
            self._channel.put_nowait(message)

    def has_room(self) -> bool:
        """Does the client keep up?"""
        return self._channel.has_room()

    def take_back(self, message: bytes) -> None:
        """The client is there to be told, whatever became of the call."""
        self._channel.put_nowait(message)

    def finish(self, message: bytes | None = None) -> None:
        """Say the last thing, if there is one."""
        if message is not None:
            self.put_nowait(message)
        self._landed()

    def cut(self) -> None:
        """The call was given up: nothing more is sent for it."""
        self._cut = True

    def release(self, retry: float | None) -> bool:
        """There is no way to come back to a channel."""
        return False
