"""Followers of the event log: one per event loop with subscriptions.

A follower receives events from three sources: publishers in this process, wake-ups of other processes, and the log. The
log is polled when a number is missing, and once a second in any case. Subscribers receive each event once and in order,
whichever source was first.
"""

import asyncio
import contextvars
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar

from mcp_django.runtime.events.channel_layer import Ear, Voice
from mcp_django.runtime.events.event_log import Event, EventLog
from mcp_django.server.ports import Executor

logger = logging.getLogger("mcp_django.events")
T = TypeVar("T")

POLL = 1.0
"""Seconds between two polls of the log."""
PATIENCE = 0.01
"""Seconds to wait for a missing number.

The wake-ups of concurrent processes may arrive in reverse order.
"""
JOIN_WITHIN = 0.5
"""Maximum seconds that a starting follower waits until it can receive wake-ups."""
LINGER = 1.0
"""Seconds that a follower without subscriptions keeps running."""
PAGE = 1000
MOST_HELD = 10_000
"""Maximum number of events that wait for a missing one."""
LIST_CHANGED = "list_changed"

Sink = Callable[[Event], None]
"""Callback of a subscription, called on the loop in order of the numbers.

It must neither block nor raise.
"""


class Watch(Protocol):
    """Detector of unpublished changes, active while a follower runs.

    `ListChangeDetector` implements it.
    """

    def look(self, topics: Collection[str]) -> None:
        """Check for changes; called every `POLL_INTERVAL_SECONDS` with the topics."""

    def hear(self, event: Event) -> None:
        """Process a `list_changed` event."""

    def close(self) -> None:
        """Stop, because the follower has stopped."""


class Following:
    """Subscription to a topic, until `stop`."""

    __slots__ = ("_feed", "_held", "_live", "_position", "_sink", "stopped", "topic")

    def __init__(self, feed: "Feed", topic: str, sink: Sink) -> None:
        self._feed, self.topic, self._sink = feed, topic, sink
        self._position = 0
        self._live = False
        self._held: list[Event] = []
        """Events received while past events are delivered."""
        self.stopped = False

    @property
    def position(self) -> int:
        """Number up to which the handler has received all events of the topic."""
        return max(self._position, self._feed.position) if self._live else self._position

    def stop(self) -> None:
        """End the subscription. Idempotent; call it on the follower's loop."""
        if not self.stopped:
            self._position, self._live, self.stopped = self.position, False, True
            self._held.clear()
            self._feed._part(self)

    def _receive(self, event: Event) -> None:
        if self._live:
            self._tell(event)
        elif not self.stopped:
            self._held.append(event)

    def _tell(self, event: Event) -> None:
        if event.seq > self._position and not self.stopped:
            self._position = event.seq
            try:
                self._sink(event)
            except Exception:
                logger.exception("Event handler failed")

    def _go_live(self, position: int) -> None:
        """Deliver the buffered events; those up to `position` have been delivered."""
        if self.stopped:
            return
        held, self._held = self._held, []
        self._live, self._position = True, max(self._position, position)
        for event in held:
            self._tell(event)

    def _go_back(self, position: int) -> None:
        """Reset the position, because numbers above `position` will be used again."""
        self._position = min(self._position, position)


