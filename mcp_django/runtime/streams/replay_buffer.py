"""Replay buffers of call streams, for clients that reconnect (handshake era).

See basic/transports, resumability. While the client reads, a buffer is a list in memory. A stream has one reader at a
time, the newest. `relay` transfers streams to other workers; `replay_store` decides how long a buffer is kept.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from mcp_django.protocol.jsonrpc import compact

logger = logging.getLogger("mcp_django.server")

MAX_BUFFER_BYTES = 4 * 1024 * 1024
"""Maximum bytes of messages in one buffer; the last message is always kept."""
DELIVERED_TTL_SECONDS = 60.0
"""Seconds to keep a completely sent stream: sent bytes may not have arrived."""


class ReplayLimits(NamedTuple):
    """Limits of replay buffers."""

    max_events: int = 1000
    """Maximum number of buffered messages."""
    max_unsent: int = 64
    """Maximum number of unread messages; the call waits while its reader has more.

    A call without a reader does not wait.
    """
    send_timeout: float = 60.0
    """Maximum seconds that a call waits for its reader, which is then disconnected."""
    ttl: float = 600.0
    """Seconds to keep an incompletely read stream after its call."""


class NumberedMessage(NamedTuple):
    """Message of a stream with its number."""

    number: int
    message: bytes


class ReplayReader:
    """Position of one client on a stream."""

    __slots__ = ("_buffer", "_waiter", "is_ended", "position", "relay_name", "retry", "waiting")

    def __init__(self, buffer: "ReplayBuffer", after: int, relay_name: str | None) -> None:
        self._buffer = buffer
        self.position = after
        self.relay_name = relay_name
        self.waiting: list[NumberedMessage] = []
        self.is_ended = False
        """True if no messages follow the waiting ones."""
        self.retry: float | None = None
        """Seconds after which the client should reconnect, if the server disconnected it."""
        self._waiter: asyncio.Future[None] | None = None

    @property
    def token(self) -> str:
        """Name of the stream."""
        return self._buffer.token

    async def read(self, timeout: float) -> list[NumberedMessage] | None:
        """Return waiting messages; an empty list after `timeout` seconds, None at the end."""
        if not self.waiting and not self.is_ended:
            loop = asyncio.get_running_loop()
            waiter = self._waiter = loop.create_future()
            timer = loop.call_later(timeout, self.wake)
            try:
                await waiter
            finally:
                timer.cancel()
                self._waiter = None

        if not self.waiting:
            if not self.is_ended:
                return []
            self._buffer.on_reader_finished(self)
            return None

        messages = self.waiting
        self.waiting = []
        self.position = messages[-1].number
        self._buffer.wake_writers()
        return messages

    def close(self) -> None:
        """Close the reader; the stream continues to buffer messages."""
        self.waiting.clear()
        self.is_ended = True
        self.wake()
        self._buffer.remove_reader(self)

    def wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class ReplayBuffer:
    """Messages of one call's stream, numbered from 1."""

    __slots__ = (
        "_is_finished",
        "_limits",
        "_messages",
        "_on_end",
        "_size",
        "_writers",
        "first_number",
        "is_aborted",
        "is_delivered",
        "last_logged_number",
        "last_number",
        "reader",
        "repeated_bytes",
        "session_pk",
        "token",
    )

    def __init__(
        self, session_pk: Any, token: str, limits: ReplayLimits, on_end: Callable[["ReplayBuffer"], None]
    ) -> None:
        """Create an empty buffer of a session, given by primary key.

        `on_end` is called when the call ends, and when a kept stream has been sent completely.
        """
        self.session_pk = session_pk
        self.token = token
        self._limits = limits
        self._on_end: Callable[[ReplayBuffer], None] | None = on_end

        self._messages: deque[bytes] = deque()
        self._size = 0
        self.first_number = 1
        self.last_number = 0
        """Numbers of the first and the last buffered message."""

        self._writers: list[asyncio.Future[None]] = []
        self._is_finished = False
        self.is_delivered = False
        """True after a reader has received everything up to the end."""
        self.is_aborted = False
        """True if the call ended without an answer."""

        self.reader: ReplayReader | None = None
        self.last_logged_number = self.repeated_bytes = 0
        """Number of the last logged message, and bytes that were logged repeatedly."""

    @property
    def size(self) -> int:
        """Total length of the buffered messages in bytes."""
        return self._size

    @property
    def ttl(self) -> float:
        """Seconds for which the buffer is kept after its call."""
        return DELIVERED_TTL_SECONDS if self.is_delivered else self._limits.ttl

    async def put(self, message: bytes) -> None:
        """Add a message; wait while the reader has too many unread ones."""
        while self._is_full():
            loop = asyncio.get_running_loop()
            waiter = loop.create_future()
            self._writers.append(waiter)
            timer = loop.call_later(self._limits.send_timeout, self._on_send_timeout, self.reader)
            try:
                await waiter
            finally:
                timer.cancel()
        self.put_nowait(message)

    def _is_full(self) -> bool:
        reader = self.reader
        return reader is not None and len(reader.waiting) >= self._limits.max_unsent and not self._is_finished

    def has_room(self) -> bool:
        """Return True if a message can be added without waiting.

        Without a reader it must not displace buffered messages, either.
        """
        if self.reader is None:
            return len(self._messages) < self._limits.max_events // 2
        return not self._is_full()

    def put_nowait(self, message: bytes) -> None:
        """Add a message without waiting."""
        if self._is_finished:
            return
        message = compact(message)
        self.last_number += 1
        messages, limits = self._messages, self._limits
        messages.append(message)
        self._size += len(message)
        while len(messages) > 1 and (len(messages) > limits.max_events or self._size > MAX_BUFFER_BYTES):
            self._size -= len(messages.popleft())
            self.first_number += 1

        reader = self.reader
        if reader is not None:
            reader.waiting.append(NumberedMessage(self.last_number, message))
            reader.wake()

    def finish(self, message: bytes | None = None) -> None:
        """Add the last message, if any, and end the stream."""
        if message is not None:
            self.put_nowait(message)
        if not self._is_finished:
            self._set_finished()

    def put_cancellation(self, message: bytes) -> None:
        """Add a cancellation like any other message: an aborted stream has no reader."""
        self.put_nowait(message)

    def abort(self) -> None:
        """Abort the stream of a cancelled call and discard all messages."""
        self._messages.clear()
        self._size = 0
        self.first_number = self.last_number + 1
        reader = self.reader
        if reader is not None:
            reader.waiting.clear()
        if not self._is_finished:
            self.is_aborted = True
            self._set_finished()

    def _set_finished(self) -> None:
        self._is_finished = True
        reader = self.reader
        if reader is not None:
            reader.is_ended = True
            reader.wake()
        self.wake_writers()
        self._notify_end()

    def _notify_end(self) -> None:
        if self._on_end is not None:
            self._on_end(self)

    def clear_end_callback(self) -> None:
        """Remove the end callback, because the store discards the buffer."""
        self._on_end = None

    def attach(self, after: int, *, relay_name: str | None = None) -> ReplayReader | None:
        """Return a reader of the messages after `after`, in place of the current reader.

        Return None if some of them have been discarded. `relay_name` identifies a client that reads through another
        worker.
        """
        if not self.first_number - 1 <= after <= self.last_number:
            return None

        self.detach_reader()
        reader = ReplayReader(self, after, relay_name)
        skip = after - self.first_number + 1
        reader.waiting = [
            NumberedMessage(self.first_number + index, message)
            for index, message in enumerate(self._messages)
            if index >= skip
        ]

        if self._is_finished:
            reader.is_ended = True
        self.reader = reader
        self.is_delivered = False
        return reader

    def detach_reader(self) -> None:
        """Disconnect the current reader at once."""
        reader = self.reader
        self.reader = None
        if reader is not None:
            reader.waiting.clear()
            reader.is_ended = True
            reader.wake()
        self.wake_writers()

    def disconnect_reader(self, retry: float | None) -> bool:
        """Disconnect the reader after the waiting messages; return False without a reader."""
        reader = self.reader
        self.reader = None
        if reader is None:
            return False
        reader.retry, reader.is_ended = retry, True
        reader.wake()
        self.wake_writers()
        return True

    def on_reader_finished(self, reader: ReplayReader) -> None:
        """Record that a reader has reached its end."""
        if self.reader is reader:
            self.reader = None
            if self._is_finished:
                self.is_delivered = True
                self._notify_end()

    def remove_reader(self, reader: ReplayReader) -> None:
        """Remove a closed reader."""
        if self.reader is reader:
            self.reader = None
            self.wake_writers()

    def wake_writers(self) -> None:
        """Wake the writers that wait for the reader."""
        writers = self._writers
        self._writers = []
        for waiter in writers:
            if not waiter.done():
                waiter.set_result(None)

    def _on_send_timeout(self, reader: ReplayReader | None) -> None:
        if reader is not None and self.reader is reader:
            logger.info("Client stopped reading the messages of its call; treating it as disconnected")
            self.detach_reader()

    def get_messages_after(self, after: int) -> list[NumberedMessage]:
        """Return the buffered messages after number `after`."""
        return [
            NumberedMessage(number, message)
            for number, message in enumerate(self._messages, self.first_number)
            if number > after
        ]
