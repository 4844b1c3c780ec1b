"""A channel layer between loops of one process that a test can break or silence."""

import asyncio
import itertools
from collections import defaultdict
from typing import Any


class FakeLayer:
    """Implements the layer methods that the package calls, with a queue for each loop and channel."""

    def __init__(self) -> None:
        self.channels: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Queue[Any]]] = {}
        self.groups: defaultdict[str, set[str]] = defaultdict(set)
        self.sent: list[dict[str, Any]] = []
        self.joins = 0
        self.broken = self.deaf = False
        self._numbers = itertools.count()

    def _work(self) -> None:
        if self.broken:
            raise ConnectionError("the layer is down")

    async def new_channel(self) -> str:
        self._work()
        name = f"channel.{next(self._numbers)}"
        self.channels[name] = asyncio.get_running_loop(), asyncio.Queue()
        return name

    async def group_add(self, group: str, channel: str) -> None:
        self._work()
        self.joins += 1
        self.groups[group].add(channel)

    async def group_discard(self, group: str, channel: str) -> None:
        self._work()
        self.groups[group].discard(channel)
        del self.channels[channel]

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        self._work()
        self.sent.append(message)
        if not self.deaf:
            for name in self.groups[group]:
                loop, queue = self.channels[name]
                loop.call_soon_threadsafe(queue.put_nowait, message)

    async def receive(self, channel: str) -> Any:
        message = await self.channels[channel][1].get()
        if isinstance(message, Exception):
            raise message
        return message
