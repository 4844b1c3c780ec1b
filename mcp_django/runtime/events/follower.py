"""Followers of the event log: one per event loop with subscriptions.

A follower receives events from three sources: publishers in this process, wake-ups of other processes, and the log. The
log is polled when a number is missing, and once a second in any case. Subscribers receive each event once and in order,
whichever source was first.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mcp_django.aio.tasks import start_task, wait_for_event
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.events.channel_layer import WakePublisher, WakeSubscriber
from mcp_django.runtime.events.database_clock import DatabaseClock
from mcp_django.runtime.events.event_log import Event, EventLog
from mcp_django.runtime.events.list_changes import ListChangeDetector
from mcp_django.runtime.threads.executor import run_on_own_thread
from mcp_django.server.ports import Executor

logger = get_logger("mcp_django.events")
T = TypeVar("T")

POLL_INTERVAL_SECONDS = 1.0
"""Seconds between two polls of the log."""
GAP_TIMEOUT_SECONDS = 0.01
"""Seconds to wait for a missing number.

The wake-ups of concurrent processes may arrive in reverse order.
"""
JOIN_TIMEOUT_SECONDS = 0.5
"""Maximum seconds that a starting follower waits until it can receive wake-ups."""
IDLE_TIMEOUT_SECONDS = 1.0
"""Seconds that a follower without subscriptions keeps running."""
MAX_PAGE_EVENTS = 1000
MAX_BUFFERED_EVENTS = 10_000
"""Maximum number of events that wait for a missing one."""
LIST_CHANGED = "list_changed"

EventHandler = Callable[[Event], None]
"""Callback of a subscription, called on the loop in order of the numbers.

It must neither block nor raise.
"""


@dataclass(slots=True, eq=False, repr=False)
class TopicSubscription:
    """Subscription to a topic, until `stop`."""

    _follower: "LogFollower"
    topic: str
    _handler: EventHandler
    is_stopped: bool = False
    _position: int = 0
    _is_live: bool = False
    _buffered: list[Event] = field(default_factory=list)
    """Events received while past events are delivered."""

    @property
    def position(self) -> int:
        """Number up to which the handler has received all events of the topic."""
        return max(self._position, self._follower.position) if self._is_live else self._position

    def stop(self) -> None:
        """End the subscription. Idempotent; call it on the follower's loop."""
        if not self.is_stopped:
            self._position = self.position
            self._is_live = False
            self.is_stopped = True
            self._buffered.clear()
            self._follower._remove(self)

    def _receive(self, event: Event) -> None:
        if self._is_live:
            self._deliver(event)
        elif not self.is_stopped:
            self._buffered.append(event)

    def _deliver(self, event: Event) -> None:
        if event.seq > self._position and not self.is_stopped:
            self._position = event.seq
            try:
                self._handler(event)
            except Exception:
                logger.exception("Event handler failed")

    def _go_live(self, position: int) -> None:
        """Deliver the buffered events; those up to `position` have been delivered."""
        if self.is_stopped:
            return
        buffered = self._buffered
        self._buffered = []
        self._is_live = True
        self._position = max(self._position, position)
        for event in buffered:
            self._deliver(event)


