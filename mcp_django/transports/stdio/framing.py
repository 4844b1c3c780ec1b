"""Line framing on file descriptors: pipes, sockets, files, terminals, /dev/null.

Each descriptor has its own thread, because an event loop can wait only for pipes and sockets, and on Windows for
neither. The threads are daemons and block only in the descriptor, so they never delay the exit of the process.
"""

import asyncio
import os
import select
import stat
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

if sys.platform == "linux":
    import fcntl
    import termios

READ_CHUNK_BYTES = 64 * 1024
"""Maximum bytes of one read."""
BOM = b"\xef\xbb\xbf"

MAX_READ_WAIT_SECONDS = 0.05
"""Maximum seconds that a message waits until the reader has read the messages before it."""
UNKNOWN_READ_SECONDS = 0.005
"""Seconds that it waits if the system does not report the number of unread bytes."""

T = TypeVar("T")


class LineSplitter:
    """Splits chunks of bytes into lines.

    Lines end in LF or CRLF. Blank lines and a byte order mark at the start are ignored. A line of more than
    `max_line_bytes` bytes is returned at once as its first `max_line_bytes` + 1 bytes, so that the caller can detect
    it. The rest of the line is skipped, and memory is bounded by that size.
    """

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._partial_line = bytearray()
        self._is_skipping = False
        self._is_at_start = True

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes."""
        *parts, rest = data.split(b"\n")
        lines: list[bytes] = []
        for part in parts:
            self._add(part, lines)
            self._end_line(lines)
        self._add(rest, lines)
        return lines

    def finish(self) -> list[bytes]:
        """Return the last line if it has no line break."""
        lines: list[bytes] = []
        self._end_line(lines)
        return lines

    def _add(self, part: bytes, lines: list[bytes]) -> None:
        if self._is_skipping:
            return
        # The byte order mark does not count, and the last byte may be the CR.
        max_bytes = self._max_line_bytes + 2 + (len(BOM) if self._is_at_start else 0)
        self._partial_line += part[: max(0, max_bytes - len(self._partial_line))]
        if len(self._partial_line) >= max_bytes:
            self._strip_byte_order_mark()
            if len(self._partial_line) > self._max_line_bytes + 1:
                lines.append(bytes(self._partial_line[: self._max_line_bytes + 1]))
                self._partial_line.clear()
                self._is_skipping = True

    def _end_line(self, lines: list[bytes]) -> None:
        self._strip_byte_order_mark()
        line = bytes(self._partial_line).removesuffix(b"\r")
        if line and not line.isspace():
            lines.append(line)
        self._partial_line.clear()
        self._is_skipping = False

    def _strip_byte_order_mark(self) -> None:
        if self._is_at_start:
            self._is_at_start = False
            if self._partial_line.startswith(BOM):
                del self._partial_line[: len(BOM)]


class LineReader:
    """Lines received on a descriptor."""

    def __init__(self, source: int, max_line_bytes: int) -> None:
        self._source = source
        self._lines = LineSplitter(max_line_bytes)
        self._thread = WorkerThread("mcp-stdio-read")
        self._is_at_end = False

    async def read(self) -> list[bytes] | None:
        """Return at least one line; None at the end or after an error of the descriptor."""
        return await self._thread.run(self._read) or None

    def close(self) -> None:
        """Stop reading, and close the descriptor after the running read.

        That read returns when data arrives or the other side closes.
        """
        self._thread.stop(partial(os.close, self._source))

    def _read(self) -> list[bytes]:
        while not self._is_at_end:
            data = self._read_chunk()
            lines = self._lines.feed(data) if data else self._lines.finish()
            self._is_at_end = not data
            if lines:
                return lines
        return []

    def _read_chunk(self) -> bytes:
        while True:
            try:
                return os.read(self._source, READ_CHUNK_BYTES)
            except BlockingIOError:  # Another process that shares the descriptor has made it non-blocking.
                select.select([self._source], [], [])
            except OSError:  # For example a terminal that was hung up.
                return b""


class LineWriter:
    """Lines sent to a descriptor."""

    def __init__(self, sink: int) -> None:
        self._sink = sink
        self._thread = WorkerThread("mcp-stdio-write")

    async def write(self, messages: Sequence[bytes]) -> None:
        """Write messages without line breaks, and wait until they are written.

        Raises OSError when the reader has closed its side.
        """
        await self._thread.run(partial(self._write, b"".join([b"%b\n" % message for message in messages])))

    async def wait_until_read(self) -> None:
        """Wait until the reader has read all written messages, for `MAX_READ_WAIT_SECONDS` at most."""
        await self._thread.run(self._wait_until_read)

    def _wait_until_read(self) -> None:
        deadline, pause = time.monotonic() + MAX_READ_WAIT_SECONDS, 0.0001
        while (unread := _count_unread_bytes(self._sink)) != 0 and time.monotonic() < deadline:
            time.sleep(UNKNOWN_READ_SECONDS if unread is None else pause)
            if unread is None:
                return
            pause = min(2 * pause, 0.002)

    def close(self) -> None:
        """Close the descriptor after the running write."""
        self._thread.stop(partial(os.close, self._sink))

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._sink, rest) :]
            except BlockingIOError:
                select.select([], [self._sink], [])


def _count_unread_bytes(sink: int) -> int | None:
    """Return the number of bytes in a pipe or socket that its reader has not read.

    Returns None if the system does not report it. Node starts programs with Unix sockets as their streams.
    Files and terminals have no reader to wait for.
    """
    mode = os.fstat(sink).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return 0
    if sys.platform != "linux":
        return None
    request = termios.FIONREAD if stat.S_ISFIFO(mode) else termios.TIOCOUTQ
    try:
        return int.from_bytes(fcntl.ioctl(sink, request, bytes(4)), sys.byteorder)
    except OSError:
        return None


class WorkerThread:
    """A thread that runs functions one by one for an event loop."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        threading.Thread(target=_run_jobs, args=(self._jobs,), name=name, daemon=True).start()

    async def run(self, function: Callable[[], T]) -> T:
        """Return the result of `function` or raise its exception.

        If this coroutine is cancelled, the thread finishes the function and discards the result.
        """
        future: Future[T] = Future()
        self._jobs.put((function, future))
        return await asyncio.wrap_future(future)

    def stop(self, last: Callable[[], object]) -> None:
        """Stop the thread after the queued functions, then call `last`."""
        self._jobs.put((last, None))


_Job = tuple[Callable[[], Any], "Future[Any]"] | tuple[Callable[[], object], None]


def _run_jobs(jobs: "SimpleQueue[_Job]") -> None:
    while (job := jobs.get())[1] is not None:
        work, future = job
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(work())
            except Exception as problem:
                future.set_exception(problem)
        # Release the references while the thread waits.
        del job, work, future
    job[0]()
