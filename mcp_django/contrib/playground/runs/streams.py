"""Response that shows a run while it runs: lines of JSON, under ASGI and WSGI.

A client that disconnects cancels the run. Under ASGI, the server reports it at once. Under WSGI, the server notices it
when it fails to write, so an empty line is written at short intervals.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from asgiref.sync import async_to_sync
from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpRequest, StreamingHttpResponse

from mcp_django.extensions.calls import get_logger, jsonrpc
from mcp_django.extensions.event_loop import call_threadsafe, start_task
from mcp_django.transports.http.sse_body import SSEBody, SSESource

logger = get_logger("mcp_django.playground")

MEDIA_TYPE = "application/x-ndjson"
IDLE_SECONDS = 1.0
"""Seconds after which an empty line is written."""
MAX_WAITING_LINES = 100
"""Maximum lines that wait for the browser; the run then waits, too."""
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Produce = Callable[[Send], Awaitable[None]]
"""Function that runs, and sends its events."""


class RunSource(SSESource):
    """Lines of a run, which starts with the first read."""

    def __init__(self, produce: Produce) -> None:
        self._produce = produce
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_WAITING_LINES)
        self._running: asyncio.Task[None] | None = None

    async def read(self, timeout: float) -> bytes | None:
        """Return the next line, an empty one after `timeout`, or None at the end."""
        if self._running is None:
            self._running = start_task(self._run())
        try:
            async with asyncio.timeout(timeout):
                return await self._lines.get()
        except TimeoutError:
            return b"\n"

    async def _run(self) -> None:
        try:
            await self._produce(self._send)
        except Exception:
            logger.exception("A run of the playground failed")
        await self._lines.put(None)

    async def _send(self, event: Mapping[str, Any]) -> None:
        await self._lines.put(jsonrpc.dumps(event) + b"\n")

    def close(self) -> None:
        """Cancel the run if it still runs."""
        super().close()
        if self._running is not None:
            self._running.cancel()

    async def wait_closed(self) -> None:
        """Wait until the run has ended, also a cancelled one."""
        if self._running is not None:
            await asyncio.wait([self._running])


class AsyncLines:
    """Lines of a source, on the event loop of the server."""

    def __init__(self, source: RunSource) -> None:
        self._source = source
        self._body: SSEBody | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._body is None:  # Django calls `aiter` in the thread of the view, without a loop.
            self._body = SSEBody(self._source, IDLE_SECONDS)
        return await anext(self._body)

    def close(self) -> None:
        """Cancel the run if it still runs. Called by Django, from any thread."""
        if self._body is not None:
            self._body.close()


class ThreadLines:
    """Lines of a source on an event loop in a thread of its own, for a server without one."""

    def __init__(self, source: RunSource) -> None:
        self._source = source
        self._started: Future[asyncio.AbstractEventLoop] | None = None
        self._is_closed = asyncio.Event()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._started is None:
            self._started = Future()
            threading.Thread(target=self._run, args=[self._started], name="mcp-playground", daemon=True).start()
        reading = asyncio.run_coroutine_threadsafe(self._source.read(IDLE_SECONDS), self._started.result())
        line = reading.result()
        if line is None:
            self.close()
            raise StopIteration
        return line

    def _run(self, started: "Future[asyncio.AbstractEventLoop]") -> None:
        """Run the loop until `close`.

        As in a WSGI request, code of the project uses the database connections of this thread.
        """
        try:
            async_to_sync(self._serve)(started)
        except BaseException as problem:
            if started.done():
                raise
            started.set_exception(problem)  # The reader waits for the loop.
        finally:
            connections.close_all()

    async def _serve(self, started: "Future[asyncio.AbstractEventLoop]") -> None:
        started.set_result(asyncio.get_running_loop())
        await self._is_closed.wait()
        self._source.close()
        await self._source.wait_closed()

    def close(self) -> None:
        """Cancel the run if it still runs. Called by the server, also when it fails to write."""
        if self._started is not None:
            call_threadsafe(self._started.result(), self._is_closed.set)


def build_stream(request: HttpRequest, produce: Produce) -> StreamingHttpResponse:
    """Return the response with the events of a run."""
    source = RunSource(produce)
    lines: Any = AsyncLines(source) if isinstance(request, ASGIRequest) else ThreadLines(source)
    response = StreamingHttpResponse(lines, content_type=MEDIA_TYPE)
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response
