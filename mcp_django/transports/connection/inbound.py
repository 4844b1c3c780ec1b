"""Received messages: their kinds, and the queues in which they wait."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError, MCPError
from mcp_django.protocol.revisions import Era
from mcp_django.server.calls.session import Cancellable
from mcp_django.server.eras import select_era
from mcp_django.server.eras.handshake import INITIALIZE

MAX_QUEUED_MESSAGES: Final = 16
"""Maximum messages in the queue."""
CANCELLED_METHOD = "notifications/cancelled"


def is_notification(raw: Any) -> bool:
    """Return True if the message has a method and no id."""
    return type(raw) is dict and "id" not in raw and type(raw.get("method")) is str


def is_unanswered(raw: Any) -> bool:
    """Return True for messages without an answer: notifications and responses."""
    return is_notification(raw) or (type(raw) is dict and "method" not in raw and ("result" in raw or "error" in raw))


def is_request(raw: Any) -> bool:
    """Return True if the message has a method and an id."""
    return type(raw) is dict and "id" in raw and "method" in raw


def is_initialize(raw: Any) -> bool:
    """Return True if the message opens a session."""
    return type(raw) is dict and raw.get("method") == INITIALIZE


def needs_session(raw: Any) -> bool:
    """Return True if the message needs the session that is being opened.

    A cancellation is handled at once.
    """
    if type(raw) is list:
        return True
    if type(raw) is not dict or raw.get("method") == CANCELLED_METHOD:
        return False
    return "method" in raw and select_era(None, raw) is Era.HANDSHAKE


def get_id(raw: Any) -> jsonrpc.Id | None:
    """Return the id of the message, or None if it is missing or invalid."""
    id = raw.get("id") if type(raw) is dict else None
    return id if type(id) is int or type(id) is str else None


def with_request_id(raw: Any, error: MCPError) -> MCPError:
    """Set the id of this message on an error, and return the error."""
    error.request_id = get_id(raw)
    return error


def build_busy_error(raw: Any, text: str) -> MCPError:
    """Build the error that rejects this message because of an overload."""
    return with_request_id(raw, InternalError(text))


class WaitingRequest:
    """A waiting request in the table of active calls, where it can be cancelled."""

    __slots__ = ("_loop", "is_cancelled")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.is_cancelled = False

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop on which the request waits."""
        return self._loop

    def cancel(self) -> None:
        """Cancel the request before it starts."""
        self.is_cancelled = True


@contextmanager
def track_waiting(raw: Any, active_calls: dict[jsonrpc.Id, Cancellable]) -> Iterator[WaitingRequest]:
    """Register a waiting request as cancellable.

    `initialize` must not be cancelled (basic/utilities/cancellation). An id that is in use belongs to another request.
    """
    request, id = WaitingRequest(asyncio.get_running_loop()), get_id(raw)
    if id is None or id in active_calls or not is_request(raw) or is_initialize(raw):
        yield request
        return
    active_calls[id] = request
    try:
        yield request
    finally:
        if active_calls.get(id) is request:
            del active_calls[id]


class InboundQueue:
    """Passes messages to a connection in their order.

    Requests wait while the client does not read. Messages behind them must not wait: a cancellation, or the end of
    input. Some messages are therefore read ahead, until their size exceeds the maximum of one message.
    """

    def __init__(
        self, receive: Callable[[bytes], Awaitable[None]], is_ready: Callable[[], bool], max_message_bytes: int
    ) -> None:
        """Set the receiver, which handles requests at once while `is_ready`."""
        self._receive = receive
        self._is_ready = is_ready
        self._max_message_bytes = max_message_bytes
        self._tasks: set[asyncio.Task[None]] = set()
        self._queued_bytes = 0

    async def put(self, body: bytes) -> None:
        """Put a message into the queue; wait while the queue is full."""
        if not self._tasks and self._is_ready():
            await self._receive(body)
            return
        while len(self._tasks) >= MAX_QUEUED_MESSAGES or self._queued_bytes > self._max_message_bytes:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        # Waiting messages go first, even if there is room now.
        self._queued_bytes += len(body)
        self._tasks.add(task := asyncio.create_task(self._receive_queued(body)))
        task.add_done_callback(self._tasks.discard)

    async def _receive_queued(self, body: bytes) -> None:
        try:
            await self._receive(body)
        finally:
            self._queued_bytes -= len(body)

    def stop(self) -> None:
        """Cancel all queued messages."""
        for task in self._tasks:
            task.cancel()
