"""Publishing: into the log, to those in this process who follow it, and to other processes.

From anywhere: an event loop that lasts, one that is gone with its request, or a thread without any.
"""

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from django.db import Error, connections, router, transaction
from django.db.transaction import Atomic

from mcp_django.aio.clock import monotonic
from mcp_django.models import StreamEvent
from mcp_django.protocol.jsonrpc import dumps
from mcp_django.runtime.events.channel_layer import Crier, Voice
from mcp_django.runtime.events.event_log import Draft, Event, EventLog
from mcp_django.runtime.events.follower import Feed, Watch, run_apart
from mcp_django.server.ports import Executor

logger = logging.getLogger("mcp_django.events")

Loop = asyncio.AbstractEventLoop
PURGE_EVERY = 60.0
"""Seconds, at most, between two looks for events that are too old, in a process that appends any."""
PURGE_AFTER = 1000
"""Events it appends until the next."""
LOOK_BACK = 16
"""Hooks of a transaction among which its batch is looked for; behind more of them it gets another."""
CHANGES = frozenset({"updated", "list_changed"})
"""Kinds that say the same when they are said twice."""


class _Batch:
    """What one transaction, or one savepoint of it, publishes when it commits."""

    __slots__ = ("_drafts", "_said", "block", "publish")

    def __init__(self, publish: Callable[[Sequence[Draft]], Any], block: Atomic | None) -> None:
        """`block` is the outermost that commits."""
        self.publish, self.block = publish, block
        self._drafts: list[Draft] = []
        self._said: set[tuple[str, str, bytes]] = set()

    def add(self, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            if draft.kind in CHANGES:
                key = draft.topic, draft.kind, dumps(draft.payload)
                if key in self._said:
                    continue
                self._said.add(key)
            self._drafts.append(draft)

    def commit(self) -> None:
        """The transaction has been committed."""
        self.publish(self._drafts)


def _committing_block(alias: str) -> Atomic | None:
    """The outermost atomic block that this thread is in. What Django's TestCase wraps around a test never commits."""
    blocks = connections[alias].atomic_blocks
    return next((block for block in blocks if not getattr(block, "_from_testcase", False)), None)


class Feeds:
    """The feeds of this process, one for each event loop, and the way into the log. There is one for a process."""

    def __init__(
        self,
        *,
        executor: Callable[[], Executor],
        layer: Callable[[], Any],
        keep: Callable[[], float],
        watch: Callable[["Feeds"], Watch] | None = None,
    ) -> None:
        """`executor` gives lanes that no handler can hold: calls wait for what is published while they have one.
        `layer` gives the channel layer that wakes other processes, or None; `keep` the seconds that events stay;
        `watch` makes what looks for changes while a feed is followed.
        """
        self._executor, self._layer, self._keep, self._watch = executor, layer, keep, watch
        self._appended, self._next_purge = 0, 0.0
        self._log = EventLog()
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        """Also in the child of a fork, whose parent's loops do not run there, and whose locks nobody gives back."""
        self._crier = Crier(self._layer)
        self._lock = threading.Lock()
        self._feeds: weakref.WeakKeyDictionary[Loop, Feed] = weakref.WeakKeyDictionary()

    def here(self) -> Feed:
        """The feed of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            feed = self._feeds.get(loop)
            if feed is None:
                voice = Voice(self._layer, left=self._crier.say)
                watch = None if self._watch is None else self._watch(self)
                feed = self._feeds[loop] = Feed(self._log, self._executor, self._layer, voice, watch)
            return feed

    async def publish(self, *drafts: Draft) -> list[Event]:
        """Append these and have everybody told who follows them, in this process and in others. They are in the log on
        return, whatever becomes of the caller.

        Not part of a transaction of the call that publishes, which has a connection of its own; on the thread of a
        caller that is inside one they are part of it, and told when it commits. Raises django.db.Error.
        """
        return await run_apart(self._executor(), self._publish, drafts)

    def publish_on_commit(self, *drafts: Draft, using: str | None = None) -> None:
        """The same from sync code, when the transaction that surrounds it commits, or at once if there is none. What
        one transaction publishes is appended at once, and what it repeats about a change is said once.

        `using` is the alias of that transaction's database, by default the log's own. What goes wrong is logged by
        Django, and fails nobody.
        """
        alias = router.db_for_write(StreamEvent) if using is None else using
        block = _committing_block(alias)
        batch = None if block is None else self._open_batch(alias, block)
        if batch is not None:
            batch.add(drafts)
            return
        batch = _Batch(self._publish, block)
        batch.add(drafts)
        try:
            transaction.on_commit(batch.commit, using=alias, robust=True)
        except transaction.TransactionManagementError:
            # Autocommit was turned off by hand, so nobody will say when: others find it when they look.
            self._log.append(drafts)

    def close(self, loop: Loop, *, wait: float = 1.0) -> None:
        """End the feed of a loop, within `wait` seconds. Called on another thread."""
        with self._lock:
            feed = self._feeds.get(loop)
        if feed is not None and feed.active and loop.is_running():
            try:
                asyncio.run_coroutine_threadsafe(feed.close(), loop).result(wait)
            except TimeoutError:
                pass

    def _open_batch(self, alias: str, block: Atomic) -> "_Batch | None":
        """The one that shares the fate of what is done now on a database."""
        connection = connections[alias]
        savepoints = set(connection.savepoint_ids)
        for known, hook, *_ in reversed(connection.run_on_commit[-LOOK_BACK:]):
            batch = getattr(hook, "__self__", None)
            # The block, because in a TestCase the hooks of earlier ones are still there.
            if (
                type(batch) is _Batch
                and batch.block is block
                and known == savepoints
                and batch.publish == self._publish
            ):
                return batch
        return None

    def _publish(self, drafts: Sequence[Draft]) -> list[Event]:
        events = self._log.append(drafts)
        alias = router.db_for_write(StreamEvent)
        if _committing_block(alias) is not None:
            # No partial: Django wants a name to log.
            transaction.on_commit(lambda: self._tell(events), using=alias, robust=True)
        else:
            self._tell(events)
            self._purge(len(events))
        return events

    def _purge(self, appended: int) -> None:
        """Now and then, delete more than was appended since."""
        self._appended += appended
        now = monotonic()
        if now < self._next_purge and self._appended < PURGE_AFTER:
            return
        self._appended, self._next_purge = 0, now + PURGE_EVERY
        try:
            self._log.purge(seconds=self._keep(), most=2 * PURGE_AFTER)
        except Error:
            logger.warning("Old events could not be deleted; it is tried again later", exc_info=True)

    def _tell(self, events: Sequence[Event]) -> None:
        if not events:
            return
        with self._lock:
            feeds = [(loop, feed) for loop, feed in self._feeds.items() if feed.active]
        say = self._crier.say if self._layer() is not None else None
        for loop, feed in feeds:
            try:
                loop.call_soon_threadsafe(feed.take, events)
                if say is not None:
                    loop.call_soon_threadsafe(feed.voice.say, events)
            except RuntimeError:
                continue  # it was closed just now
            # One of them tells the other processes.
            say = None
        if say is not None:
            say(events)


_all: "weakref.WeakSet[Feeds]" = weakref.WeakSet()


def _after_fork() -> None:
    for feeds in _all:
        feeds._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
