"""Output of a child process: bounded lines, and the errors that carry the tail of stderr."""

import asyncio
from collections.abc import Callable
from typing import Final

from mcp_django.aio.clock import monotonic
from mcp_django.client.errors import ClientConnectionError
from mcp_django.protocol.display_text import escape_invisible, truncate
from mcp_django.protocol.log_text import get_logger

OUTPUT_BUFFER_BYTES: Final = 128 * 1024
"""Maximum limit of the reader of stdout, in bytes.

Reading from the process pauses after twice as many unread bytes.
"""
MAX_LOGGED_LINE_LENGTH: Final = 1000
"""Maximum length of a logged line, in characters."""
MAX_LOGGED_LINES: Final = 100
"""Maximum number of stderr lines logged in LOG_PERIOD_SECONDS.

Further lines are only counted.
"""
LOG_PERIOD_SECONDS: Final = 10.0

logger = get_logger("mcp_django.client.stderr")


class LineTooLong(Exception):
    """A line exceeds the maximum size of a message."""


class ServerEnded(ClientConnectionError):
    """The process ended, or could not be started.

    `exit_code` is as in `subprocess`: negative for a signal, None without a process. `stderr` is its last output to
    standard error. It is added to the traceback as a note and not to the message, because the message may leave this
    machine.
    """

    def __init__(self, message: str, *, exit_code: int | None = None, stderr: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.stderr = stderr
        if stderr:
            self.add_note(f"It last wrote to standard error:\n{stderr}")


class ServerUnresponsive(ClientConnectionError):
    """The process runs, and did not answer in time; `stderr` is as in `ServerEnded`."""

    def __init__(self, message: str, *, stderr: str = "") -> None:
        super().__init__(message)
        self.stderr = stderr


async def read_line(output: asyncio.StreamReader, max_bytes: int) -> bytes | None:
    """Return the next line that is not blank; None at the end.

    Text after the last line break is a line. Raises LineTooLong.
    """
    line, is_at_end = bytearray(), False
    while not is_at_end:
        try:
            line += await output.readuntil()
        except asyncio.LimitOverrunError as overrun:
            line += await output.readexactly(overrun.consumed)
        except asyncio.IncompleteReadError as ended:
            line += ended.partial
            is_at_end = True
        is_complete = is_at_end or line.endswith(b"\n")
        if len(line) > max_bytes + line.endswith(b"\n"):
            raise LineTooLong
        if is_complete:
            text = bytes(line).strip()
            if text:
                return text
            line.clear()
    return None


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
        logger.info("%s: %s", self._name, truncate(line, MAX_LOGGED_LINE_LENGTH))

    def _log_omitted_count(self) -> None:
        if self._omitted_count:
            logger.info("%s: %d more lines", self._name, self._omitted_count)
            self._omitted_count = 0


def _make_printable(raw: bytes) -> str:
    """Decode a line and escape its control characters."""
    text = raw.decode("utf-8", "backslashreplace").rstrip("\r").replace("\t", "    ")
    return escape_invisible(text)
