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

RING_BYTES = 4 * 1024 * 1024
"""Maximum bytes of messages in one buffer; the last message is always kept."""
HEARD_TTL = 60.0
"""Seconds to keep a completely sent stream: sent bytes may not have arrived."""


class Bounds(NamedTuple):
    """Limits of replay buffers."""

    events: int = 1000
    """Maximum number of buffered messages."""
    unsent: int = 64
    """Maximum number of unread messages; the call waits while its reader has more.

    A call without a reader does not wait.
    """
    patience: float = 60.0
    """Maximum seconds that a call waits for its reader, which is then disconnected."""
    ttl: float = 600.0
    """Seconds to keep an incompletely read stream after its call."""


class Said(NamedTuple):
    """Message of a stream with its number."""

    n: int
    message: bytes


class Reader:
    """Position of one client on a stream."""

    __slots__ = ("_ring", "_waiter", "over", "position", "relayed", "retry", "waiting")

    def __init__(self, ring: "Ring", after: int, relayed: str | None) -> None:
        self._ring, self.position, self.relayed = ring, after, relayed
        self.waiting: list[Said] = []
        self.over = False
        """True if no messages follow the waiting ones."""
        self.retry: float | None = None
        """Seconds after which the client should reconnect, if the server disconnected it."""
        self._waiter: asyncio.Future[None] | None = None

    @property
    def token(self) -> str:
        """Name of the stream."""
        return self._ring.token

    async def read(self, patience: float) -> list[Said] | None:
        """Return waiting messages; an empty list after `timeout` seconds, None at the end."""
        if not self.waiting and not self.over:
            loop = asyncio.get_running_loop()
            waiter = self._waiter = loop.create_future()
            alarm = loop.call_later(patience, self.wake)
            try:
                await waiter
            finally:
                alarm.cancel()
                self._waiter = None

        if not self.waiting:
            if not self.over:
                return []
            self._ring.heard_by(self)
            return None

        said, self.waiting = self.waiting, []
        self.position = said[-1].n
        self._ring.make_room()
        return said

    def leave(self) -> None:
        """Close the reader; the stream continues to buffer messages."""
        self.waiting.clear()
        self.over = True
        self.wake()
        self._ring.part(self)

    def wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class Ring:
    """Messages of one call's stream, numbered from 1."""

    __slots__ = (
        "_bounds",
        "_finished",
        "_messages",
        "_on_end",
        "_size",
        "_writers",
        "cut_off",
        "first",
        "heard",
        "last",
        "reader",
        "repeated",
        "session",
        "token",
        "written",
    )

    def __init__(self, session: Any, token: str, bounds: Bounds, on_end: Callable[["Ring"], None]) -> None:
        """Create an empty buffer of a session, given by primary key.

        `on_end` is called when the call ends, and when a kept stream has been sent completely.
        """
        self.session, self.token = session, token
        self._bounds = bounds
        self._on_end: Callable[[Ring], None] | None = on_end

        self._messages: deque[bytes] = deque()
        self._size = 0
        self.first, self.last = 1, 0
        """Numbers of the first and the last buffered message."""

        self._writers: list[asyncio.Future[None]] = []
        self._finished = False
        self.heard = False
        """True after a reader has received everything up to the end."""
        self.cut_off = False
        """True if the call ended without an answer."""

        self.reader: Reader | None = None
        self.written = self.repeated = 0
        """Number of the last logged message, and bytes that were logged repeatedly."""

    @property
    def size(self) -> int:
        """Total length of the buffered messages in bytes."""
        return self._size

    @property
    def ttl(self) -> float:
        """Seconds for which the buffer is kept after its call."""
        return HEARD_TTL if self.heard else self._bounds.ttl

    async def put(self, message: bytes) -> None:
        """Add a message; wait while the reader has too many unread ones."""
        while self._is_full():
            loop = asyncio.get_running_loop()
            room = loop.create_future()
            self._writers.append(room)
            alarm = loop.call_later(self._bounds.patience, self._abandon, self.reader)
            try:
                await room
            finally:
                alarm.cancel()
        self.put_nowait(message)

    def _is_full(self) -> bool:
        reader = self.reader
        return reader is not None and len(reader.waiting) >= self._bounds.unsent and not self._finished

    def has_room(self) -> bool:
        """Return True if a message can be added without waiting.

        Without a reader it must not displace buffered messages, either.
        """
        if self.reader is None:
            return len(self._messages) < self._bounds.events // 2
        return not self._is_full()

    def put_nowait(self, message: bytes) -> None:
        """Add a message without waiting."""
        if self._finished:
            return
        message = compact(message)
        self.last += 1
        messages, bounds = self._messages, self._bounds
        messages.append(message)
        self._size += len(message)
        while len(messages) > 1 and (len(messages) > bounds.events or self._size > RING_BYTES):
            self._size -= len(messages.popleft())
            self.first += 1

        reader = self.reader
        if reader is not None:
            reader.waiting.append(Said(self.last, message))
            reader.wake()

    def finish(self, message: bytes | None = None) -> None:
        """Add the last message, if any, and end the stream."""
        if message is not None:
            self.put_nowait(message)
        if not self._finished:
            self._finish()

    def take_back(self, message: bytes) -> None:
        """Add a cancellation like any other message: an aborted stream has no reader."""
        self.put_nowait(message)

    def cut(self) -> None:
        """Abort the stream of a cancelled call and discard all messages."""
        self._messages.clear()
        self._size, self.first = 0, self.last + 1
        reader = self.reader
        if reader is not None:
            reader.waiting.clear()
        if not self._finished:
            self.cut_off = True
            self._finish()

    def _finish(self) -> None:
        self._finished = True
        reader = self.reader
        if reader is not None:
            reader.over = True
            reader.wake()
        self.make_room()
        self._tell()

    def _tell(self) -> None:
        if self._on_end is not None:
            self._on_end(self)

    def forget(self) -> None:
        """Remove the end callback, because the store discards the buffer."""
        self._on_end = None

    def attach(self, after: int, *, relayed: str | None = None) -> Reader | None:
        """Return a reader of the messages after `after`, in place of the current reader.

        Return None if some of them have been discarded. `relay_name` identifies a client that reads through another
        worker.
        """
        if not self.first - 1 <= after <= self.last:
            return None

        self.replace()
        reader = Reader(self, after, relayed)
        skip = after - self.first + 1
        reader.waiting = [Said(self.first + k, m) for k, m in enumerate(self._messages) if k >= skip]

        if self._finished:
            reader.over = True
        self.reader, self.heard = reader, False
        return reader

    def replace(self) -> None:
        """Disconnect the current reader at once."""
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.waiting.clear()
            reader.over = True
            reader.wake()
        self.make_room()

    def release(self, retry: float | None) -> bool:
        """Disconnect the reader after the waiting messages; return False without a reader."""
        reader, self.reader = self.reader, None
        if reader is None:
            return False
        reader.retry, reader.over = retry, True
        reader.wake()
        self.make_room()
        return True

    def heard_by(self, reader: Reader) -> None:
        """Record that a reader has reached its end."""
        if self.reader is reader:
            self.reader = None
            if self._finished:
                self.heard = True
                self._tell()

    def part(self, reader: Reader) -> None:
        """Remove a closed reader."""
        if self.reader is reader:
            self.reader = None
            self.make_room()

    def make_room(self) -> None:
        """Wake the writers that wait for the reader."""
        writers, self._writers = self._writers, []
        for room in writers:
            if not room.done():
                room.set_result(None)

    def _abandon(self, reader: Reader | None) -> None:
        if reader is not None and self.reader is reader:
            logger.info("Client stopped reading the messages of its call; treating it as disconnected")
            self.replace()

    def since(self, after: int) -> list[Said]:
        """Return the buffered messages after number `after`."""
        return [Said(n, message) for n, message in enumerate(self._messages, self.first) if n > after]
