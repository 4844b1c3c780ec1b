"""A channel layer that loses, repeats and delays a share of its messages, by a seed.

The share is read from the file SITE_WAKES at every message, so that a test can change it.
"""

import asyncio
import json
import os
import random
from pathlib import Path
from typing import Any, NamedTuple

from channels_redis.pubsub import RedisPubSubChannelLayer

LATE = 0.3
"""Seconds that a late message takes at most."""


class DeliveryFaults(NamedTuple):
    """Shares of messages, each from 0 to 1."""

    lost: float = 0.0
    twice: float = 0.0
    late: float = 0.0

    def write(self, file: Path) -> None:
        """Have it from now on, in every process that reads this file."""
        new = file.with_suffix(".new")
        new.write_text(json.dumps(self._asdict()))
        new.replace(file)


class UnreliableLayer(RedisPubSubChannelLayer):  # type: ignore[misc]  # has no types
    """Redis, with a bad line to it."""

    def __init__(self, *args: Any, **config: Any) -> None:
        super().__init__(*args, **config)
        self._chance = random.Random(1)
        self._delayed: set[asyncio.Task[None]] = set()

    async def send(self, channel: str, message: Any) -> None:
        """To one channel, perhaps."""
        await self._carry("send", channel, message)

    async def group_send(self, group: str, message: Any) -> None:
        """To a group, perhaps."""
        await self._carry("group_send", group, message)

    async def _carry(self, how: str, where: str, message: Any) -> None:
        faults = DeliveryFaults(**json.loads(Path(os.environ["SITE_WAKES"]).read_text()))
        if self._chance.random() < faults.lost:
            return
        send = getattr(self._get_layer(), how)
        for _ in range(2 if self._chance.random() < faults.twice else 1):
            if self._chance.random() < faults.late:
                task = asyncio.get_running_loop().create_task(self._later(send, where, message))
                self._delayed.add(task)
                task.add_done_callback(self._delayed.discard)
            else:
                await send(where, message)

    async def _later(self, send: Any, where: str, message: Any) -> None:
        await asyncio.sleep(self._chance.uniform(0, LATE))
        try:
            await send(where, message)
        except OSError:
            pass  # Redis is away, and the sender has gone on
