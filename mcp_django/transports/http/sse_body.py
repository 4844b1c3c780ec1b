"""Event-stream responses: the body and the sources of its events."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack

from mcp_django.aio.tasks import call_threadsafe
from mcp_django.protocol import sse
from mcp_django.runtime.calls.task import CallTask
from mcp_django.runtime.streams.event_ids import EventIdFactory
from mcp_django.runtime.streams.reader import StreamReader
from mcp_django.transports.credential_monitor import RevocableCredential, get_credential_monitor


class SSESource(ABC):
    """A source of the encoded events of a stream, which may answer a call."""

    credential: RevocableCredential | None = None
    """The credential to monitor; None if the stream needs none."""
    _task: CallTask | None = None

    def watch(self, credential: RevocableCredential) -> None:
        """Release the stream when the credential of its client is revoked."""
        self.credential = credential
        get_credential_monitor().add(self)

    @abstractmethod
    async def read(self, timeout: float) -> bytes | None:
        """Return the next events, a comment after `timeout`, or None at the end."""

    def mark_sent(self) -> None:
        """Record that everything has been sent. Thread-safe."""
        if self._task is not None:
            self._task.is_answered = True

    def close(self) -> None:
        """Release the stream. Called also after the end, and maybe more than once."""
        if self.credential is not None:
            get_credential_monitor().remove(self)
        if self._task is not None:
            self._task.on_disconnect()

    def on_revoked(self) -> None:
        """Release the stream as if the client had disconnected."""
        self.close()


class CallSource(SSESource):
    """Messages of a call, for a client that cannot resume the stream."""

    def __init__(self, task: CallTask) -> None:
        self._task = task
        self._outbox = task.call.outbox

    async def read(self, timeout: float) -> bytes | None:
        messages = await self._outbox.read(timeout)
        if messages is None:
            return None
        return b"".join(map(sse.event, messages)) if messages else sse.KEEP_ALIVE


class NumberedSource(SSESource):
    """Messages with ids, after any of which a client can resume the stream.

    With `polling` the stream opens with an event without data, so that an id exists before the first message. It ends
    with such an event when the server disconnects the client (2025-11-25, basic/transports).
    """

    def __init__(
        self,
        reader: StreamReader,
        create_event_id: EventIdFactory,
        *,
        polling: bool,
        task: CallTask | None = None,
        on_read: Callable[[], None] | None = None,
        on_close: ExitStack | None = None,
    ) -> None:
        """Set the reader and its callbacks.

        `task` is the call whose first response this is. `on_read` is called at each read; `on_close` holds callbacks
        for the release of the stream.
        """
        self._reader = reader
        self._create_event_id = create_event_id
        self._polling = polling
        self._task = task
        self._on_read = on_read
        self._close_callbacks = on_close or ExitStack()
        self._must_open = polling
        self._last_sent = -1

    async def read(self, timeout: float) -> bytes | None:
        reader = self._reader
        if self._must_open:
            self._must_open = False
            self._last_sent = reader.position
            return sse.priming(self._create_event_id(reader.position))
        if self._on_read is not None:
            self._on_read()

        messages = await reader.read(timeout)
        if messages:
            self._last_sent = messages[-1].number
            return b"".join([sse.with_id(self._create_event_id(n), message) for n, message in messages])
        if messages is None:
            return self._encode_final_event()
        if self._polling and reader.position > self._last_sent:
            # Skipped messages of other streams need not be scanned when this client reconnects.
            self._last_sent = reader.position
            return sse.priming(self._create_event_id(reader.position))

        return sse.KEEP_ALIVE

    def _encode_final_event(self) -> bytes | None:
        retry = self._reader.retry
        self._reader.retry = None
        if retry is None or not self._polling:
            return None
        return sse.priming(self._create_event_id(self._reader.position), retry=round(retry * 1000))

    def close(self) -> None:
        super().close()
        self._reader.close()
        self._close_callbacks.close()


class SSEBody:
    """Async iterator over the body of a stream, with a reliable `close`.

    It is not an async generator: the `finally` of a generator runs late, in another task, or not at all when the
    cancellation hits a `send`. With some servers, an exception that escapes a stream leaves the client hanging.
    """

    def __init__(self, source: SSESource, keep_alive: float) -> None:
        self._source = source
        self._keep_alive = keep_alive
        self._loop = asyncio.get_running_loop()
        self._is_closed = False

    def __aiter__(self) -> "SSEBody":
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._source.read(self._keep_alive)
        except asyncio.CancelledError:
            self._source.close()
            raise
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    def finish(self) -> None:
        """Finish the response for any reason. Must be called on the loop."""
        self._is_closed = True
        self._source.mark_sent()
        self._source.close()

    def close(self) -> None:
        """Finish the response from any thread; Django closes responses outside the loop."""
        self._is_closed = True
        self._source.mark_sent()
        call_threadsafe(self._loop, self._source.close)

    def __del__(self) -> None:
        # Django does not close a response whose client disconnects while middleware runs, nor one whose `send` raises
        # (`django/core/handlers/asgi.py`, `ASGIHandler.handle`). The garbage collector closes it, sometimes in a cycle.
        if not self._is_closed:
            self.close()
