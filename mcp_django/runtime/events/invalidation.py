"""What processes tell each other about what each of them knows for a moment: that it holds no more.

One topic of the event log for a subject, followed by a process while it trusts what it knows of it. So what is known
costs nothing, and is yet gone everywhere when it ends. Under WSGI a loop lasts for a request, and nothing is followed:
there it is looked up again when it is trusted no more.
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
"""Seconds between two looks whether following is still needed."""
PATIENCE = 1.0
"""Seconds that a request waits for the news to be followed; then it goes on without."""

Loop = asyncio.AbstractEventLoop


class News:
    """The news of one topic. `hear` is told of what others say; `is_needed` is asked now and then."""

    def __init__(self, feeds: Callable[[], Feeds], topic: str, *, hear: Sink, is_needed: Callable[[], bool]) -> None:
        self._feeds, self._topic, self._hear, self._is_needed = feeds, topic, hear, is_needed
        self._ears: weakref.WeakKeyDictionary[Loop, Following | asyncio.Task[None]] = weakref.WeakKeyDictionary()
        self._entered: set[object] = set()
        self.name = secrets.token_hex(6)
        """Who we are, to know our own words again."""

    @asynccontextmanager
    async def attended(self) -> AsyncIterator[None]:
        """From when this is entered nothing is missed on this loop, and for as long afterwards as it is needed."""
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
        """Tell the others. Raises django.db.Error."""
        await self._feeds().publish(self.draft(kind, **said))

    def draft(self, kind: str, **said: Any) -> Draft:
        """The event that tells the others, and that is not heard here."""
        return Draft(self._topic, kind, {**said, "by": self.name})

    async def _follow(self, loop: Loop) -> None:
        try:
            self._ears[loop] = await self._feeds().here().follow(self._topic, self._heard)
        except Exception:
            self._ears.pop(loop, None)
            logger.warning("What other processes say about %s cannot be heard now", self._topic, exc_info=True)
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
