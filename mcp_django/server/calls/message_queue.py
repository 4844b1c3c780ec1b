"""Outgoing message queue of one call: bounded, with one reader."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from mcp_django.aio.loop_local import find_running_loop
from mcp_django.aio.tasks import call_threadsafe, wait_for_wake, wake_all


class MessageSink(Protocol):
    """Destination of the messages of a stream whose reader can change."""

    async def put(self, message: bytes) -> None:
        """Queue a message; wait if the reader is too far behind."""

    def put_nowait(self, message: bytes) -> None:
        """Queue a message without waiting, whatever the state of the reader."""

    def has_room(self) -> bool:
        """Return True if there is room for an optional message."""

    def finish(self, message: bytes | None = None) -> None:
        """Queue the last message, if any, and end the stream."""

    def abort(self) -> None:
        """End the stream of a cancelled call; send nothing more."""

    def put_cancellation(self, message: bytes) -> None:
        """Queue the cancellation of a request to the client, even after `abort`."""

    def disconnect_reader(self, retry: float | None) -> bool:
        """Disconnect the reader when it has read the queue; False without a reader."""


_SCHEDULED_LOCK = threading.Lock()
"""Lock for the counters of scheduled messages, shared by all queues."""


@dataclass(slots=True, eq=False)
class Outbox:
    """Bounded queue of the messages that a call sends before its response.

    `put` waits while `max_messages` messages are unsent, at most `send_timeout` seconds for a stalled reader.

    Messages are complete, encoded JSON-RPC messages; the transport does the framing. After `redirect_to` the queue only
    passes messages on to its sink.
    """

    max_messages: int = 64
    interactive: bool = True
    """False for transports without a stream (WSGI).

    Messages are dropped then, and requests to the client refused.
    """
    send_timeout: float = 60.0

    on_first_message: Callable[[], None] | None = field(default=None, init=False)
    """Function that is called once: the response becomes a stream."""
    on_abandoned: Callable[[], None] | None = field(default=None, init=False)
    """Function that is called when a writer timed out."""
    loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    """Event loop on which the call runs."""
    # No deques: an empty one takes 600 bytes, and most calls send no message before their response.
    _messages: list[bytes] = field(default_factory=list, init=False)
    _reader: "asyncio.Future[None] | None" = field(default=None, init=False)
    _writers: "list[asyncio.Future[None]]" = field(default_factory=list, init=False)
    _closed: bool = field(default=False, init=False)
    _sink: MessageSink | None = field(default=None, init=False)
    _scheduled_count: int = field(default=0, init=False)

    async def put(self, message: bytes) -> None:
        """Queue a message; wait while the reader is behind, unless it has stopped."""
        if self._sink is not None:
            await self._sink.put(message)
            return
        await self.wait_for_room()
        self.put_nowait(message)

    def has_room(self) -> bool:
        """Return True if the reader keeps up."""
        return len(self._messages) < self.max_messages if self._sink is None else self._sink.has_room()

    async def wait_for_room(self) -> None:
        """Wait while the reader is behind, unless it has stopped."""
        while len(self._messages) >= self.max_messages and not self._closed:
            await wait_for_wake(self._writers, self.send_timeout, self._on_send_timeout)

    def put_nowait(self, message: bytes) -> None:
        """Queue a message even beyond the bound; drop it without a reader."""
        if self._closed or not self.interactive:
            return
        if self._sink is not None:
            self._sink.put_nowait(message)
            return

        self._messages.append(message)
        self._notify_first_message()
        self._wake_reader()

    def put_if_room(self, message: bytes) -> None:
        """Queue a message if there is room, else drop it; never wait. Thread-safe."""
        running_loop = find_running_loop()
        if running_loop is not None and (self.loop is None or self.loop is running_loop):
            if self.has_room():
                self.put_nowait(message)
        elif self.loop is not None and not self._closed:
            with _SCHEDULED_LOCK:
                if self._scheduled_count >= self.max_messages:
                    return
                self._scheduled_count += 1
            call_threadsafe(self.loop, self._put_scheduled, message)

    def _put_scheduled(self, message: bytes) -> None:
        with _SCHEDULED_LOCK:
            self._scheduled_count -= 1
        self.put_if_room(message)

    def finish(self, message: bytes | None = None) -> None:
        """Queue the last message, if any, and close the queue without waiting."""
        if message is not None:
            self.put_nowait(message)
        self._closed = True
        if self._sink is not None:
            self._sink.finish()
        if self._writers:
            wake_all(self._writers)
        if self._reader is not None:
            self._wake_reader()

    def abort(self) -> None:
        """Discard all queued messages, close the queue and release waiting writers."""
        self._messages.clear()
        if self._sink is not None:
            self._sink.abort()
        self.finish()

    def put_cancellation(self, message: bytes) -> None:
        """Queue the cancellation of a request to the client.

        Calls of a bidirectional connection share one stream. There the cancellation is sent even if its call was
        cancelled.
        """
        if self._sink is not None:
            self._sink.put_cancellation(message)
        else:
            self.put_nowait(message)

    def redirect_to(self, sink: MessageSink) -> None:
        """Pass all messages on to `sink` from now on, including the queued ones."""
        messages = self._messages
        self._messages = []
        for message in messages:
            sink.put_nowait(message)
        self._sink = sink
        wake_all(self._writers)

    def disconnect_reader(self, retry: float) -> bool:
        """Disconnect the reader, to reconnect after `retry` seconds; False if it cannot."""
        if self._closed or not self.interactive:
            return False
        self._notify_first_message()
        return self._sink is not None and self._sink.disconnect_reader(retry)

    def _notify_first_message(self) -> None:
        on_first_message = self.on_first_message
        if on_first_message is not None:
            self.on_first_message = None
            on_first_message()

    def _on_send_timeout(self) -> None:
        on_abandoned = self.on_abandoned
        self.abort()
        if on_abandoned is not None:
            on_abandoned()

    async def read(self, timeout: float) -> list[bytes] | None:
        """Return all queued messages, [] after `timeout` seconds, or None at the end."""
        if not self._messages:
            if self.is_finished():
                return None

            loop = asyncio.get_running_loop()
            reader = self._reader = loop.create_future()
            timer = loop.call_later(timeout, self._wake_reader)

            try:
                await reader
            finally:
                timer.cancel()
                self._reader = None
            if not self._messages:
                return None if self.is_finished() else []

        messages = self._messages
        self._messages = []
        wake_all(self._writers)
        return messages

    def is_finished(self) -> bool:
        """Return True if the last message has been queued."""
        return self._closed

    def _wake_reader(self) -> None:
        reader = self._reader
        if reader is not None and not reader.done():
            reader.set_result(None)
