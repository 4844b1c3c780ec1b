"""Outgoing message queue of one call: bounded, with one reader."""

import asyncio
import threading
from collections.abc import Callable
from typing import Protocol


class Track(Protocol):
    """Destination of the messages of a stream whose reader can change."""

    async def put(self, message: bytes) -> None:
        """Queue a message; wait if the reader is too far behind."""

    def put_nowait(self, message: bytes) -> None:
        """Queue a message without waiting, whatever the state of the reader."""

    def has_room(self) -> bool:
        """Return True if there is room for an optional message."""

    def finish(self, message: bytes | None = None) -> None:
        """Queue the last message, if any, and end the stream."""

    def cut(self) -> None:
        """End the stream of a cancelled call; send nothing more."""

    def take_back(self, message: bytes) -> None:
        """Queue the cancellation of a request to the client, even after `abort`."""

    def release(self, retry: float | None) -> bool:
        """Disconnect the reader when it has read the queue; False without a reader."""


_COUNTING = threading.Lock()
"""Lock for the counters of scheduled messages, shared by all queues."""


class Outbox:
    """Bounded queue of the messages that a call sends before its response.

    `put` waits while `max_messages` messages are unsent, at most `send_timeout` seconds for a stalled reader.
    `on_first_message` is called once: the response becomes a stream. `on_abandoned` is called when a writer timed out.

    Messages are complete, encoded JSON-RPC messages; the transport does the framing. After `redirect_to` the queue only
    passes messages on to its sink.
    """

    __slots__ = (
        "_arriving",
        "_closed",
        "_messages",
        "_patience",
        "_reader",
        "_size",
        "_track",
        "_writers",
        "abandoned",
        "interactive",
        "loop",
        "opened",
    )

    def __init__(self, size: int = 64, interactive: bool = True, patience: float = 60.0) -> None:
        # No deques: an empty one takes 600 bytes, and most calls send no message before their response.
        self._messages: list[bytes] = []
        self._size, self._patience = size, patience
        self._reader: asyncio.Future[None] | None = None
        self._writers: list[asyncio.Future[None]] = []
        self._closed = False
        self._track: Track | None = None
        self._arriving = 0
        self.opened: Callable[[], None] | None = None
        self.abandoned: Callable[[], None] | None = None
        self.interactive = interactive
        """False for transports without a stream (WSGI).

        Messages are dropped then, and requests to the client refused.
        """
        self.loop: asyncio.AbstractEventLoop | None = None
        """Event loop on which the call runs."""

    async def put(self, message: bytes) -> None:
        """Queue a message; wait while the reader is behind, unless it has stopped."""
        if self._track is not None:
            await self._track.put(message)
            return
        await self.room()
        self.put_nowait(message)

    def has_room(self) -> bool:
        """Return True if the reader keeps up."""
        return len(self._messages) < self._size if self._track is None else self._track.has_room()

    async def room(self) -> None:
        """Wait while the reader is behind, unless it has stopped."""
        while len(self._messages) >= self._size and not self._closed:
            loop = asyncio.get_running_loop()
            room = loop.create_future()
            self._writers.append(room)
            alarm = loop.call_later(self._patience, self._abandon)
            try:
                await room
            finally:
                alarm.cancel()

    def put_nowait(self, message: bytes) -> None:
        """Queue a message even beyond the bound; drop it without a reader."""
        if self._closed or not self.interactive:
            return
        if self._track is not None:
            self._track.put_nowait(message)
            return

        self._messages.append(message)
        if self.opened is not None:
            opened, self.opened = self.opened, None
            opened()
        self._wake()

    def offer(self, message: bytes) -> None:
        """Queue a message if there is room, else drop it; never wait. Thread-safe."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None

        if here is not None and (self.loop is None or self.loop is here):
            if self.has_room():
                self.put_nowait(message)
        elif self.loop is not None and not self._closed:
            with _COUNTING:
                if self._arriving >= self._size:
                    return
                self._arriving += 1
            try:
                self.loop.call_soon_threadsafe(self._arrive, message)
            except RuntimeError:
                pass  # the loop is closed

    def _arrive(self, message: bytes) -> None:
        with _COUNTING:
            self._arriving -= 1
        self.offer(message)

    def finish(self, message: bytes | None = None) -> None:
        """Queue the last message, if any, and close the queue without waiting."""
        if message is not None:
            self.put_nowait(message)
        self._closed = True
        if self._track is not None:
            self._track.finish()
        self._free()
        self._wake()

    def cut(self) -> None:
        """Discard all queued messages, close the queue and release waiting writers."""
        self._messages.clear()
        if self._track is not None:
            self._track.cut()
        self.finish()

    def take_back(self, message: bytes) -> None:
        """Queue the cancellation of a request to the client.

        Calls of a bidirectional connection share one stream. There the cancellation is sent even if its call was
        cancelled.
        """
        if self._track is not None:
            self._track.take_back(message)
        else:
            self.put_nowait(message)

    def hand_over(self, track: Track) -> None:
        """Pass all messages on to `sink` from now on, including the queued ones."""
        messages, self._messages = self._messages, []
        for message in messages:
            track.put_nowait(message)
        self._track = track
        self._free()

    def release(self, retry: float) -> bool:
        """Disconnect the reader, to reconnect after `retry` seconds; False if it cannot."""
        if self._closed or not self.interactive:
            return False
        if self.opened is not None:
            opened, self.opened = self.opened, None
            opened()
        return self._track is not None and self._track.release(retry)

    def _abandon(self) -> None:
        abandoned = self.abandoned
        self.cut()
        if abandoned is not None:
            abandoned()

    async def read(self, patience: float) -> list[bytes] | None:
        """Return all queued messages, [] after `timeout` seconds, or None at the end."""
        if not self._messages:
            if self.is_over():
                return None

            loop = asyncio.get_running_loop()
            reader = self._reader = loop.create_future()
            alarm = loop.call_later(patience, self._wake)

            try:
                await reader
            finally:
                alarm.cancel()
                self._reader = None
            if not self._messages:
                return None if self.is_over() else []

        messages, self._messages = self._messages, []
        self._free()
        return messages

    def is_over(self) -> bool:
        """Return True if the last message has been queued."""
        return self._closed

    def _wake(self) -> None:
        reader = self._reader
        if reader is not None and not reader.done():
            reader.set_result(None)

    def _free(self) -> None:
        if self._writers:
            writers, self._writers = self._writers, []
            for room in writers:
                if not room.done():
                    room.set_result(None)
