"""Running calls of a connection, and the queue of calls beyond their limit."""

import asyncio
from collections.abc import Collection

from mcp_django.aio.tasks import wake_all
from mcp_django.protocol import jsonrpc
from mcp_django.runtime.calls.call_limiter import CallCounter, CallLimiter
from mcp_django.server.calls.pending import PendingResponse


class CallQueue:
    """The calls of one connection. While its queue is full, the connection handles no further request."""

    def __init__(self, max_running: int, max_queued_bytes: int, owner: str) -> None:
        self._limiter = CallLimiter(max_running, max_queued_bytes, on_room=self._wake_room_waiters)
        self._owner = owner
        self._room_waiters: list[asyncio.Future[None]] = []

    def admit(
        self, work: PendingResponse, size: int, used_ids: Collection[jsonrpc.Id]
    ) -> tuple[PendingResponse, CallCounter]:
        """Admit a call, which may wait first (`CallLimiter.admit`). Raises InvalidRequest, Overloaded."""
        return self._limiter.admit(work, size, self._owner, used_ids)

    def is_full(self) -> bool:
        """Return True while no further call fits into the queue."""
        return self._limiter.is_full(self._owner)

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
        return len(self._limiter) > 0

    def _wake_room_waiters(self) -> None:
        if not self.is_full():
            wake_all(self._room_waiters)
