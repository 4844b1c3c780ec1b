"""stdio transport: one client, with messages as lines (basic/transports).

The process ends in one of two ways. If the client closes stdin, running calls have `SHUTDOWN_GRACE` to finish. If the
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

from mcp_django.runtime.shutdown import Lifecycle
from mcp_django.server.ports import Principal
from mcp_django.server.server import Server
from mcp_django.transports.connection.connection import Duplex
from mcp_django.transports.connection.inbound_queue import ReadAhead
from mcp_django.transports.connection.options import Ending, Terms
from mcp_django.transports.connection.registry import Duplexes
from mcp_django.transports.credentials import Credential
from mcp_django.transports.stdio.framing import LineReader, LineWriter
from mcp_django.transports.stdio.redirect import Streams

SILENCE = 60.0
"""Seconds that one read of a silent connection waits."""
LAST_MOMENTS = 3.0
"""Seconds until a process exits after a signal, even if threads still run."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)

Identify = Callable[[], Awaitable[tuple[Principal, Credential | None]]]


class NotStarted(Exception):
    """The process failed to start serving; the text gives the reason."""


class Stdio:
    """The connection of a client on two descriptors, which are closed at the end."""

    def __init__(self, duplexes: Duplexes, streams: Streams) -> None:
        self._duplexes, self._limits = duplexes, duplexes.limits
        self._streams = streams
        self.at_end = asyncio.Event()
        """Event that is set when the client has closed stdin."""

    async def serve(self, principal: Principal, credential: Credential | None = None) -> Ending:
        """Serve until the connection ends, and return the reason.

        After the client has closed stdin, running calls are awaited; cancel this coroutine to stop them. Raises
        Overloaded, and leaves the descriptors open in that case.
        """
        duplex = self._duplexes.open(principal, Terms(credential=credential))
        reader, writer = LineReader(self._streams.source, self._limits.body), LineWriter(self._streams.sink)
        ahead = ReadAhead(duplex, self._limits.body)
        receiving = asyncio.create_task(self._receive(duplex, reader, ahead))
        try:
            await self._send(duplex, writer)
        finally:
            receiving.cancel()
            ahead.stop()
            reader.close()
            writer.close()
            await duplex.close()
        return duplex.ending or Ending.GONE

    async def _receive(self, duplex: Duplex, reader: LineReader, ahead: ReadAhead) -> None:
        try:
            while (lines := await reader.read()) is not None:
                for line in lines:
                    await ahead.take(line)
        finally:
            if duplex.session is not None:
                duplex.session.hang_up()
            duplex.end(Ending.CLOSING)
            self.at_end.set()

    async def _send(self, duplex: Duplex, writer: LineWriter) -> None:
        while (messages := await duplex.read(SILENCE)) is not None:
            if not messages:
                continue
            try:
                async with asyncio.timeout(self._limits.unsent_wait):
                    await writer.write(messages)
            except TimeoutError:
                duplex.end(Ending.BEHIND)
                return
            except OSError:
                duplex.end(Ending.GONE)
                return


async def serve_process(
    server: Server, duplexes: Duplexes, streams: Streams, *, lifecycle: Lifecycle, identify: Identify
) -> Ending | signal.Signals:
    """Serve the client of this process until the client or the process ends.

    Returns the close reason or the received signal. `identify` authenticates the client. Raises its exceptions, and
    ServerStartError when a lifespan fails.
    """
    with _signals() as signalled:
        try:
            await lifecycle.open([server])
        except RuntimeError as problem:
            raise NotStarted(str(problem)) from problem

        serving: asyncio.Task[Ending] | None = None
        try:
            principal, credential = await identify()
            client = Stdio(duplexes, streams)
            serving = asyncio.create_task(client.serve(principal, credential))
            silence = asyncio.create_task(client.at_end.wait())
            await _first(serving, silence, signalled)
            silence.cancel()
        finally:
            # The grace period of running calls starts here.
            closing = asyncio.create_task(lifecycle.close())
            await _first(closing, signalled)
            if serving is not None:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)
            await closing
        return signalled.result() if signalled.done() else serving.result()


async def _first(*futures: "asyncio.Future[Any]") -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


@contextmanager
def _signals() -> Iterator["asyncio.Future[signal.Signals]"]:
    """Handle SIGTERM and SIGINT: the first sets the future, the second exits at once."""
    loop = asyncio.get_running_loop()
    signalled: asyncio.Future[signal.Signals] = loop.create_future()
    told = False

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal told
        if told:
            os._exit(128 + number)
        told = True
        leave_within(LAST_MOMENTS, 128 + number)
        loop.call_soon_threadsafe(signalled.set_result, signal.Signals(number))

    if threading.current_thread() is not threading.main_thread():
        yield signalled
        return
    before = {number: signal.signal(number, hear) for number in SIGNALS}
    try:
        yield signalled
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave_within(seconds: float, code: int) -> None:
    """Exit the process after `seconds`, even if threads of the project still run."""
    timer = threading.Timer(seconds, os._exit, (code,))
    timer.daemon = True
    timer.start()
