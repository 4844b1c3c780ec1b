"""stdio: a child process that serves one JSON-RPC message per line.

The process leads its own session and process group. Closing the connection ends the whole group: stdin is closed, then
SIGTERM is sent, then SIGKILL. Windows has no process groups, so only the process itself is ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, TypeVar, cast

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from mcp_django.aio.tasks import wait_for_event
from mcp_django.client.errors import ClientConnectionError
from mcp_django.client.transports.process_output import (
    OUTPUT_BUFFER_BYTES,
    LineTooLong,
    ServerEnded,
    ServerUnresponsive,
    StderrTail,
    read_line,
)
from mcp_django.client.transports.streams import MessageConnection, Streams, decode_message, encode_message
from mcp_django.protocol.log_text import get_logger

if TYPE_CHECKING:
    from mcp_django.client.transports.targets import Stdio

T = TypeVar("T")

logger = get_logger(__name__)

STDIN, STDOUT, STDERR = 0, 1, 2
DRAIN_TIMEOUT_SECONDS: Final = 0.5
"""Seconds to drain the pipes of an ended process; its children may keep them open."""
GROUP_CHECK_INTERVAL_SECONDS: Final = 0.02
"""Seconds between checks of a process group whose leader has ended.

The system sends no event for the end of its last process.
"""
KILL_SIGNAL: Final = getattr(signal, "SIGKILL", signal.SIGTERM)
KILL_TIMEOUT_SECONDS: Final = 2.0
"""Seconds for the system to end a killed process."""


@asynccontextmanager
async def open_stdio(target: Stdio) -> AsyncIterator[Streams]:
    """Start a process and open its streams.

    Raises ServerEnded if it cannot be started, or ends, and ServerUnresponsive for a timeout of the caller.
    """
    # A cancelled start would leave pipes open, and child processes running.
    starting = asyncio.create_task(_start_process(target))
    try:
        process = await _await_to_completion(starting)
        async with process.open_streams() as streams:
            try:
                yield streams
            except* TimeoutError:  # in a group, after the end of the session's tasks
                raise process.build_unresponsive_error() from None
    finally:
        if not starting.cancelled() and starting.exception() is None:
            await _await_to_completion(asyncio.create_task(starting.result().stop(target.stop_timeout)))


async def _start_process(target: Stdio) -> ServerProcess:
    loop = asyncio.get_running_loop()
    name = PurePath(target.command).name
    environment = {**get_default_environment(), **target.env}
    try:
        _, child = await loop.subprocess_exec(
            lambda: ServerProcess(target),
            target.command,
            *target.args,
            cwd=target.cwd,
            env=environment,
            start_new_session=True,
        )
    except FileNotFoundError:
        if target.cwd is not None and not os.path.isdir(target.cwd):  # noqa: ASYNC240, PTH112  (once, and it failed)
            raise ServerEnded(f"{name} was not started: its cwd does not exist") from None
        raise ServerEnded(f"{name} was not started: no such command") from None
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else str(problem)
        raise ServerEnded(f"{name} was not started: {reason}") from None

    return child


class ServerProcess(asyncio.SubprocessProtocol, MessageConnection):
    """A server process and its pipes."""

    transport: asyncio.SubprocessTransport

    def __init__(self, target: Stdio) -> None:
        self._name = PurePath(target.command).name
        self._limit = target.max_message_size
        self._stdout = asyncio.StreamReader(min(OUTPUT_BUFFER_BYTES, target.max_message_size))
        self._stderr = StderrTail(self._name, target.stderr_tail)
        self._open_pipes = {STDOUT, STDERR}
        self._output_closed = asyncio.Event()
        self._exited = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._is_stdin_closed = self._is_stopping = False
        self._invalid_line_count = 0

    # Callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.SubprocessTransport", transport)
        self._stdout.set_transport(cast("asyncio.BaseTransport", self.transport.get_pipe_transport(STDOUT)))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == STDERR:
            self._stderr.feed(data)
        elif not self._is_stopping and not self._output_closed.is_set():
            self._stdout.feed_data(data)  # Otherwise drained so that the process can end, and discarded.

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open_pipes.discard(fd)
        if fd == STDOUT:
            self._stdout.feed_eof()
        elif fd == STDERR:
            self._stderr.feed_eof()
        else:
            self._is_stdin_closed = True
            self._writable.set()
        if not self._open_pipes:
            self._output_closed.set()

    def process_exited(self) -> None:
        self._exited.set()
        # Its child processes may keep the pipes open, but the server has ended.
        asyncio.get_running_loop().call_later(DRAIN_TIMEOUT_SECONDS, self._close_output)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _close_output(self) -> None:
        self._output_closed.set()
        self._stdout.feed_eof()

    # Methods for the message streams

    async def receive(self) -> SessionMessage:
        """Return the next message, skipping invalid lines. Raises ServerEnded."""
        while True:
            try:
                line = await read_line(self._stdout, self._limit)
            except LineTooLong:
                self.error = ServerEnded(f"{self._name} wrote a message of more than {self._limit} bytes")
                raise self.error from None
            if line is None:
                self.error = self.error or await self._build_ended_error()
                raise self.error from None
            try:
                return decode_message(line)
            except ValueError:
                self._count_invalid_line()

    async def send(self, message: SessionMessage) -> None:
        pipe = cast("asyncio.WriteTransport | None", self.transport.get_pipe_transport(STDIN))
        if self._is_stdin_closed or pipe is None or pipe.is_closing():
            raise BrokenPipeError
        pipe.write(encode_message(message).encode() + b"\n")
        await self._writable.wait()
        if self._is_stdin_closed:
            raise BrokenPipeError

    async def get_close_reason(self) -> ClientConnectionError | None:
        """Return the reason for the end of the connection, or None.

        The writer may notice the end before the reader.
        """
        if self.error is None and (self._is_stdin_closed or self._exited.is_set()):
            self.error = await self._build_ended_error()
        return self.error

    async def _build_ended_error(self) -> ServerEnded:
        """Build the error for the end of the output."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_TIMEOUT_SECONDS):
                await self._exited.wait()
                await self._output_closed.wait()
        code = self.transport.get_returncode()
        if code is None:
            pipe = "input" if self._is_stdin_closed else "output"
            return ServerEnded(f"{self._name} closed its standard {pipe}", stderr=self._stderr.text)
        how = f"exit code {code}" if code >= 0 else f"signal {_get_signal_name(-code)}"
        return ServerEnded(f"{self._name} ended with {how}", exit_code=code, stderr=self._stderr.text)

    def build_unresponsive_error(self) -> ServerUnresponsive:
        """Build the error for a process that did not answer in time."""
        return ServerUnresponsive(f"{self._name} was started and did not answer in time", stderr=self._stderr.text)

    def _count_invalid_line(self) -> None:
        """Log the first invalid line, without its content, which may be confidential."""
        self._invalid_line_count += 1
        if self._invalid_line_count == 1:
            logger.warning("Ignored invalid lines on standard output of %s", self._name)

    async def stop(self, timeout: float) -> None:
        """End the process and its children in bounded time.

        They are killed if this is cancelled at the end of the loop.
        """
        self._is_stopping = True
        stdout = cast("asyncio.ReadTransport | None", self.transport.get_pipe_transport(STDOUT))
        if stdout is not None and not stdout.is_closing():
            stdout.resume_reading()
        try:
            await self._terminate(timeout)
        except asyncio.CancelledError:
            self._signal(KILL_SIGNAL)
            await wait_for_event(self._exited, KILL_TIMEOUT_SECONDS)
            raise
        finally:
            self.transport.close()

    async def _terminate(self, timeout: float) -> None:
        stdin = self.transport.get_pipe_transport(STDIN)
        if stdin is not None:
            stdin.close()  # buffered output is still written
        await wait_for_event(self._exited, timeout)
        self._signal(signal.SIGTERM)
        if not (await wait_for_event(self._exited, timeout) and await self._wait_for_group_exit(timeout)):
            self._signal(KILL_SIGNAL)
            if not await wait_for_event(self._exited, KILL_TIMEOUT_SECONDS):
                logger.warning("Process cannot be killed: %s (pid %d)", self._name, self.transport.get_pid())

    async def _wait_for_group_exit(self, timeout: float) -> bool:
        deadline = asyncio.get_running_loop().time() + timeout
        while self._signal(0):
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(GROUP_CHECK_INTERVAL_SECONDS)
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


async def _await_to_completion(task: asyncio.Task[T]) -> T:
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


def _get_signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
