"""Line framing on file descriptors: pipes, sockets, files, terminals, /dev/null.

Each descriptor has its own thread, because an event loop can wait only for pipes and sockets, and on Windows for
neither. The threads are daemons and block only in the descriptor, so they never delay the exit of the process.
"""

import asyncio
import os
import select
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Generic, TypeVar

CHUNK = 64 * 1024
"""Maximum bytes of one read."""
BOM = b"\xef\xbb\xbf"

T = TypeVar("T")


class Lines:
    """Splits chunks of bytes into lines.

    Lines end in LF or CRLF. Blank lines and a byte order mark at the start are ignored. A line of more than
    `max_line_bytes` bytes is returned at once as its first `max_line_bytes` + 1 bytes, so that the caller can detect
    it. The rest of the line is skipped, and memory is bounded by that size.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._begun = bytearray()
        self._skipping = False
        self._first = True

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes."""
        *ended, begun = data.split(b"\n")
        lines: list[bytes] = []
        for part in ended:
            self._add(part, lines)
            self._end(lines)
        self._add(begun, lines)
        return lines

    def finish(self) -> list[bytes]:
        """Return the last line if it has no line break."""
        lines: list[bytes] = []
        self._end(lines)
        return lines

    def _add(self, part: bytes, lines: list[bytes]) -> None:
        if self._skipping:
            return
        # The byte order mark does not count, and the last byte may be the CR.
        room = self._most + 2 + (len(BOM) if self._first else 0)
        self._begun += part[: max(0, room - len(self._begun))]
        if len(self._begun) >= room:
            self._check_mark()
            if len(self._begun) > self._most + 1:
                lines.append(bytes(self._begun[: self._most + 1]))
                self._begun.clear()
                self._skipping = True

    def _end(self, lines: list[bytes]) -> None:
        self._check_mark()
        line = bytes(self._begun).removesuffix(b"\r")
        if line and not line.isspace():
            lines.append(line)
        self._begun.clear()
        self._skipping = False

    def _check_mark(self) -> None:
        if self._first:
            self._first = False
            if self._begun.startswith(BOM):
                del self._begun[: len(BOM)]


class LineReader:
    """Lines received on a descriptor."""

    def __init__(self, source: int, most: int) -> None:
        self._source, self._lines = source, Lines(most)
        self._hand: Hand[list[bytes]] = Hand("mcp-stdio-read")
        self._ended = False

    async def read(self) -> list[bytes] | None:
        """Return at least one line; None at the end or after an error of the descriptor."""
        return await self._hand.do(self._read) or None

    def close(self) -> None:
        """Stop reading, and close the descriptor after the running read.

        That read returns when data arrives or the other side closes.
        """
        self._hand.finish(partial(os.close, self._source))

    def _read(self) -> list[bytes]:
        while not self._ended:
            data = self._chunk()
            lines = self._lines.feed(data) if data else self._lines.finish()
            self._ended = not data
            if lines:
                return lines
        return []

    def _chunk(self) -> bytes:
        while True:
            try:
                return os.read(self._source, CHUNK)
            except BlockingIOError:  # Another process that shares the descriptor has made it non-blocking.
                select.select([self._source], [], [])
            except OSError:  # For example a terminal that was hung up.
                return b""


class LineWriter:
    """Lines sent to a descriptor."""

    def __init__(self, sink: int) -> None:
        self._sink = sink
        self._hand: Hand[None] = Hand("mcp-stdio-write")

    async def write(self, messages: Sequence[bytes]) -> None:
        """Write messages without line breaks, and wait until they are written.

        Raises OSError when the reader has closed its side.
        """
        await self._hand.do(partial(self._write, b"".join([b"%b\n" % message for message in messages])))

    def close(self) -> None:
        """Close the descriptor after the running write."""
        self._hand.finish(partial(os.close, self._sink))

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._sink, rest) :]
            except BlockingIOError:
                select.select([], [self._sink], [])


class Hand(Generic[T]):
    """A thread that runs functions one by one for an event loop."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[_Job[T]] = SimpleQueue()
        threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True).start()

    async def do(self, work: Callable[[], T]) -> T:
        """Return the result of `function` or raise its exception.

        If this coroutine is cancelled, the thread finishes the function and discards the result.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((work, done))
        return await done

    def finish(self, last: Callable[[], object]) -> None:
        """Stop the thread after the queued functions, then call `last`."""
        self._jobs.put((last, None))


_Job = tuple[Callable[[], T], "asyncio.Future[T]"] | tuple[Callable[[], object], None]


def _serve(jobs: "SimpleQueue[_Job[T]]") -> None:
    while (job := jobs.get())[1] is not None:
        work, done = job
        try:
            settle = partial(_succeed, done, work())
        except Exception as problem:
            settle = partial(_fail, done, problem)
        try:
            done.get_loop().call_soon_threadsafe(settle)
        except RuntimeError:
            pass  # The loop has been closed.
        # Release the references while the thread waits.
        del job, work, done, settle
    job[0]()


def _succeed(done: "asyncio.Future[T]", result: T) -> None:
    if not done.done():
        done.set_result(result)


def _fail(done: "asyncio.Future[T]", problem: Exception) -> None:
    if not done.done():
        done.set_exception(problem)
