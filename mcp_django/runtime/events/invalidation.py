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

from mcp_django.runtime.events.event_log import Event, EventDraft
from mcp_django.runtime.events.follower import EventHandler, TopicSubscription
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.threads.executor import is_async_to_sync_loop

logger = logging.getLogger("mcp_django.events")

CHECK_INTERVAL_SECONDS = 10.0
"""Seconds between two checks whether the subscription is still needed."""
SUBSCRIBE_TIMEOUT_SECONDS = 1.0
"""Maximum seconds that a request waits for the subscription to start.

The request continues without it afterwards.
"""

Loop = asyncio.AbstractEventLoop


class InvalidationTopic:
    """Invalidation events of one topic.

    `handler` is called with the events of other processes. `is_needed` is called periodically; the subscription ends
    when it returns False.
    """

    def __init__(
        self,
        get_publisher: Callable[[], EventPublisher],
        topic: str,
        *,
        handler: EventHandler,
        is_needed: Callable[[], bool],
    ) -> None:
        self._get_publisher = get_publisher
        self._topic = topic
        self._handler = handler
        self._is_needed = is_needed
        self._subscriptions: weakref.WeakKeyDictionary[Loop, TopicSubscription | asyncio.Task[None]] = (
            weakref.WeakKeyDictionary()
        )
        self._users: set[object] = set()
        self.sender_id = secrets.token_hex(6)
        """Identifier of this process in events, used to ignore its own."""

    @asynccontextmanager
    async def keep_subscribed(self) -> AsyncIterator[None]:
        """Subscribe the running loop on entry; stay subscribed as long as needed."""
        user = object()
        self._users.add(user)
        try:
            await self._ensure_subscribed()
            yield
        finally:
            self._users.discard(user)

    async def _ensure_subscribed(self) -> None:
        if is_async_to_sync_loop():
            return
        loop = asyncio.get_running_loop()

        subscription = self._subscriptions.get(loop)
        if isinstance(subscription, TopicSubscription):
            return
        if subscription is None:
            subscription = self._subscriptions[loop] = loop.create_task(self._subscribe(loop))
        await asyncio.wait([subscription], timeout=SUBSCRIBE_TIMEOUT_SECONDS)

    async def publish(self, kind: str, **payload: Any) -> None:
        """Publish an event to the other processes.

        Raises:
            django.db.Error: the event cannot be written.
        """
        await self._get_publisher().publish(self.create_draft(kind, **payload))

    def create_draft(self, kind: str, **payload: Any) -> EventDraft:
        """Return an event for the other processes, which this process ignores."""
        return EventDraft(self._topic, kind, {**payload, "by": self.sender_id})

    async def _subscribe(self, loop: Loop) -> None:
        try:
            self._subscriptions[loop] = (
                await self._get_publisher().get_follower().subscribe(self._topic, self._on_event)
            )
        except Exception:
            self._subscriptions.pop(loop, None)
            logger.warning("Failed to subscribe to invalidation topic %s", self._topic, exc_info=True)
        except BaseException:
            self._subscriptions.pop(loop, None)
            raise
        else:
            loop.call_later(CHECK_INTERVAL_SECONDS, self._check_needed, loop)

    def _on_event(self, event: Event) -> None:
        if event.payload.get("by") != self.sender_id:
            self._handler(event)

    def _check_needed(self, loop: Loop) -> None:
        if self._is_needed() or self._users:
            loop.call_later(CHECK_INTERVAL_SECONDS, self._check_needed, loop)
            return
        subscription = self._subscriptions.pop(loop, None)
        if isinstance(subscription, TopicSubscription):
            subscription.stop()
