"""Subscription that the users of one event loop share, kept while it is needed."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from mcp_django.aio.tasks import start_task, start_timer
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.events.follower import EventHandler, TopicSubscription
from mcp_django.runtime.events.publisher import EventPublisher

logger = get_logger("mcp_django.events")


@dataclass(slots=True, eq=False, repr=False)
class SharedSubscription:
    """Subscription of the running loop to one topic.

    `is_needed` is called every `check_seconds`; the subscription ends when it returns False.
    """

    publisher: EventPublisher
    topic: str
    handler: EventHandler
    is_needed: Callable[[], bool]
    check_seconds: float
    _subscription: TopicSubscription | None = None
    _starting: asyncio.Task[None] | None = None

    @property
    def is_active(self) -> bool:
        """True while events are received."""
        return self._subscription is not None and self.publisher.get_follower().is_active

    def start(self) -> asyncio.Task[None]:
        """Subscribe in the background; return the task, which raises the error of a failure."""
        if self._starting is None:
            self._starting = start_task(self._subscribe())
            self._starting.add_done_callback(self._on_started)
        return self._starting

    def stop(self) -> None:
        """End the subscription, also one that is starting."""
        starting = self._starting
        self._starting = None
        if starting is not None:
            starting.cancel()
        self._stop_current()

    async def _subscribe(self) -> None:
        self._stop_current()  # its follower has stopped
        self._subscription = await self.publisher.get_follower().subscribe(self.topic, self.handler)
        self._schedule_check(self._subscription)

    def _stop_current(self) -> None:
        subscription = self._subscription
        self._subscription = None
        if subscription is not None:
            subscription.stop()

    def _on_started(self, task: asyncio.Task[None]) -> None:
        if self._starting is task:
            self._starting = None
        if not task.cancelled() and task.exception() is not None:
            logger.warning("Failed to subscribe to topic %s", self.topic, exc_info=task.exception())

    def _schedule_check(self, subscription: TopicSubscription) -> None:
        # The timer is not stored: it refers to the loop, which this object must not keep alive.
        start_timer(self.check_seconds, self._check, subscription)

    def _check(self, subscription: TopicSubscription) -> None:
        if subscription is not self._subscription:
            return
        if self.is_needed():
            self._schedule_check(subscription)
        else:
            self.stop()
