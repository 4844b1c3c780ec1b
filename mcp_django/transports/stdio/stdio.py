"""stdio transport: one client, with messages as lines (basic/transports).

The process ends in one of two ways. If the client closes stdin, running calls have `STDIO_GRACE` to finish. If the
client closes stdout, or the process gets SIGTERM or SIGINT, calls are cancelled at once. In both cases the session row
is ended, lifespans exit and threads stop. Clients kill the process after about two seconds (`mcp/client/stdio.py` of
the official SDK), so nothing here takes longer than a call.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from mcp_django.server.calls.call import PIPE
from mcp_django.server.ports import Principal
from mcp_django.transports.connection.connection import DuplexConnection, open_connection
from mcp_django.transports.connection.options import CloseReason, ConnectionOptions
from mcp_django.transports.connection.outbound import is_progress, split_after_progress
from mcp_django.transports.credentials import Credential
from mcp_django.transports.services import TransportServices
from mcp_django.transports.stdio.framing import LineReader, LineWriter
from mcp_django.transports.stdio.redirect import StandardStreams

READ_TIMEOUT_SECONDS = 60.0
"""Seconds that one read of a silent connection waits."""
EXIT_TIMEOUT_SECONDS = 3.0
"""Seconds until a process exits after a signal, even if threads still run."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)

IdentifyClient = Callable[[], Awaitable[tuple[Principal, Credential | None]]]


class ServerStartError(Exception):
    """The process failed to start serving; the text gives the reason."""


class StdioTransport:
    """The connection of a client on two descriptors, which are closed at the end."""

    def __init__(self, services: TransportServices, streams: StandardStreams) -> None:
        self._services = services
        self._limits = services.limits
        self._streams = streams
        self.input_closed = asyncio.Event()
        """Event that is set when the client has closed stdin."""

    async def serve(self, principal: Principal, credential: Credential | None = None) -> CloseReason:
        """Serve until the connection ends, and return the reason.

        After the client has closed stdin, running calls are awaited; cancel this coroutine to stop them. Raises
        Overloaded, and leaves the descriptors open in that case.
        """
        connection = open_connection(self._services, principal, ConnectionOptions(credential=credential, network=PIPE))
        reader = LineReader(self._streams.stdin, self._limits.body)
        writer = LineWriter(self._streams.stdout)
        receiving = asyncio.create_task(self._receive(connection, reader))
        try:
            await self._send(connection, writer)
        finally:
            receiving.cancel()
            reader.close()
            writer.close()
            await connection.close()
        return connection.close_reason or CloseReason.CLIENT_GONE

    async def _receive(self, connection: DuplexConnection, reader: LineReader) -> None:
        try:
            while (lines := await reader.read()) is not None:
                for line in lines:
                    await connection.inbound_queue.put(line)
        finally:
            if connection.session is not None:
                connection.session.close_input()
            connection.end(CloseReason.SHUTDOWN)
            self.input_closed.set()

    async def _send(self, connection: DuplexConnection, writer: LineWriter) -> None:
        follows_progress = False
        while (messages := await connection.read(READ_TIMEOUT_SECONDS)) is not None:
            if not messages:
                continue
            try:
                async with asyncio.timeout(self._limits.send_timeout):
                    for group in split_after_progress(messages):
                        if follows_progress and not is_progress(group[0]):
                            await writer.wait_until_read()
                        await writer.write(group)
                        follows_progress = is_progress(group[-1])
            except TimeoutError:
                connection.end(CloseReason.SLOW_CLIENT)
                return
            except OSError:
                connection.end(CloseReason.CLIENT_GONE)
                return


async def serve_process(
    services: TransportServices, streams: StandardStreams, *, identify: IdentifyClient
) -> CloseReason | signal.Signals:
    """Serve the client of this process until the client or the process ends.

    Returns the close reason or the received signal. `identify` authenticates the client. Raises its exceptions, and
    ServerStartError when a lifespan fails.
    """
    with _handle_signals() as received_signal:
        try:
            await services.lifecycle.startup([services.server])
        except RuntimeError as problem:
            raise ServerStartError(str(problem)) from problem

        serving: asyncio.Task[CloseReason] | None = None
        try:
            principal, credential = await identify()
            client = StdioTransport(services, streams)
            serving = asyncio.create_task(client.serve(principal, credential))
            input_closed = asyncio.create_task(client.input_closed.wait())
            await _wait_for_first(serving, input_closed, received_signal)
            input_closed.cancel()
        finally:
            # The grace period of running calls starts here.
            closing = asyncio.create_task(services.lifecycle.shutdown(services.limits.stdio_grace))
            await _wait_for_first(closing, received_signal)
            if serving is not None:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)
            await closing
        return received_signal.result() if received_signal.done() else serving.result()


async def _wait_for_first(*futures: "asyncio.Future[Any]") -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


@contextmanager
def _handle_signals() -> Iterator["asyncio.Future[signal.Signals]"]:
    """Handle SIGTERM and SIGINT: the first sets the future, the second exits at once."""
    loop = asyncio.get_running_loop()
    received_signal: asyncio.Future[signal.Signals] = loop.create_future()
    is_signalled = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal is_signalled
        if is_signalled:
            os._exit(128 + number)
        is_signalled = True
        exit_after(EXIT_TIMEOUT_SECONDS, 128 + number)
        loop.call_soon_threadsafe(received_signal.set_result, signal.Signals(number))

    if threading.current_thread() is not threading.main_thread():
        yield received_signal
        return
    previous_handlers = {number: signal.signal(number, on_signal) for number in SIGNALS}
    try:
        yield received_signal
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


def exit_after(seconds: float, code: int) -> None:
    """Exit the process after `seconds`, even if threads of the project still run."""
    timer = threading.Timer(seconds, os._exit, (code,))
    timer.daemon = True
    timer.start()
