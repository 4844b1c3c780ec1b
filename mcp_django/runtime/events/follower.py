"""How a process follows the event log: one feed for each of its event loops that has something open.

Events come to a feed from three sides: handed over by whoever appends them in this process, in the wakes of other
processes, and from the log itself, which is looked at when a number is missing and once a second in any case. All that
is told follows the numbers: each event once, in order, whichever side was first.
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
"""Seconds between two looks at the log."""
PATIENCE = 0.01
"""Seconds in which a missing number may still arrive by itself: two processes that append at once wake crosswise."""
JOIN_WITHIN = 0.5
"""Seconds that a feed waits at its start until wakes can reach it."""
LINGER = 1.0
"""Seconds that a feed stays when nobody follows anything any more."""
PAGE = 1000
MOST_HELD = 10_000
"""Events that wait for a missing one."""
LIST_CHANGED = "list_changed"

Sink = Callable[[Event], None]
"""Called on the loop, in the order of the numbers. It must neither block nor raise."""


class Watch(Protocol):
    """What looks, while something is followed, for changes that nobody tells of. `ListWatch` is one."""

    def look(self, topics: Collection[str]) -> None:
        """These topics are followed. Called once every POLL seconds."""

    def hear(self, event: Event) -> None:
        """Somebody says `list_changed`."""

    def close(self) -> None:
        """Nothing is followed any more."""


class Following:
    """Somebody's interest in a topic, until `stop`."""

    __slots__ = ("_feed", "_held", "_live", "_position", "_sink", "stopped", "topic")

    def __init__(self, feed: "Feed", topic: str, sink: Sink) -> None:
        self._feed, self.topic, self._sink = feed, topic, sink
        self._position = 0
        self._live = False
        self._held: list[Event] = []
        """What came while it was being told of the past."""
        self.stopped = False

    @property
    def position(self) -> int:
        """The number up to which the sink has seen all that concerns it."""
        return max(self._position, self._feed.position) if self._live else self._position

    def stop(self) -> None:
        """Hear nothing more. May be called at any time on the feed's loop, and more than once."""
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
                logger.exception("An event could not be passed on")

    def _go_live(self, position: int) -> None:
        """Everything up to `position` has been told, or is of no interest; what came meanwhile comes next."""
        if self.stopped:
            return
        held, self._held = self._held, []
        self._live, self._position = True, max(self._position, position)
        for event in held:
            self._tell(event)

    def _go_back(self, position: int) -> None:
        """Numbers above `position` will be used again."""
        self._position = min(self._position, position)


class Feed:
    """Follows the log on one event loop while somebody follows a topic."""

    def __init__(
        self,
        log: EventLog,
        executor: Callable[[], Executor],
        layer: Callable[[], Any],
        voice: Voice,
        watch: Watch | None = None,
    ) -> None:
        """`layer` gives the channel layer over which other processes are heard, or None; to them speaks `voice`."""
        self._log, self._executor, self._layer, self.voice = log, executor, layer, voice
        self._watch = watch
        self.position = 0
        """The number up to which everything has been told."""
        self._topics: dict[str, tuple[Following, ...]] = {}
        self._held: dict[int, Event] = {}
        self._head = 0
        """The highest number heard of."""
        self._live = False
        """Is the position known?"""
        self._asked = asyncio.Event()
        # None of these while nothing is followed: they know the loop, which must not live by its feed.
        self._ready: asyncio.Future[None] | None = None
        self._tail: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def active(self) -> bool:
        """Does it follow the log?"""
        return self._tail is not None

    async def follow(self, topic: str, sink: Sink, *, after: int | None = None) -> Following:
        """Have `sink` called for each event of `topic` from now on; with `after`, a number, for those that came after
        it and are still in the log, first. Returns when nothing can be missed any more.

        "Now" is where the feed stands. It may be POLL seconds behind, so what was appended just before may come too.

        Raises django.db.Error when the log cannot be read.
        """
        following = Following(self, topic, sink)
        self._topics[topic] = (*self._topics.get(topic, ()), following)
        try:
            await self._started()
            if after is None:
                following._go_live(self.position)
                return following
            if after > self.position:
                # Heard of elsewhere, and not here yet; or of a log that has gone back since.
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
        """There are these events, and others up to `head`. Called on the loop, in any order."""
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
        """End it, whoever follows what. It starts again when something is followed."""
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
                    logger.warning("The event log could not be read; it is tried again every second", exc_info=True)
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
        """Those who wait for the start are told; others see later what they miss now."""
        ready, self._ready = self._ready, None
        if ready is not None:
            ready.set_exception(problem)
            ready.exception()  # there may be nobody left who waits

    async def _read_news(self) -> None:
        more = True
        while more:
            # By the time of the answer others may have told of more than it knows.
            asked = self.position if self._live else None
            head, events = await self._run(self._news, asked)
            if asked is None or head < asked:
                self._begin(head)
                return
            for event in events:
                self._tell(event)
            more = len(events) == PAGE
            if not more:
                # Numbers have no gaps, so what is not in the log any more was deleted.
                self.position = max(self.position, head)
            self._tell_held()

    def _begin(self, head: int) -> None:
        if self._live:
            # A database that crashed or was restored: numbers are used again.
            logger.warning("The event log has gone back from %d to %d", self.position, head)
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
    """Run a function on a lane and a connection of its own, not on those of the call that needs it, however many wait.

    It runs to its end even if the caller is cancelled.
    """

    async def run() -> T:
        lease = executor.enter(patient=True)
        try:
            return await executor.run(fn, *args, **kwargs)
        finally:
            lease.close()

    return await asyncio.shield(asyncio.get_running_loop().create_task(run(), context=contextvars.Context()))
