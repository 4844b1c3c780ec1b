"""What the streams of calls remember, so that a client that lost its connection hears the rest (basic/transports,
resumability; handshake era).

While the client reads, this is a list in memory and nothing else. A stream has one reader at a time: the newest. What
takes a stream to another worker is in `relays`, and how long one is kept in `kept_rings`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from mcp_django.protocol.jsonrpc import compact

logger = logging.getLogger("mcp_django.server")

RING_BYTES = 4 * 1024 * 1024
"""Bytes of messages that one stream remembers; the last message is remembered whatever its length."""
HEARD_TTL = 60.0
"""Seconds for which a stream that was sent to its end is kept: bytes that went out have not always arrived."""


class Bounds(NamedTuple):
    """How much a stream may be ahead of whom."""

    events: int = 1000
    """Messages that are remembered."""
    unsent: int = 64
    """Messages that may wait for a reader. Then the call waits for it, and for nobody who is not there."""
    patience: float = 60.0
    """Seconds that it does so; a reader that takes none meanwhile counts as gone."""
    ttl: float = 600.0
    """Seconds for which a stream that was not heard to its end is kept after its call."""


class Said(NamedTuple):
    """A message of a stream, and its number there."""

    n: int
    message: bytes


class Reader:
    """One client's place on a stream."""

    __slots__ = ("_ring", "_waiter", "over", "position", "relayed", "retry", "waiting")

    def __init__(self, ring: "Ring", after: int, relayed: str | None) -> None:
        self._ring, self.position, self.relayed = ring, after, relayed
        self.waiting: list[Said] = []
        self.over = False
        """Will there be nothing after what waits?"""
        self.retry: float | None = None
        """Seconds after which the client is asked to come back, when it was sent away."""
        self._waiter: asyncio.Future[None] | None = None

    @property
    def token(self) -> str:
        """The name of the stream."""
        return self._ring.token

    async def read(self, patience: float) -> list[Said] | None:
        """What waits; an empty list after `patience` seconds of silence; None at the end."""
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
        """Nobody reads here any more. What is said goes on to be remembered."""
        self.waiting.clear()
        self.over = True
        self.wake()
        self._ring.part(self)

    def wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class Ring:
    """The messages of one call's stream, numbered from 1."""

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
        """`session` is the primary key of its session; `on_end` is called when the call is over, and when what was
        kept after that has been heard.
        """
        self.session, self.token = session, token
        self._bounds = bounds
        self._on_end: Callable[[Ring], None] | None = on_end
        self._messages: deque[bytes] = deque()
        self._size = 0
        self.first, self.last = 1, 0
        """The numbers of the first message that is remembered and of the last one."""
        self._writers: list[asyncio.Future[None]] = []
        self._finished = False
        self.heard = False
        """Has somebody been sent everything, to the end?"""
        self.cut_off = False
        """Did the call end without an answer?"""
        self.reader: Reader | None = None
        self.written = self.repeated = 0
        """The last message that was written into the log, and how many bytes were more than once."""

    @property
    def size(self) -> int:
        """Bytes that are remembered."""
        return self._size

    @property
    def ttl(self) -> float:
        """Seconds for which it is kept when its call is over."""
        return HEARD_TTL if self.heard else self._bounds.ttl

    async def put(self, message: bytes) -> None:
        """Say something; waits while there is a reader that is too far behind."""
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
        """Can something more be said that neither makes the call wait nor, while nobody reads, takes the place of what
        is remembered?
        """
        if self.reader is None:
            return len(self._messages) < self._bounds.events // 2
        return not self._is_full()

    def put_nowait(self, message: bytes) -> None:
        """Say something, whatever the reader does."""
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
        """Say the last thing, if there is one."""
        if message is not None:
            self.put_nowait(message)
        if not self._finished:
            self._finish()

    def take_back(self, message: bytes) -> None:
        """As any other message: after a cut nobody reads here."""
        self.put_nowait(message)

    def cut(self) -> None:
        """The call was given up: nothing more is sent, also nothing of what waits."""
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
        """Nobody keeps it."""
        self._on_end = None

    def attach(self, after: int, *, relayed: str | None = None) -> Reader | None:
        """A reader of what comes after message `after`, in place of the one before; None when some of that is not
        remembered any more. `relayed` names the client that reads through another worker.
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
        """Whoever reads here is cut off."""
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.waiting.clear()
            reader.over = True
            reader.wake()
        self.make_room()

    def release(self, retry: float | None) -> bool:
        """Send the reader away when it has read what waits; False when there is none."""
        reader, self.reader = self.reader, None
        if reader is None:
            return False
        reader.retry, reader.over = retry, True
        reader.wake()
        self.make_room()
        return True

    def heard_by(self, reader: Reader) -> None:
        """A reader has come to its end."""
        if self.reader is reader:
            self.reader = None
            if self._finished:
                self.heard = True
                self._tell()

    def part(self, reader: Reader) -> None:
        """A reader has gone."""
        if self.reader is reader:
            self.reader = None
            self.make_room()

    def make_room(self) -> None:
        """Let those who wait for a reader look again."""
        writers, self._writers = self._writers, []
        for room in writers:
            if not room.done():
                room.set_result(None)

    def _abandon(self, reader: Reader | None) -> None:
        if reader is not None and self.reader is reader:
            logger.info("A client has stopped reading the messages of its call, and counts as gone")
            self.replace()

    def since(self, after: int) -> list[Said]:
        """What is remembered of the messages after number `after`."""
        return [Said(n, message) for n, message in enumerate(self._messages, self.first) if n > after]
