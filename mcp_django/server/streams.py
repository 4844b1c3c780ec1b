"""What one call says before its answer: a bounded queue with one reader."""

import asyncio
import threading
from collections.abc import Callable

_COUNTING = threading.Lock()
"""Held for an addition."""


class Outbox:
    """`put` waits while `size` messages are unsent, `patience` seconds for a reader that takes none. `opened` is called
    once, at the first message: the answer becomes a stream; `abandoned` when a writer has lost patience.

    Messages are whole, encoded JSON-RPC messages; framing is the transport's.
    """

    __slots__ = (
        "_arriving",
        "_closed",
        "_messages",
        "_patience",
        "_reader",
        "_size",
        "_writers",
        "abandoned",
        "interactive",
        "loop",
        "opened",
    )

    def __init__(self, size: int = 64, *, interactive: bool = True, patience: float = 60.0) -> None:
        # No deques: an empty one takes 600 bytes, and most calls say nothing before their answer.
        self._messages: list[bytes] = []
        self._size, self._patience = size, patience
        self._reader: asyncio.Future[None] | None = None
        self._writers: list[asyncio.Future[None]] = []
        self._closed = False
        self._arriving = 0
        self.opened: Callable[[], None] | None = None
        self.abandoned: Callable[[], None] | None = None
        self.interactive = interactive
        """False where the transport has no stream (WSGI): messages are dropped and questions refused."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop that the call runs on."""

    async def put(self, message: bytes) -> None:
        """Queue a message; waits while the reader is behind, and no longer once it has stopped reading."""
        while len(self._messages) >= self._size and not self._closed:
            loop = asyncio.get_running_loop()
            room = loop.create_future()
            self._writers.append(room)
            alarm = loop.call_later(self._patience, self._abandon)
            try:
                await room
            finally:
                alarm.cancel()
        self.put_nowait(message)

    def put_nowait(self, message: bytes) -> None:
        """Queue a message, beyond the bound if need be. Dropped when nobody will read it."""
        if self._closed or not self.interactive:
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
            if len(self._messages) < self._size:
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
        self._free()
        self._wake()

    def cut(self) -> None:
        """Nobody reads any more: forget what is here and let every writer go on."""
        self._messages.clear()
        self.finish()

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
        writers, self._writers = self._writers, []
        for room in writers:
            if not room.done():
                room.set_result(None)
