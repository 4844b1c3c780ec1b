"""What one call says before its answer: a bounded queue with one reader."""

import asyncio
import threading
from collections.abc import Callable
from typing import Protocol


class Track(Protocol):
    """Where the messages of a stream go whose reader may change."""

    async def put(self, message: bytes) -> None:
        """Say something; waits for a reader that is too far behind."""

    def put_nowait(self, message: bytes) -> None:
        """Say something, whatever the reader does."""

    def has_room(self) -> bool:
        """Is there room for what may as well be dropped?"""

    def finish(self, message: bytes | None = None) -> None:
        """Say the last thing, if there is one."""

    def cut(self) -> None:
        """The call was given up: nothing more is sent."""

    def take_back(self, message: bytes) -> None:
        """Say, also after a cut, that a question is not asked any more."""

    def release(self, retry: float | None) -> bool:
        """Send the reader away when it has read what waits; False when there is none."""


_COUNTING = threading.Lock()
"""Held for an addition."""


class Outbox:
    """`put` waits while `size` messages are unsent, `patience` seconds for a reader that takes none. `opened` is called
    once, at the first message: the answer becomes a stream; `abandoned` when a writer has lost patience.

    Messages are whole, encoded JSON-RPC messages; framing is the transport's. Once it has been handed over to a track,
    it is no more than the way there.
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
        # No deques: an empty one takes 600 bytes, and most calls say nothing before their answer.
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
        """False where the transport has no stream (WSGI): messages are dropped and questions refused."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop that the call runs on."""

    async def put(self, message: bytes) -> None:
        """Queue a message; waits while the reader is behind, and no longer once it has stopped reading."""
        if self._track is not None:
            await self._track.put(message)
            return
        await self.room()
        self.put_nowait(message)

    def has_room(self) -> bool:
        """Is the reader keeping up?"""
        return len(self._messages) < self._size if self._track is None else self._track.has_room()

    async def room(self) -> None:
        """Wait while the reader is behind, and no longer once it has stopped reading."""
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
        """Queue a message, beyond the bound if need be. Dropped when nobody will read it."""
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
        """Queue a message from whatever thread, if there is room: never waits, and drops what is too much."""
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
        """Queue the last message, if there is one, and end. Never waits."""
        if message is not None:
            self.put_nowait(message)
        self._closed = True
        if self._track is not None:
            self._track.finish()
        self._free()
        self._wake()

    def cut(self) -> None:
        """Nobody reads any more: forget what is here and let every writer go on."""
        self._messages.clear()
        if self._track is not None:
            self._track.cut()
        self.finish()

    def take_back(self, message: bytes) -> None:
        """Say that a question is not asked any more. Where others share the way, the client is there to be told also
        when the call that asked was given up.
        """
        if self._track is not None:
            self._track.take_back(message)
        else:
            self.put_nowait(message)

    def hand_over(self, track: Track) -> None:
        """From now on everything goes to `track`, also what is here."""
        messages, self._messages = self._messages, []
        for message in messages:
            track.put_nowait(message)
        self._track = track
        self._free()

    def release(self, retry: float) -> bool:
        """Send the reader away, to come back after `retry` seconds. False where nobody can come back."""
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
        """All that waits; an empty list after `patience` seconds of silence; None at the end."""
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
        """Has the last message been queued?"""
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
