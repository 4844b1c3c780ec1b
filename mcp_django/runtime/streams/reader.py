"""Readers of streams with numbered messages: of a call here, of a call elsewhere, of a session."""

import asyncio
import sys
from typing import NamedTuple

from mcp_django.aio.tasks import wait_for_wake, wake_all


class NumberedMessage(NamedTuple):
    """Message with its position in the stream, by which a client resumes."""

    number: int
    message: bytes


class StreamReader:
    """Position of one client on a stream, and the messages that wait for it.

    One task reads; messages are added on its event loop.
    """

    def __init__(self, after: int = 0, max_waiting: int = sys.maxsize) -> None:
        """Create a reader after message `after`, which ends with `max_waiting` unread messages."""
        self.waiting: list[NumberedMessage] = []
        self.is_ended = False
        """True if no messages follow the waiting ones."""
        self.has_overflowed = False
        """True if the reader ended because of too many unread messages."""
        self.retry: float | None = None
        """Seconds after which the client should reconnect, if the server disconnected it."""
        self._read_number = after
        self._max_waiting = max_waiting
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def position(self) -> int:
        """Number up to which the stream has been read."""
        return self._read_number

    async def read(self, timeout: float) -> list[NumberedMessage] | None:
        """Return waiting messages; an empty list after `timeout` seconds, None at the end."""
        if not self.waiting and not self.is_ended:
            await wait_for_wake(self._waiters, timeout, self.on_silence)

        if not self.waiting:
            return None if self.is_ended else []
        messages = self.waiting
        self.waiting = []
        self._read_number = messages[-1].number
        return messages

    def add(self, number: int, message: bytes) -> None:
        """Add a message, unless the reader has ended."""
        if self.is_ended:
            return
        self.waiting.append(NumberedMessage(number, message))
        self.wake()
        if len(self.waiting) >= self._max_waiting:
            self.has_overflowed = True
            self.end()

    def end(self) -> None:
        """End the reader after the waiting messages."""
        self.is_ended = True
        self.wake()

    def close(self) -> None:
        """End the reader and discard the waiting messages."""
        self.waiting.clear()
        self.end()

    def on_silence(self) -> None:
        """Return from `read`, because no message arrived in time."""
        self.wake()

    def wake(self) -> None:
        """Return from a waiting `read`."""
        wake_all(self._waiters)
