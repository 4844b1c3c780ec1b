"""stdio: a child process that serves one JSON-RPC message per line.

The process leads its own session and process group. Closing the connection ends the whole group: stdin is closed, then
SIGTERM is sent, then SIGKILL. Windows has no process groups, so only the process itself is ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, Literal, TypeVar, cast

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from mcp_django.client.errors import ClientConnectionError
from mcp_django.client.transports.process_output import Lines, LineTooLong, Tail
from mcp_django.client.transports.streams import Reader, Streams, Writer, decoded, encoded, explained

if TYPE_CHECKING:
    from mcp_django.client.transports.targets import Stdio

T = TypeVar("T")

logger = logging.getLogger(__name__)

STDIN, STDOUT, STDERR = 0, 1, 2
LAST_WORDS: Final = 0.5
"""Seconds to drain the pipes of an ended process; its children may keep them open."""
GLANCE: Final = 0.02
"""Seconds between checks of a process group whose leader has ended.

The system sends no event for the end of its last process.
"""
KILL: Final = getattr(signal, "SIGKILL", signal.SIGTERM)
KILLED: Final = 2.0
"""Seconds for the system to end a killed process."""


class ServerEnded(ClientConnectionError):
    """The process ended, or could not be started.

    `exit_code` is as in `subprocess`: negative for a signal, None without a process. `stderr` is its last output to
    standard error. It is added to the traceback as a note and not to the message, because the message may leave this
    machine.
    """

    def __init__(self, message: str, *, exit_code: int | None = None, stderr: str = "") -> None:
        super().__init__(message)
        self.exit_code, self.stderr = exit_code, stderr
        if stderr:
            self.add_note(f"It last wrote to standard error:\n{stderr}")


@asynccontextmanager
async def open_stdio(target: Stdio) -> AsyncIterator[Streams]:
    """Start a process and open its streams.

    Raises ServerEnded if it cannot be started, or ends.
    """
    # A cancelled start would leave pipes open, and child processes running.
    starting = asyncio.create_task(_started(target))
    try:
        child = await _settled(starting)
        async with explained(child.why):
            yield Reader(child.receive), Writer(child.send)
    finally:
        if not starting.cancelled() and starting.exception() is None:
            await _settled(asyncio.create_task(starting.result().stop(target.stop_timeout)))


async def _started(target: Stdio) -> Child:
    loop = asyncio.get_running_loop()
    name = PurePath(target.command).name
    environment = {**get_default_environment(), **target.env}
    try:
        _, child = await loop.subprocess_exec(
            lambda: Child(target), target.command, *target.args, cwd=target.cwd, env=environment, start_new_session=True
        )
    except FileNotFoundError:
        if target.cwd is not None and not os.path.isdir(target.cwd):  # noqa: ASYNC240, PTH112  (once, and it failed)
            raise ServerEnded(f"{name} was not started: its cwd does not exist") from None
        raise ServerEnded(f"{name} was not started: no such command") from None
    except (OSError, ValueError) as problem:
        said = problem.strerror if isinstance(problem, OSError) else str(problem)
        raise ServerEnded(f"{name} was not started: {said}") from None

    return child


class Child(asyncio.SubprocessProtocol):
    """A server process and its pipes."""

    transport: asyncio.SubprocessTransport

    def __init__(self, target: Stdio) -> None:
        self.ended: ServerEnded | None = None
        self._name, self._limit = PurePath(target.command).name, target.max_message_size
        self._stdout = Lines(target.max_message_size, partial(self._flow, "pause"), partial(self._flow, "resume"))
        self._stderr = Tail(self._name, target.stderr_tail)
        self._open = {STDOUT, STDERR}
        self._silent, self._exited, self._writable = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._writable.set()
        self._deaf = self._stopping = False
        self._rubbish = 0

    # Callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if self._stopping and fd == STDOUT:
            return  # drained so that the process can end, and discarded
        (self._stdout if fd == STDOUT else self._stderr).feed(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        if fd == STDOUT:
            self._stdout.end()
        elif fd == STDERR:
            self._stderr.end()
        else:
            self._deaf = True
            self._writable.set()
        if not self._open:
            self._silent.set()

    def process_exited(self) -> None:
        self._exited.set()
        # Its child processes may keep the pipes open, but the server has ended.
        asyncio.get_running_loop().call_later(LAST_WORDS, self._hush)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _hush(self) -> None:
        self._silent.set()
        self._stdout.end()

    def _flow(self, way: Literal["pause", "resume"]) -> None:
        pipe = cast("asyncio.ReadTransport | None", self.transport.get_pipe_transport(STDOUT))
        if pipe is not None and not pipe.is_closing():
            pipe.pause_reading() if way == "pause" else pipe.resume_reading()

    # Methods for the message streams

    async def receive(self) -> SessionMessage:
        """Return the next message, skipping invalid lines. Raises ServerEnded."""
        while True:
            try:
                line = await self._stdout.take()
            except LineTooLong:
                self.ended = ServerEnded(f"{self._name} wrote a message of more than {self._limit} bytes")
                raise self.ended from None
            if line is None:
                self.ended = self.ended or await self._reason()
                raise self.ended from None
            try:
                return decoded(line)
            except ValueError:
                self._note_rubbish()

    async def send(self, message: SessionMessage) -> None:
        pipe = cast("asyncio.WriteTransport | None", self.transport.get_pipe_transport(STDIN))
        if self._deaf or pipe is None or pipe.is_closing():
            raise BrokenPipeError
        pipe.write(encoded(message).encode() + b"\n")
        await self._writable.wait()
        if self._deaf:
            raise BrokenPipeError

    async def why(self) -> ServerEnded | None:
        """Return the reason for the end of the connection, or None.

        The writer may notice the end before the reader.
        """
        if self.ended is None and (self._deaf or self._exited.is_set()):
            self.ended = await self._reason()
        return self.ended

    async def _reason(self) -> ServerEnded:
        """Build the error for the end of the output."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                await self._exited.wait()
                await self._silent.wait()
        code = self.transport.get_returncode()
        if code is None:
            pipe = "input" if self._deaf else "output"
            return ServerEnded(f"{self._name} closed its standard {pipe}", stderr=self._stderr.text)
        how = f"exit code {code}" if code >= 0 else f"signal {_signal_name(-code)}"
        return ServerEnded(f"{self._name} ended with {how}", exit_code=code, stderr=self._stderr.text)

    def _note_rubbish(self) -> None:
        """Log the first invalid line, without its content, which may be confidential."""
        self._rubbish += 1
        if self._rubbish == 1:
            logger.warning("Ignored invalid lines on standard output of %s", self._name)

    async def stop(self, patience: float) -> None:
        """End the process and its children in bounded time.

        They are killed if this is cancelled at the end of the loop.
        """
        self._stopping = True
        self._flow("resume")
        try:
            await self._end(patience)
        except asyncio.CancelledError:
            self._signal(KILL)
            await self._exits(KILLED)
            raise
        finally:
            self.transport.close()

    async def _end(self, patience: float) -> None:
        stdin = self.transport.get_pipe_transport(STDIN)
        if stdin is not None:
            stdin.close()  # buffered output is still written
        await self._exits(patience)
        self._signal(signal.SIGTERM)
        if not (await self._exits(patience) and await self._group_gone(patience)):
            self._signal(KILL)
            if not await self._exits(KILLED):
                logger.warning("Process cannot be killed: %s (pid %d)", self._name, self.transport.get_pid())

    async def _exits(self, patience: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._exited.wait()
        return self._exited.is_set()

    async def _group_gone(self, patience: float) -> bool:
        give_up = asyncio.get_running_loop().time() + patience
        while self._signal(0):
            if asyncio.get_running_loop().time() > give_up:
                return False
            await asyncio.sleep(GLANCE)
        return True

    def _signal(self, number: int) -> bool:
        """Send a signal to the group (on Windows, to the process).

        Returns True if it existed.
        """
        if os.name == "nt":
            if not self._exited.is_set() and number:
                self.transport.terminate()
            return not self._exited.is_set()
        try:
            os.killpg(self.transport.get_pid(), number)
        except ProcessLookupError:
            return False
        except PermissionError:  # the remaining processes belong to another user
            return False
        return True


async def _settled(task: asyncio.Task[T]) -> T:
    """Wait for a task to finish despite cancellation, then re-raise the cancellation."""
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # mark the exception as retrieved
        raise cancelled
    return task.result()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
