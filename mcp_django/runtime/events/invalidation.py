"""Cross-process cache invalidation over the event log.

Each kind of cache has one topic. A process subscribes to it while it trusts its cached entries. Reading a cached entry
is therefore free, and an entry is discarded in all processes when it becomes invalid. Under WSGI a loop lasts for one
request, so topics are not subscribed there: entries are read again when they expire.
"""

import asyncio
import logging
import secrets
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from mcp_django.runtime.events.event_log import Draft, Event
from mcp_django.runtime.events.follower import Following, Sink
from mcp_django.runtime.events.publisher import Feeds
from mcp_django.runtime.threads.executor import is_inline

logger = logging.getLogger("mcp_django.events")

LOOK_EVERY = 10.0
"""Seconds between two checks whether the subscription is still needed."""
PATIENCE = 1.0
"""Maximum seconds that a request waits for the subscription to start.

The request continues without it afterwards.
"""

Loop = asyncio.AbstractEventLoop


class News:
    """Invalidation events of one topic.

    `handler` is called with the events of other processes. `is_needed` is called periodically; the subscription ends
    when it returns False.
    """

    def __init__(self, feeds: Callable[[], Feeds], topic: str, *, hear: Sink, is_needed: Callable[[], bool]) -> None:
        self._feeds, self._topic, self._hear, self._is_needed = feeds, topic, hear, is_needed
        self._ears: weakref.WeakKeyDictionary[Loop, Following | asyncio.Task[None]] = weakref.WeakKeyDictionary()
        self._entered: set[object] = set()
        self.name = secrets.token_hex(6)
        """Identifier of this process in events, used to ignore its own."""

    @asynccontextmanager
    async def attended(self) -> AsyncIterator[None]:
        """Subscribe the running loop on entry; stay subscribed as long as needed."""
        somebody = object()
        self._entered.add(somebody)
        try:
            await self._attend()
            yield
        finally:
            self._entered.discard(somebody)

    async def _attend(self) -> None:
        if is_inline():
            return
        loop = asyncio.get_running_loop()

        ear = self._ears.get(loop)
        if isinstance(ear, Following):
            return
        if ear is None:
            ear = self._ears[loop] = loop.create_task(self._follow(loop))
        await asyncio.wait([ear], timeout=PATIENCE)

    async def tell(self, kind: str, **said: Any) -> None:
        """Publish an event to the other processes.

        Raises:
            django.db.Error: the event cannot be written.
        """
        await self._feeds().publish(self.draft(kind, **said))

    def draft(self, kind: str, **said: Any) -> Draft:
        """Return an event for the other processes, which this process ignores."""
        return Draft(self._topic, kind, {**said, "by": self.name})

    async def _follow(self, loop: Loop) -> None:
        try:
            self._ears[loop] = await self._feeds().here().follow(self._topic, self._heard)
        except Exception:
            self._ears.pop(loop, None)
            logger.warning("Failed to subscribe to invalidation topic %s", self._topic, exc_info=True)
        except BaseException:
            self._ears.pop(loop, None)
            raise
        else:
            loop.call_later(LOOK_EVERY, self._look, loop)

    def _heard(self, event: Event) -> None:
        if event.payload.get("by") != self.name:
            self._hear(event)

    def _look(self, loop: Loop) -> None:
        if self._is_needed() or self._entered:
            loop.call_later(LOOK_EVERY, self._look, loop)
            return
        ear = self._ears.pop(loop, None)
        if isinstance(ear, Following):
            ear.stop()
