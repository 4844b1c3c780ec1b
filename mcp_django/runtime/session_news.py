"""What processes tell each other about sessions: that one has ended or changed, or that a call is taken back.

One topic for all of them, followed by a process while it trusts what it knows of any session. So knowing a session
costs nothing, and a request of one is a dictionary lookup. Under WSGI a loop lasts for a request, and nothing is
followed: there sessions are looked up again when they are trusted no more.
"""

import asyncio
import logging
import secrets
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from ..models import EndReason
from ..models import Session as SessionRow
from .events import Draft, Event
from .executor import is_inline
from .feed import Following, Sink
from .feeds import Feeds

logger = logging.getLogger("mcp_django.sessions")

TOPIC = "sessions"
ENDED, RENEWED, CANCEL = "ended", "renewed", "cancel"
LOOK_EVERY = 10.0
"""Seconds between two looks whether following is still needed."""
PATIENCE = 1.0
"""Seconds that a request waits for the news to be followed; then it goes on without."""

Loop = asyncio.AbstractEventLoop


def session_topic(pk: Any) -> str:
    """Where the log keeps what concerns one session."""
    return f"session:{pk}"


def call_topics(pk: Any) -> str:
    """What the topics of a session's calls begin with, whose streams were left and are kept in the log."""
    return f"stream:{pk}:"


def announce_end(feeds: Feeds, row: SessionRow) -> None:
    """Tell every process that a session is over, once that is committed. From any thread of any process."""
    if row.end_reason == EndReason.IDLE:
        return  # nobody has used it for long, so nobody has anything of it open, or trusts it
    reason = row.end_reason
    feeds.publish_on_commit(
        Draft(session_topic(row.pk), ENDED, {"reason": reason}),
        Draft(TOPIC, ENDED, {"session": row.pk, "reason": reason}),
        using=row._state.db,
    )


class SessionNews:
    """The news that concern one store. `hear` is told of what others say; `is_needed` is asked now and then."""

    def __init__(self, feeds: Callable[[], Feeds], hear: Sink, is_needed: Callable[[], bool]) -> None:
        self._feeds, self._hear, self._is_needed = feeds, hear, is_needed
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

    async def tell(self, kind: str, pk: Any, **more: Any) -> None:
        """Tell the others something about a session. Raises django.db.Error."""
        await self._feeds().publish(Draft(TOPIC, kind, {"session": pk, "by": self.name, **more}))

    async def _follow(self, loop: Loop) -> None:
        try:
            self._ears[loop] = await self._feeds().here().follow(TOPIC, self._heard)
        except Exception:
            self._ears.pop(loop, None)
            logger.warning("What other processes do with sessions cannot be heard now", exc_info=True)
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