class Feed:
    """Follower of the log on one event loop, running while topics are subscribed."""

    def __init__(
        self,
        log: EventLog,
        executor: Callable[[], Executor],
        layer: Callable[[], Any],
        voice: Voice,
        watch: Watch | None = None,
    ) -> None:
        """Create the follower.

        `get_layer` returns the channel layer that delivers wake-ups, or None. `wake_publisher` sends them.
        """
        self._log, self._executor, self._layer, self.voice = log, executor, layer, voice
        self._watch = watch

        self.position = 0
        """Number up to which all events have been delivered."""
        self._topics: dict[str, tuple[Following, ...]] = {}
        self._held: dict[int, Event] = {}
        self._head = 0
        """Highest known event number."""
        self._live = False
        """True if the position is known."""

        self._asked = asyncio.Event()
        # None while the follower is stopped: these objects refer to the loop, which the follower must not keep alive.
        self._ready: asyncio.Future[None] | None = None
        self._tail: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def active(self) -> bool:
        """True while the follower runs."""
        return self._tail is not None

    async def follow(self, topic: str, sink: Sink, *, after: int | None = None) -> Following:
        """Subscribe to the events of a topic from now on, or from number `after` + 1 on.

        With `after`, past events that are still in the log are delivered first. On return no future event can be
        missed. "Now" is the follower's position, which may lag `POLL_INTERVAL_SECONDS` behind. Events appended just
        before may be delivered.

        Raises:
            django.db.Error: the log cannot be read.
        """
        following = Following(self, topic, sink)
        self._topics[topic] = (*self._topics.get(topic, ()), following)

        try:
            await self._started()
            if after is None:
                following._go_live(self.position)
                return following

            if after > self.position:
                # The number was received elsewhere and is not known here yet, or belongs to a log that was reset.
                after = min(after, await self._run(self._log.head))

            following._position, upto = after, self.position
            while following._position < upto and not following.stopped:
                page = await self._run(self._log.read, following._position, topic=topic, most=PAGE)
                for event in page:
                    if event.seq <= upto:
                        following._tell(event)
                if len(page) < PAGE or page[-1].seq > upto:
                    break

            following._go_live(max(after, upto))
        except BaseException:
            following.stop()
            raise
        return following

    def take(self, events: Sequence[Event], head: int = 0) -> None:
        """Receive events in any order, and the number of the latest event.

        Call it on the loop.
        """
        if self._tail is None:
            return
        for event in events:
            if event.seq > self.position:
                self._held[event.seq] = event
            head = max(head, event.seq)
        self._head = max(self._head, head)

        if self._live:
            self._tell_held()
            if self.position < self._head and self._alarm is None:
                self._alarm = asyncio.get_running_loop().call_later(PATIENCE, self._look)
        if len(self._held) > MOST_HELD:
            self._held.clear()

    async def close(self) -> None:
        """Stop the follower; the next subscription starts it again."""
        tail = self._tail
        if tail is not None:
            tail.cancel()
            await asyncio.wait([tail])

    def _part(self, following: Following) -> None:
        left = tuple(other for other in self._topics.get(following.topic, ()) if other is not following)
        if left:
            self._topics[following.topic] = left
        else:
            self._topics.pop(following.topic, None)

    async def _started(self) -> None:
        loop = asyncio.get_running_loop()
        if self._tail is None:
            self._tail = loop.create_task(self._follow_log(), context=contextvars.Context())
        if not self._live:
            if self._ready is None:
                self._ready = loop.create_future()
            await asyncio.shield(self._ready)

    async def _follow_log(self) -> None:
        layer, listening = self._layer(), None
        try:
            if layer is not None:
                ear = Ear(layer, self.take)
                listening = asyncio.create_task(ear.listen())
                try:
                    async with asyncio.timeout(JOIN_WITHIN):
                        await ear.joined.wait()
                except TimeoutError:
                    pass

            await self._look_now_and_then()
        finally:
            self._ended()
            if listening is not None:
                listening.cancel()
                await asyncio.wait([listening])

    def _ended(self) -> None:
        self._tail, self._live, self._asked = None, False, asyncio.Event()
        self._held.clear()
        if self._watch is not None:
            self._watch.close()
        ready, self._ready = self._ready, None
        if ready is not None:
            ready.cancel()
        alarm, self._alarm = self._alarm, None
        if alarm is not None:
            alarm.cancel()

    async def _look_now_and_then(self) -> None:
        loop, complained = asyncio.get_running_loop(), False
        alone_since: float | None = None
        while True:
            self._asked.clear()
            try:
                await self._read_news()
            except Exception as problem:
                if not complained:
                    logger.warning("Failed to read the event log; retrying every second", exc_info=True)
                complained = True
                self._fail(problem)
            else:
                complained = False

            if self._topics:
                alone_since = None
                if self._watch is not None:
                    self._watch.look(self._topics)
            elif alone_since is None:
                alone_since = loop.time()
            elif loop.time() - alone_since >= LINGER:
                return

            try:
                async with asyncio.timeout(POLL):
                    await self._asked.wait()
            except TimeoutError:
                pass

    def _fail(self, problem: Exception) -> None:
        """Raise an error in callers that wait for the start.

        Running subscriptions catch up later.
        """
        ready, self._ready = self._ready, None
        if ready is not None:
            ready.set_exception(problem)
            ready.exception()  # retrieve it, because the waiting callers may have been cancelled

    async def _read_news(self) -> None:
        more = True
        while more:
            # While the query runs, other sources may deliver events beyond the queried position.
            asked = self.position if self._live else None
            head, events = await self._run(self._news, asked)
            if asked is None or head < asked:
                self._begin(head)
                return

            for event in events:
                self._tell(event)
            more = len(events) == PAGE
            if not more:
                # Numbers have no gaps, so missing events have been deleted.
                self.position = max(self.position, head)

            self._tell_held()

    def _begin(self, head: int) -> None:
        if self._live:
            # The database crashed or was restored: numbers are used again.
            logger.warning("Event log was reset from number %d to %d", self.position, head)
            self._held.clear()
            for followings in self._topics.values():
                for following in followings:
                    following._go_back(head)
        self.position, self._head, self._live = head, max(head, *self._held, 0), True
        self._held = {seq: event for seq, event in self._held.items() if seq > head}
        self.take(())
        ready, self._ready = self._ready, None
        if ready is not None:
            ready.set_result(None)

    def _news(self, after: int | None) -> tuple[int, list[Event]]:
        head = self._log.head()
        return head, self._log.read(after, most=PAGE) if after is not None and head > after else []

    def _look(self) -> None:
        self._alarm = None
        if self.position < self._head:
            self._asked.set()

    def _tell_held(self) -> None:
        while (event := self._held.pop(self.position + 1, None)) is not None:
            self._tell(event)

    def _tell(self, event: Event) -> None:
        if event.seq <= self.position:
            return
        self.position = event.seq
        self._held.pop(event.seq, None)
        if event.kind == LIST_CHANGED and self._watch is not None:
            self._watch.hear(event)
        for following in self._topics.get(event.topic, ()):
            following._receive(event)

    async def _run(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        return await run_apart(self._executor(), fn, *args, **kwargs)


async def run_apart(executor: Executor, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Run a function on a separate pool thread and database connection.

    It ignores the queue limit, never uses the thread of the current call, and completes even if the caller is
    cancelled.
    """

    async def run() -> T:
        lease = executor.enter(patient=True)
        try:
            return await executor.run(fn, *args, **kwargs)
        finally:
            lease.close()

    return await asyncio.shield(asyncio.get_running_loop().create_task(run(), context=contextvars.Context()))
