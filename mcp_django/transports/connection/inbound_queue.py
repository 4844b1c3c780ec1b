"""Bounded queue of received messages, used while the client does not read."""

import asyncio
from typing import Final

from mcp_django.transports.connection.connection import DuplexConnection

MAX_QUEUED_MESSAGES: Final = 16
"""Maximum messages in the queue."""


class InboundQueue:
    """Passes messages to a connection in their order.

    Requests wait while the client does not read. Messages behind them must not wait: a cancellation, or the end of
    input. Some messages are therefore read ahead, until their size exceeds the maximum of one message.
    """

    def __init__(self, connection: DuplexConnection, max_message_bytes: int) -> None:
        """Limit messages to `max_message_bytes` bytes."""
        self._connection = connection
        self._max_message_bytes = max_message_bytes
        self._tasks: set[asyncio.Task[None]] = set()
        self._queued_bytes = 0

    async def put(self, body: bytes) -> None:
        """Put a message into the queue; wait while the queue is full."""
        connection = self._connection
        if not self._tasks and (connection.has_room() or connection.is_ended()):
            await connection.receive(body)
            return
        while len(self._tasks) >= MAX_QUEUED_MESSAGES or self._queued_bytes > self._max_message_bytes:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        # Waiting messages go first, even if there is room now.
        self._queued_bytes += len(body)
        self._tasks.add(task := asyncio.create_task(self._receive(body)))
        task.add_done_callback(self._tasks.discard)

    async def _receive(self, body: bytes) -> None:
        try:
            await self._connection.receive(body)
        finally:
            self._queued_bytes -= len(body)

    def stop(self) -> None:
        """Cancel all queued messages."""
        for task in self._tasks:
            task.cancel()
