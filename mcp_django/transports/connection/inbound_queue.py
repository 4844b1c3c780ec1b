"""Bounded queue of received messages, used while the client does not read."""

import asyncio
from typing import Final

from mcp_django.transports.connection.connection import Duplex

AHEAD: Final = 16
"""Maximum messages in the queue."""


class ReadAhead:
    """Passes messages to a connection in their order.

    Requests wait while the client does not read. Messages behind them must not wait: a cancellation, or the end of
    input. Some messages are therefore read ahead, until their size exceeds the maximum of one message.
    """

    def __init__(self, duplex: Duplex, most: int) -> None:
        """Limit messages to `max_message_bytes` bytes."""
        self._duplex, self._most = duplex, most
        self._tasks: set[asyncio.Task[None]] = set()
        self._bytes = 0

    async def take(self, body: bytes) -> None:
        """Put a message into the queue; wait while the queue is full."""
        duplex = self._duplex
        if not self._tasks and (duplex.has_room() or duplex.is_over()):
            await duplex.receive(body)
            return
        while len(self._tasks) >= AHEAD or self._bytes > self._most:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        # Waiting messages go first, even if there is room now.
        self._bytes += len(body)
        self._tasks.add(task := asyncio.create_task(self._receive(body)))
        task.add_done_callback(self._tasks.discard)

    async def _receive(self, body: bytes) -> None:
        try:
            await self._duplex.receive(body)
        finally:
            self._bytes -= len(body)

    def stop(self) -> None:
        """Cancel all queued messages."""
        for task in self._tasks:
            task.cancel()
