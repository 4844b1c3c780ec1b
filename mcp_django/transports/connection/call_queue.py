"""Running calls of a connection, and the queue of calls beyond their limit."""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Container
from typing import Final

from mcp_django.aio.tasks import wake_all
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import MCPError
from mcp_django.runtime.concurrency import IMMEDIATE_METHODS, ConcurrencyLimiter
from mcp_django.server.calls.pending import PendingResponse
from mcp_django.server.calls.session import Cancellable
from mcp_django.server.ports import Overloaded

MAX_QUEUED_CALLS: Final = 256
"""Maximum calls and batches in the queue; a connection reads no further request beyond it."""

StartCall = Callable[[PendingResponse, ConcurrencyLimiter], None]
"""Function that starts a call, counted by a limiter that its end releases."""


class QueuedCall:
    """A call in the queue, which the client can cancel like a running one."""

    __slots__ = ("_cancel", "_loop", "size", "work")

    def __init__(self, work: PendingResponse, size: int, cancel: Callable[["QueuedCall"], None]) -> None:
        self.work = work
        self.size = size
        self._cancel = cancel
        self._loop = asyncio.get_running_loop()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of the connection."""
        return self._loop

    def cancel(self) -> None:
        """Remove the call from the queue; it gets no answer."""
        self._cancel(self)


class CallQueue:
    """Starts the calls of one connection in their order.

    Calls beyond the limit wait for the end of running ones. Their number and bytes are bounded. While the queue is
    full, the connection handles no further request.
    """

    def __init__(
        self,
        max_running: int,
        max_queued_bytes: int,
        *,
        owner: str,
        active_calls: dict[jsonrpc.Id, Cancellable],
        start: StartCall,
        on_removed: Callable[[], None],
    ) -> None:
        """Set the limits and the callbacks.

        `active_calls` has the cancellable calls by request id. `on_removed` is called after a cancellation.
        """
        self._limiter = ConcurrencyLimiter(max_running, on_release=self._schedule_start)
        self._immediate_limiter = ConcurrencyLimiter(max_running)
        self._max_queued_bytes = max_queued_bytes
        self._owner = owner
        self._active_calls = active_calls
        self._start = start
        self._on_removed = on_removed

        self._queue: deque[QueuedCall] = deque()
        self._queued_bytes = 0
        self._room_waiters: list[asyncio.Future[None]] = []
        self._scheduled_start: asyncio.Handle | None = None

    def add(self, work: PendingResponse, size: int, used_ids: Container[jsonrpc.Id]) -> None:
        """Start a call, or queue it; `size` is the bytes of its message.

        Raises:
            InvalidRequest: its id belongs to another request, or its batch is too large.
            Overloaded: too many calls of immediate methods are running.
        """
        if work.call.method in IMMEDIATE_METHODS and not work.is_batch:
            self._immediate_limiter.acquire_work(work, self._owner, used_ids)
            self._start(work, self._immediate_limiter)
            return

        self._limiter.check_work(work, used_ids)
        is_next = not self._queue or not work.call_count
        if is_next and self._limiter.acquire(self._owner, work.call_count):
            self._start(work, self._limiter)
        else:
            self._put(QueuedCall(work, size, self._cancel))

    def _put(self, queued: QueuedCall) -> None:
        self._queue.append(queued)
        self._queued_bytes += queued.size
        if not queued.work.is_batch and queued.work.call.id is not None:
            self._active_calls[queued.work.call.id] = queued

    def _remove(self, queued: QueuedCall) -> None:
        self._queue.remove(queued)
        self._queued_bytes -= queued.size
        id = queued.work.call.id
        if id is not None and self._active_calls.get(id) is queued:
            del self._active_calls[id]
        if not self.is_full():
            wake_all(self._room_waiters)

    def _cancel(self, queued: QueuedCall) -> None:
        if queued in self._queue:
            self._remove(queued)
            queued.work.close()
            # The first call of the queue may be a smaller batch now.
            self._schedule_start()
            self._on_removed()

    def _schedule_start(self) -> None:
        """Start queued calls at the next turn of the loop.

        Not at once: a call that ends in its first step would start the next one on its own stack.
        """
        if self._queue and self._scheduled_start is None:
            loop = self._queue[0].get_loop()
            self._scheduled_start = loop.call_soon(self._start_queued, context=contextvars.Context())

    def _start_queued(self) -> None:
        self._scheduled_start = None
        while self._queue and self._limiter.acquire(self._owner, self._queue[0].work.call_count):
            queued = self._queue[0]
            self._remove(queued)
            self._start(queued.work, self._limiter)

    def is_full(self) -> bool:
        """Return True while no further call fits into the queue."""
        return len(self._queue) >= MAX_QUEUED_CALLS or self._queued_bytes > self._max_queued_bytes

    async def wait_for_room(self) -> None:
        """Wait until the queue has room, or may have: check again, because other callers wait too."""
        if not self.is_full():
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room_waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._room_waiters:
                self._room_waiters.remove(waiter)

    def is_busy(self) -> bool:
        """Return True while a call runs or waits."""
        return bool(self._queue or len(self._limiter) or len(self._immediate_limiter))

    def close(self, error: MCPError | Overloaded | None = None) -> list[PendingResponse]:
        """Remove all queued calls, and return them.

        `error` is their outcome; without it they count as cancelled.
        """
        removed = list(self._queue)
        for queued in removed:
            self._remove(queued)
            queued.work.close(error)
        wake_all(self._room_waiters)
        return [queued.work for queued in removed]
