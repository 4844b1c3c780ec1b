"""Output of a child process: bounded lines of stdout, and the tail of stderr."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from mcp_django.aio.clock import monotonic

WAITING: Final = 256 * 1024
"""Bytes of unread lines after which reading from the process is paused."""
LOGGED_LINE: Final = 1000
"""Maximum length of a logged line, in characters."""
LOGGED: Final = 100
"""Maximum number of stderr lines logged in LOG_PERIOD_SECONDS.

Further lines are only counted.
"""
PERIOD: Final = 10.0

logger = logging.getLogger("mcp_django.client.stderr")


class LineTooLong(Exception):
    """A line exceeds the maximum size of a message."""


class Lines:
    """Queue of stdout lines with backpressure by `pause` and `resume`."""

    def __init__(self, limit: int, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._limit, self._pause, self._resume = limit, pause, resume
        self._lines: deque[bytes] = deque()
        self._rest: list[bytes] = []
        self._rest_size = self._waiting = 0
        self._paused = self._over = self._too_long = False
        self._news = asyncio.Event()

    def feed(self, data: bytes) -> None:
        if self._too_long:
            return
        first, *others = data.split(b"\n")
        self._rest.append(first)
        self._rest_size += len(first)
        for following in others:
            self._finish_line()
            self._rest, self._rest_size = [following], len(following)
        if self._rest_size > self._limit:
            self._too_long, self._rest = True, []
        if self._waiting > WAITING and not self._paused:
            self._paused = True
            self._pause()
        self._news.set()

    def end(self) -> None:
        """Mark the end of the output. Text after the last line break is a line."""
        if not self._over:
            self._finish_line()
            self._over = True
            self._news.set()

    async def take(self) -> bytes | None:
        """Return the next line; None at the end. Raises LineTooLong."""
        while not self._lines:
            if self._too_long:
                raise LineTooLong
            if self._over:
                return None
            self._news.clear()
            await self._news.wait()
        line = self._lines.popleft()
        self._waiting -= len(line)
        if self._paused and self._waiting <= WAITING // 2:
            self._paused = False
            self._resume()
        return line

    def _finish_line(self) -> None:
        if self._too_long:
            return
        if self._rest_size > self._limit:
            self._too_long = True
            return
        line = b"".join(self._rest).strip()
        self._rest, self._rest_size = [], 0
        if line:
            self._lines.append(line)
            self._waiting += len(line)


class Tail:
    """Keeps the last `size` bytes of stderr, and logs its lines within limits."""

    def __init__(self, name: str, size: int, clock: Callable[[], float] = monotonic) -> None:
        self._name, self._size, self._clock = name, size, clock
        self._kept = bytearray()
        self._line = bytearray()
        self._shown = self._left_out = 0
        self._since = clock()

    @property
    def text(self) -> str:
        """The kept output in printable characters."""
        return "\n".join(map(_printable, bytes(self._kept).split(b"\n"))).strip()

    def feed(self, data: bytes) -> None:
        self._kept += data
        del self._kept[: max(0, len(self._kept) - self._size)]
        first, *others = data.split(b"\n")
        self._grow(first)
        for following in others:
            self._log()
            self._grow(following)

    def end(self) -> None:
        self._log()
        self._say_left_out()

    def _grow(self, piece: bytes) -> None:
        room = 4 * LOGGED_LINE - len(self._line)
        self._line += piece[: max(0, room)]

    def _log(self) -> None:
        line = _printable(bytes(self._line)).strip()
        self._line.clear()
        if not line:
            return
        if self._clock() - self._since > PERIOD:
            self._say_left_out()
            self._shown, self._since = 0, self._clock()
        if self._shown >= LOGGED:
            self._left_out += 1
            return
        self._shown += 1
        logger.info("%s: %s", self._name, line if len(line) <= LOGGED_LINE else f"{line[:LOGGED_LINE]}…")

    def _say_left_out(self) -> None:
        if self._left_out:
            logger.info("%s: %d more lines", self._name, self._left_out)
            self._left_out = 0


def _printable(raw: bytes) -> str:
    """Decode a line and escape its control characters."""
    text = raw.decode("utf-8", "backslashreplace").rstrip("\r").replace("\t", "    ")
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
