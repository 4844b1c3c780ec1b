"""Output of a child process: bounded lines of stdout, and the tail of stderr."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from mcp_django.aio.clock import monotonic

MAX_BUFFERED_BYTES: Final = 256 * 1024
"""Bytes of unread lines after which reading from the process is paused."""
MAX_LOGGED_LINE_LENGTH: Final = 1000
"""Maximum length of a logged line, in characters."""
MAX_LOGGED_LINES: Final = 100
"""Maximum number of stderr lines logged in LOG_PERIOD_SECONDS.

Further lines are only counted.
"""
LOG_PERIOD_SECONDS: Final = 10.0

logger = logging.getLogger("mcp_django.client.stderr")


class LineTooLong(Exception):
    """A line exceeds the maximum size of a message."""


class OutputLines:
    """Queue of stdout lines with backpressure by `pause` and `resume`."""

    def __init__(self, limit: int, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._limit = limit
        self._pause = pause
        self._resume = resume
        self._lines: deque[bytes] = deque()
        self._partial_line: list[bytes] = []
        self._partial_size = self._buffered_bytes = 0
        self._is_paused = self._is_ended = self._is_line_too_long = False
        self._changed = asyncio.Event()

    def feed(self, data: bytes) -> None:
        if self._is_line_too_long:
            return
        first, *others = data.split(b"\n")
        self._partial_line.append(first)
        self._partial_size += len(first)
        for following in others:
            self._finish_line()
            self._partial_line = [following]
            self._partial_size = len(following)
        if self._partial_size > self._limit:
            self._is_line_too_long = True
            self._partial_line = []
        if self._buffered_bytes > MAX_BUFFERED_BYTES and not self._is_paused:
            self._is_paused = True
            self._pause()
        self._changed.set()

    def feed_eof(self) -> None:
        """Mark the end of the output. Text after the last line break is a line."""
        if not self._is_ended:
            self._finish_line()
            self._is_ended = True
            self._changed.set()

    async def read_line(self) -> bytes | None:
        """Return the next line; None at the end. Raises LineTooLong."""
        while not self._lines:
            if self._is_line_too_long:
                raise LineTooLong
            if self._is_ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        line = self._lines.popleft()
        self._buffered_bytes -= len(line)
        if self._is_paused and self._buffered_bytes <= MAX_BUFFERED_BYTES // 2:
            self._is_paused = False
            self._resume()
        return line

    def _finish_line(self) -> None:
        if self._is_line_too_long:
            return
        if self._partial_size > self._limit:
            self._is_line_too_long = True
            return
        line = b"".join(self._partial_line).strip()
        self._partial_line = []
        self._partial_size = 0
        if line:
            self._lines.append(line)
            self._buffered_bytes += len(line)


class StderrTail:
    """Keeps the last `size` bytes of stderr, and logs its lines within limits."""

    def __init__(self, name: str, size: int, clock: Callable[[], float] = monotonic) -> None:
        self._name = name
        self._size = size
        self._clock = clock
        self._tail = bytearray()
        self._line = bytearray()
        self._logged_count = self._omitted_count = 0
        self._period_start = clock()

    @property
    def text(self) -> str:
        """The kept output in printable characters."""
        return "\n".join(map(_make_printable, bytes(self._tail).split(b"\n"))).strip()

    def feed(self, data: bytes) -> None:
        self._tail += data
        del self._tail[: max(0, len(self._tail) - self._size)]
        first, *others = data.split(b"\n")
        self._extend_line(first)
        for following in others:
            self._log_line()
            self._extend_line(following)

    def feed_eof(self) -> None:
        self._log_line()
        self._log_omitted_count()

    def _extend_line(self, piece: bytes) -> None:
        room = 4 * MAX_LOGGED_LINE_LENGTH - len(self._line)
        self._line += piece[: max(0, room)]

    def _log_line(self) -> None:
        line = _make_printable(bytes(self._line)).strip()
        self._line.clear()
        if not line:
            return
        if self._clock() - self._period_start > LOG_PERIOD_SECONDS:
            self._log_omitted_count()
            self._logged_count = 0
            self._period_start = self._clock()
        if self._logged_count >= MAX_LOGGED_LINES:
            self._omitted_count += 1
            return
        self._logged_count += 1
        logger.info(
            "%s: %s", self._name, line if len(line) <= MAX_LOGGED_LINE_LENGTH else f"{line[:MAX_LOGGED_LINE_LENGTH]}…"
        )

    def _log_omitted_count(self) -> None:
        if self._omitted_count:
            logger.info("%s: %d more lines", self._name, self._omitted_count)
            self._omitted_count = 0


def _make_printable(raw: bytes) -> str:
    """Decode a line and escape its control characters."""
    text = raw.decode("utf-8", "backslashreplace").rstrip("\r").replace("\t", "    ")
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
