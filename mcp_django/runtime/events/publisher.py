"""Event publisher: append to the log, notify followers, wake other processes.

Works from a long-lived event loop, from a loop that ends with its request, and from a thread without a loop.
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
"""Minimum seconds between two deletions of old events in one process."""
PURGE_AFTER = 1000
"""Number of appended events after which old events are deleted earlier."""
LOOK_BACK = 16
"""Number of recent transaction hooks that are searched for an existing batch.

If none has one, another batch is created.
"""
CHANGES = frozenset({"updated", "list_changed"})
"""Kinds of events that can be deduplicated."""


class _Batch:
    """Events that one transaction, or one of its savepoints, publishes on commit."""

    __slots__ = ("_drafts", "_said", "block", "publish")

    def __init__(self, publish: Callable[[Sequence[Draft]], Any], block: Atomic | None) -> None:
        """Create an empty batch; `block` is the outermost atomic block that commits."""
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
        """Publish the events after the commit."""
        self.publish(self._drafts)


def _committing_block(alias: str) -> Atomic | None:
    """Return the outermost atomic block of this thread.

    The blocks of Django's TestCase are ignored, because they never commit.
    """
    blocks = connections[alias].atomic_blocks
    return next((block for block in blocks if not getattr(block, "_from_testcase", False)), None)


class Feeds:
    """Publisher of events and owner of the followers, one for each event loop.

    Each process has one instance.
    """

    def __init__(
        self,
        *,
        executor: Callable[[], Executor],
        layer: Callable[[], Any],
        keep: Callable[[], float],
        watch: Callable[["Feeds"], Watch] | None = None,
    ) -> None:
        """Create the publisher of a process.

        `get_executor` returns an executor whose threads are reserved: calls wait for events to be published while they
        occupy their own thread. `get_layer` returns the channel layer that wakes other processes, or None.
        `get_retention_seconds` returns the seconds that events are kept. `create_detector` returns a detector of list
        changes for a follower.
        """
        self._executor, self._layer, self._keep, self._watch = executor, layer, keep, watch
        self._appended, self._next_purge = 0, 0.0
        self._log = EventLog()
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        """Create the state of a process.

        Repeated in a forked child, which inherits locks that are never released.
        """
        self._crier = Crier(self._layer)
        self._lock = threading.Lock()
        self._feeds: weakref.WeakKeyDictionary[Loop, Feed] = weakref.WeakKeyDictionary()

    def here(self) -> Feed:
        """Return the follower of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            feed = self._feeds.get(loop)
            if feed is None:
                voice = Voice(self._layer, left=self._crier.say)
                watch = None if self._watch is None else self._watch(self)
                feed = self._feeds[loop] = Feed(self._log, self._executor, self._layer, voice, watch)
            return feed

    async def publish(self, *drafts: Draft) -> list[Event]:
        """Append events, notify followers in all processes, and return the events.

        The events are in the log on return, and are written even if the caller is cancelled. They are not part of the
        caller's transaction, because they use a separate connection. Exception: on the thread of a caller inside a
        transaction they are part of it, and followers are notified when it commits.

        Raises:
            django.db.Error: the events cannot be written.
        """
        return await run_apart(self._executor(), self._publish, drafts)

    def publish_on_commit(self, *drafts: Draft, using: str | None = None) -> None:
        """Publish events from sync code when the current transaction commits.

        Without a transaction they are published at once. All events of a transaction are appended together, and
        repeated changes are published once. `using` is the database alias of the transaction, by default that of the
        log. Django logs errors; they are not raised to the caller.
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
            # Autocommit is off, so a commit cannot be detected: followers find the events at their next poll.
            self._log.append(drafts)

    def close(self, loop: Loop, *, wait: float = 1.0) -> None:
        """Stop the follower of a loop within `timeout` seconds. Call it on another thread."""
        with self._lock:
            feed = self._feeds.get(loop)
        if feed is not None and feed.active and loop.is_running():
            try:
                asyncio.run_coroutine_threadsafe(feed.close(), loop).result(wait)
            except TimeoutError:
                pass

    def _open_batch(self, alias: str, block: Atomic) -> "_Batch | None":
        """Return the batch of the current transaction and savepoints, or None."""
        connection = connections[alias]
        savepoints = set(connection.savepoint_ids)
        for known, hook, *_ in reversed(connection.run_on_commit[-LOOK_BACK:]):
            batch = getattr(hook, "__self__", None)
            # Compare the block, because hooks of earlier blocks remain in a TestCase.
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
            # a lambda instead of a partial: Django logs the name of the function
            transaction.on_commit(lambda: self._tell(events), using=alias, robust=True)
        else:
            self._tell(events)
            self._purge(len(events))
        return events

    def _purge(self, appended: int) -> None:
        """Delete more events than were appended since the last deletion, when it is due."""
        self._appended += appended
        now = monotonic()
        if now < self._next_purge and self._appended < PURGE_AFTER:
            return
        self._appended, self._next_purge = 0, now + PURGE_EVERY
        try:
            self._log.purge(seconds=self._keep(), most=2 * PURGE_AFTER)
        except Error:
            logger.warning("Failed to delete old events; retrying later", exc_info=True)

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
                continue  # the loop was closed just now
            # One follower is enough to wake the other processes.
            say = None
        if say is not None:
            say(events)


_all: "weakref.WeakSet[Feeds]" = weakref.WeakSet()


def _after_fork() -> None:
    for feeds in _all:
        feeds._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
