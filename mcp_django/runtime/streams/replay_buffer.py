"""Replay buffers of call streams, for clients that reconnect (handshake era).

See basic/transports, resumability. While the client reads, a buffer is a list in memory. A stream has one reader at a
time, the newest. `call_streams` transfers streams to other workers; `replay_store` decides how long a buffer is kept.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mcp_django.aio.tasks import wait_for_wake, wake_all
from mcp_django.protocol.jsonrpc import compact
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.streams.reader import NumberedMessage, StreamReader

logger = get_logger("mcp_django.server")

MAX_BUFFER_BYTES = 4 * 1024 * 1024
"""Maximum bytes of messages in one buffer; the last message is always kept."""
DELIVERED_TTL_SECONDS = 60.0
"""Seconds to keep a completely sent stream: sent bytes may not have arrived."""

STALLED_CLIENT_MESSAGE = "Client stopped reading the messages of its call; treating it as disconnected"


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


class ReplayReader(StreamReader):
    """Position of one client on the stream of a call."""

    def __init__(self, buffer: "ReplayBuffer", after: int, relay_name: str | None) -> None:
        super().__init__(after)
        self._buffer = buffer
        self.token = buffer.token
        self.relay_name = relay_name

    async def read(self, timeout: float) -> list[NumberedMessage] | None:
        """Return messages as any reader does, and notify the buffer."""
        messages = await super().read(timeout)
        if messages is None:
            self._buffer.on_reader_finished(self)
        elif messages:
            self._buffer.wake_writers()
        return messages

    def close(self) -> None:
        """Close the reader; the stream continues to buffer messages."""
        super().close()
        self._buffer.remove_reader(self)


@dataclass(slots=True, eq=False, repr=False)
class ReplayBuffer:
    """Messages of one call's stream, numbered from 1."""

    session_pk: Any
    token: str
    limits: ReplayLimits
    on_end: Callable[["ReplayBuffer"], None] | None
    """Callback for the end of the call, and for the complete delivery of a kept stream."""
    reader: ReplayReader | None = field(default=None, init=False)

    first_number: int = field(default=1, init=False)
    last_number: int = field(default=0, init=False)
    """Numbers of the first and the last buffered message."""
    size: int = field(default=0, init=False)
    """Total length of the buffered messages in bytes."""

    is_delivered: bool = field(default=False, init=False)
    """True after a reader has received everything up to the end."""
    is_aborted: bool = field(default=False, init=False)
    """True if the call ended without an answer."""

    last_logged_number: int = field(default=0, init=False)
    repeated_bytes: int = field(default=0, init=False)
    """Number of the last logged message, and bytes that were logged repeatedly."""

    _messages: deque[bytes] = field(default_factory=deque, init=False)
    _writers: list[asyncio.Future[None]] = field(default_factory=list, init=False)
    _is_finished: bool = field(default=False, init=False)

    @property
    def ttl(self) -> float:
        """Seconds for which the buffer is kept after its call."""
        return DELIVERED_TTL_SECONDS if self.is_delivered else self.limits.ttl

    async def put(self, message: bytes) -> None:
        """Add a message; wait while the reader has too many unread ones."""
        while self._is_full():
            await wait_for_wake(self._writers, self.limits.send_timeout, self._on_send_timeout, self.reader)
        self.put_nowait(message)

    def _is_full(self) -> bool:
        reader = self.reader
        return reader is not None and len(reader.waiting) >= self.limits.max_unsent and not self._is_finished

    def has_room(self) -> bool:
        """Return True if a message can be added without waiting.

        Without a reader it must not displace buffered messages, either.
        """
        if self.reader is None:
            return len(self._messages) < self.limits.max_events // 2
        return not self._is_full()

    def put_nowait(self, message: bytes) -> None:
        """Add a message without waiting."""
        if self._is_finished:
            return
        message = compact(message)
        self.last_number += 1
        messages, limits = self._messages, self.limits
        messages.append(message)
        self.size += len(message)
        while len(messages) > 1 and (len(messages) > limits.max_events or self.size > MAX_BUFFER_BYTES):
            self.size -= len(messages.popleft())
            self.first_number += 1

        if self.reader is not None:
            self.reader.add(self.last_number, message)

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
        self.size = 0
        self.first_number = self.last_number + 1
        if self.reader is not None:
            self.reader.waiting.clear()
        if not self._is_finished:
            self.is_aborted = True
            self._set_finished()

    def _set_finished(self) -> None:
        self._is_finished = True
        if self.reader is not None:
            self.reader.end()
        self.wake_writers()
        self._notify_end()

    def _notify_end(self) -> None:
        if self.on_end is not None:
            self.on_end(self)

    def attach(self, after: int, *, relay_name: str | None = None) -> ReplayReader | None:
        """Return a reader of the messages after `after`, in place of the current reader.

        Return None if some of them have been discarded. `relay_name` identifies a client that reads through another
        worker.
        """
        if not self.first_number - 1 <= after <= self.last_number:
            return None

        self.detach_reader()
        reader = ReplayReader(self, after, relay_name)
        reader.waiting = self.get_messages_after(after)
        reader.is_ended = self._is_finished
        self.reader = reader
        self.is_delivered = False
        return reader

    def detach_reader(self) -> None:
        """Disconnect the current reader at once."""
        if self.reader is not None:
            self.reader.close()
        self.wake_writers()

    def disconnect_reader(self, retry: float | None) -> bool:
        """Disconnect the reader after the waiting messages; return False without a reader."""
        reader = self.reader
        self.reader = None
        if reader is None:
            return False
        reader.retry = retry
        reader.end()
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
        wake_all(self._writers)

    def _on_send_timeout(self, reader: ReplayReader | None) -> None:
        if reader is not None and self.reader is reader:
            logger.info(STALLED_CLIENT_MESSAGE)
            self.detach_reader()

    def get_messages_after(self, after: int) -> list[NumberedMessage]:
        """Return the buffered messages after number `after`."""
        return [
            NumberedMessage(number, message)
            for number, message in enumerate(self._messages, self.first_number)
            if number > after
        ]
