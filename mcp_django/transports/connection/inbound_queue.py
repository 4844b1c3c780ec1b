"""What comes in on a pipe or a socket whose client does not read what it is sent."""

import asyncio
from typing import Final

from mcp_django.transports.connection.connection import Duplex

AHEAD: Final = 16
"""Messages that are read ahead."""


class ReadAhead:
    """Gives messages to a channel, in their order.

    While the client does not read, requests have to wait. What comes behind them may not: a cancellation, and that the
    client is gone. So a little is read ahead, until it holds more bytes than a message may have.
    """

    def __init__(self, duplex: Duplex, most: int) -> None:
        """A message may have `most` bytes."""
        self._duplex, self._most = duplex, most
        self._tasks: set[asyncio.Task[None]] = set()
        self._bytes = 0

    async def take(self, body: bytes) -> None:
        """Take a message in. Waits when there is enough that waits."""
        duplex = self._duplex
        if not self._tasks and (duplex.has_room() or duplex.is_over()):
            await duplex.receive(body)
            return
        while len(self._tasks) >= AHEAD or self._bytes > self._most:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        # Behind others also when there is room by now: they go first.
        self._bytes += len(body)
        self._tasks.add(task := asyncio.create_task(self._receive(body)))
        task.add_done_callback(self._tasks.discard)

    async def _receive(self, body: bytes) -> None:
        try:
            await self._duplex.receive(body)
        finally:
            self._bytes -= len(body)

    def stop(self) -> None:
        """Nothing of it matters any more."""
        for task in self._tasks:
            task.cancel()
