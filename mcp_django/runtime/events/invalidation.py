"""Cross-process cache invalidation over the event log.

Each kind of cache has one topic. A process subscribes to it while it trusts its cached entries. Reading a cached entry
is therefore free, and an entry is discarded in all processes when it becomes invalid. Under WSGI a loop lasts for one
request, so topics are not subscribed there: entries are read again when they expire.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from mcp_django.aio.asgiref_internals import is_async_to_sync_loop
from mcp_django.aio.loop_local import LoopLocal
from mcp_django.runtime.events.event_log import Event, EventDraft
from mcp_django.runtime.events.follower import EventHandler
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.events.shared_subscription import SharedSubscription

CHECK_INTERVAL_SECONDS = 10.0
"""Seconds between two checks whether the subscription is still needed."""
SUBSCRIBE_TIMEOUT_SECONDS = 1.0
"""Maximum seconds that a request waits for the subscription to start.

The request continues without it afterwards.
"""


@dataclass(eq=False, repr=False)
class InvalidationTopic:
    """Invalidation events of one topic.

    `handler` is called with the events of other processes. `is_needed` is called periodically; the subscription ends
    when it returns False.
    """

    publisher: EventPublisher
    topic: str
    _: KW_ONLY
    handler: EventHandler
    is_needed: Callable[[], bool]
    sender_id: str = field(default_factory=lambda: secrets.token_hex(6), init=False)
    """Identifier of this process in events, used to ignore its own."""
    _users: set[object] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._subscriptions = LoopLocal(self._create_subscription)

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
        subscription = self._subscriptions.get()
        if not subscription.is_active:
            await asyncio.wait([subscription.start()], timeout=SUBSCRIBE_TIMEOUT_SECONDS)

    def _create_subscription(self) -> SharedSubscription:
        def is_needed() -> bool:
            return self.is_needed() or bool(self._users)

        return SharedSubscription(self.publisher, self.topic, self._on_event, is_needed, CHECK_INTERVAL_SECONDS)

    async def publish(self, kind: str, **payload: Any) -> None:
        """Publish an event to the other processes.

        Raises:
            django.db.Error: the event cannot be written.
        """
        await self.publisher.publish(self.create_draft(kind, **payload))

    def create_draft(self, kind: str, **payload: Any) -> EventDraft:
        """Return an event for the other processes, which this process ignores."""
        return EventDraft(self.topic, kind, {**payload, "by": self.sender_id})

    def _on_event(self, event: Event) -> None:
        if event.payload.get("by") != self.sender_id:
            self.handler(event)