@dataclass(eq=False, repr=False)
class LogFollower:
    """Follower of the log on one event loop, running while topics are subscribed."""

    log: EventLog
    executor: Executor
    wake_publisher: WakePublisher
    """Sender of wake-ups; those of other processes arrive over the same channel layer."""
    clock: DatabaseClock
    """Clock of the database, which is measured while the follower runs."""
    detector: ListChangeDetector | None = None

    position: int = 0
    """Number up to which all events have been delivered."""
    _topics: dict[str, tuple[TopicSubscription, ...]] = field(default_factory=dict)
    _buffered: dict[int, Event] = field(default_factory=dict)
    _head: int = 0
    """Highest known event number."""
    _is_live: bool = False
    """True if the position is known."""

    _wake_event: asyncio.Event = field(default_factory=asyncio.Event)
    # None while the follower is stopped: these objects refer to the loop, which the follower must not keep alive.
    _ready: asyncio.Future[None] | None = None
    _task: asyncio.Task[None] | None = None
    _gap_timer: asyncio.TimerHandle | None = None

    @property
    def is_active(self) -> bool:
        """True while the follower runs."""
        return self._task is not None

    async def subscribe(self, topic: str, handler: EventHandler, *, after: int | None = None) -> TopicSubscription:
        """Subscribe to the events of a topic from now on, or from number `after` + 1 on.

        With `after`, past events that are still in the log are delivered first. On return no future event can be
        missed. "Now" is the follower's position, which may lag `POLL_INTERVAL_SECONDS` behind. Events appended just
        before may be delivered.

        Raises:
            django.db.Error: the log cannot be read.
        """
        subscription = TopicSubscription(self, topic, handler)
        self._topics[topic] = (*self._topics.get(topic, ()), subscription)

        try:
            await self._ensure_started()
            if after is None:
                subscription._go_live(self.position)
                return subscription

            if after > self.position:
                # The number was received elsewhere and is not known here yet, or belongs to a log that was reset.
                after = min(after, await self._run_query(self.log.head))

            subscription._position, end = after, self.position
            while subscription._position < end and not subscription.is_stopped:
                page = await self._run_query(self.log.read, subscription._position, topic=topic, limit=MAX_PAGE_EVENTS)
                for event in page:
                    if event.seq <= end:
                        subscription._deliver(event)
                if len(page) < MAX_PAGE_EVENTS or page[-1].seq > end:
                    break

            subscription._go_live(max(after, end))
        except BaseException:
            subscription.stop()
            raise
        return subscription

    def receive(self, events: Sequence[Event], head: int = 0) -> None:
        """Receive events in any order, and the number of the latest event.

        Call it on the loop.
        """
        if self._task is None:
            return
        for event in events:
            if event.seq > self.position:
                self._buffered[event.seq] = event
            head = max(head, event.seq)
        self._head = max(self._head, head)

        if self._is_live:
            self._deliver_buffered()
            if self.position < self._head and self._gap_timer is None:
                self._gap_timer = asyncio.get_running_loop().call_later(GAP_TIMEOUT_SECONDS, self._on_gap_timeout)
        if len(self._buffered) > MAX_BUFFERED_EVENTS:
            self._buffered.clear()

    async def close(self) -> None:
        """Stop the follower; the next subscription starts it again."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _remove(self, subscription: TopicSubscription) -> None:
        remaining = tuple(
            candidate for candidate in self._topics.get(subscription.topic, ()) if candidate is not subscription
        )
        if remaining:
            self._topics[subscription.topic] = remaining
        else:
            self._topics.pop(subscription.topic, None)

    async def _ensure_started(self) -> None:
        if self._task is None:
            self._task = start_task(self._follow_log())
        if not self._is_live:
            if self._ready is None:
                self._ready = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._ready)

    async def _follow_log(self) -> None:
        layer, wake_task = self.wake_publisher.layer, None
        try:
            if layer is not None:
                wake_subscriber = WakeSubscriber(layer, self.receive)
                wake_task = asyncio.create_task(wake_subscriber.run())
                await wait_for_event(wake_subscriber.joined, JOIN_TIMEOUT_SECONDS)

            await self._poll()
        finally:
            self._on_stopped()
            if wake_task is not None:
                wake_task.cancel()
                await asyncio.wait([wake_task])

    def _on_stopped(self) -> None:
        self._task = None
        self._is_live = False
        self._wake_event = asyncio.Event()
        self._buffered.clear()
        if self.detector is not None:
            self.detector.close()
        ready = self._ready
        self._ready = None
        if ready is not None:
            ready.cancel()
        timer = self._gap_timer
        self._gap_timer = None
        if timer is not None:
            timer.cancel()

    async def _poll(self) -> None:
        loop, has_logged = asyncio.get_running_loop(), False
        idle_since: float | None = None
        while True:
            self._wake_event.clear()
            try:
                await self._read_new_events()
            except Exception as error:
                if not has_logged:
                    logger.warning("Failed to read the event log; retrying every second", exc_info=True)
                has_logged = True
                self._fail_start(error)
            else:
                has_logged = False

            if self._topics:
                idle_since = None
                if self.detector is not None:
                    self.detector.check(self._topics)
            elif idle_since is None:
                idle_since = loop.time()
            elif loop.time() - idle_since >= IDLE_TIMEOUT_SECONDS:
                return

            await wait_for_event(self._wake_event, POLL_INTERVAL_SECONDS)

    def _fail_start(self, error: Exception) -> None:
        """Raise an error in callers that wait for the start.

        Running subscriptions catch up later.
        """
        ready = self._ready
        self._ready = None
        if ready is not None:
            ready.set_exception(error)
            ready.exception()  # retrieve it, because the waiting callers may have been cancelled

    async def _read_new_events(self) -> None:
        has_more = True
        while has_more:
            # While the query runs, other sources may deliver events beyond the queried position.
            known_position = self.position if self._is_live else None
            head, events = await self._run_query(self._query_new_events, known_position)
            if known_position is None or head < known_position:
                self._set_position(head)
                return

            for event in events:
                self._deliver(event)
            has_more = len(events) == MAX_PAGE_EVENTS
            if not has_more:
                # Numbers have no gaps, so missing events have been deleted.
                self.position = max(self.position, head)

            self._deliver_buffered()

    def _set_position(self, head: int) -> None:
        if self._is_live:
            # The database crashed or was restored: numbers are used again.
            logger.warning("Event log was reset from number %d to %d", self.position, head)
            self._buffered.clear()
            for subscriptions in self._topics.values():
                for subscription in subscriptions:
                    subscription._position = min(subscription._position, head)
        self.position = head
        self._head = max(head, *self._buffered, 0)
        self._is_live = True
        self._buffered = {seq: event for seq, event in self._buffered.items() if seq > head}
        self.receive(())
        ready = self._ready
        self._ready = None
        if ready is not None:
            ready.set_result(None)

    def _query_new_events(self, after: int | None) -> tuple[int, list[Event]]:
        self.clock.measure()
        head = self.log.head()
        return head, self.log.read(after, limit=MAX_PAGE_EVENTS) if after is not None and head > after else []

    def _on_gap_timeout(self) -> None:
        self._gap_timer = None
        if self.position < self._head:
            self._wake_event.set()

    def _deliver_buffered(self) -> None:
        while (event := self._buffered.pop(self.position + 1, None)) is not None:
            self._deliver(event)

    def _deliver(self, event: Event) -> None:
        if event.seq <= self.position:
            return
        self.position = event.seq
        self._buffered.pop(event.seq, None)
        if event.kind == LIST_CHANGED and self.detector is not None:
            self.detector.on_list_changed(event)
        for subscription in self._topics.get(event.topic, ()):
            subscription._receive(event)

    async def _run_query(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        return await run_on_own_thread(self.executor, fn, *args, **kwargs)
