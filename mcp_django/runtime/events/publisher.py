"""Event publisher: append to the log, notify followers, wake other processes.

Works from a long-lived event loop, from a loop that ends with its request, and from a thread without a loop.
"""

import asyncio
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.db import Error, connections, router
from django.db.transaction import Atomic

from mcp_django.aio.clock import monotonic
from mcp_django.aio.loop_local import LoopLocal
from mcp_django.aio.tasks import run_in_background
from mcp_django.models import StreamEvent
from mcp_django.models.commit_hooks import CommitHook, call_on_commit
from mcp_django.protocol.jsonrpc import dumps
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.events.channel_layer import ThreadedWakePublisher, WakePublisher
from mcp_django.runtime.events.database_clock import DatabaseClock
from mcp_django.runtime.events.event_log import Event, EventDraft, EventLog
from mcp_django.runtime.events.follower import LogFollower
from mcp_django.runtime.events.list_changes import ListChangeDetector
from mcp_django.runtime.threads.executor import run_on_own_thread
from mcp_django.server.ports import Executor

logger = get_logger("mcp_django.events")

Loop = asyncio.AbstractEventLoop
PURGE_INTERVAL_SECONDS = 60.0
"""Minimum seconds between two deletions of old events in one process."""
MAX_EVENTS_BETWEEN_PURGES = 1000
"""Number of appended events after which old events are deleted earlier."""
MAX_HOOKS_SEARCHED = 16
"""Number of recent transaction hooks that are searched for an existing batch.

If none has one, another batch is created.
"""
IDEMPOTENT_KINDS = frozenset({"updated", "list_changed"})
"""Kinds of events that can be deduplicated."""
LOST_AFTER_COMMIT = "Failed to publish after the commit of a transaction; its events are lost"
DELAYED_AFTER_COMMIT = "Failed to hand events to their followers; these find them at their next poll"


@dataclass(slots=True, eq=False, repr=False)
class _TransactionBatch:
    """Events that one transaction, or one of its savepoints, publishes on commit."""

    publish: Callable[[Sequence[EventDraft]], Any]
    block: Atomic | None
    """Outermost atomic block that commits."""
    _drafts: list[EventDraft] = field(default_factory=list)
    _seen_keys: set[tuple[str, str, bytes]] = field(default_factory=set)

    def add(self, drafts: Sequence[EventDraft]) -> None:
        for draft in drafts:
            if draft.kind in IDEMPOTENT_KINDS:
                key = draft.topic, draft.kind, dumps(draft.payload)
                if key in self._seen_keys:
                    continue
                self._seen_keys.add(key)
            self._drafts.append(draft)

    def publish_all(self) -> None:
        """Publish the events, in the order of their addition."""
        self.publish(self._drafts)


def _committing_block(alias: str) -> Atomic | None:
    """Return the outermost atomic block of this thread.

    The blocks of Django's TestCase are ignored, because they never commit.
    """
    blocks = connections[alias].atomic_blocks
    return next((block for block in blocks if not getattr(block, "_from_testcase", False)), None)


@dataclass(kw_only=True, eq=False, repr=False)
class EventPublisher:
    """Publisher of events and owner of the followers, one for each event loop.

    Each process has one instance.
    """

    executor: Executor
    """Executor with reserved threads.

    Calls wait for events to be published while they occupy their own thread.
    """
    layer: Any = None
    """Channel layer that wakes other processes, or None."""
    retention_seconds: float
    """Seconds that events are kept."""
    create_detector: Callable[["EventPublisher"], ListChangeDetector] | None = None
    """Function that returns a detector of list changes for a follower."""
    clock: DatabaseClock = field(default_factory=DatabaseClock, init=False)
    """Clock of the database, for times that processes compare."""
    _log: EventLog = field(default_factory=EventLog, init=False)
    _appended_count: int = field(default=0, init=False)
    _next_purge: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._reset()
        _publishers.add(self)

    def _reset(self) -> None:
        """Create the state of a process.

        Repeated in a forked child, which inherits threads and loops that do not run there.
        """
        self._threaded_wake_publisher = ThreadedWakePublisher(self.layer)
        self._followers = LoopLocal(self._create_follower)

    def configure(self, *, layer: Any, retention_seconds: float) -> None:
        """Apply changed settings, to the running followers as well.

        A running follower receives wake-ups over the previous layer until it stops.
        """
        self.layer = layer
        self.retention_seconds = retention_seconds
        self._threaded_wake_publisher.set_layer(layer)
        for item in self._followers.items():
            item[1].wake_publisher.layer = layer

    def get_follower(self) -> LogFollower:
        """Return the follower of the running loop."""
        return self._followers.get()

    def _create_follower(self) -> LogFollower:
        wake_publisher = WakePublisher(self.layer, on_unsent=self._threaded_wake_publisher.publish)
        detector = None if self.create_detector is None else self.create_detector(self)
        return LogFollower(self._log, self.executor, wake_publisher, self.clock, detector)

    async def publish(self, *drafts: EventDraft) -> list[Event]:
        """Append events, notify followers in all processes, and return the events.

        The events are in the log on return, and are written even if the caller is cancelled. They are not part of the
        caller's transaction, because they use a separate connection. Exception: on the thread of a caller inside a
        transaction they are part of it, and followers are notified when it commits.

        Raises:
            django.db.Error: the events cannot be written.
        """
        return await run_on_own_thread(self.executor, self._publish, drafts)

    def publish_soon(self, *drafts: EventDraft) -> None:
        """Publish events in a background task; a failure is logged."""
        run_in_background(self._publish_logged(drafts))

    async def _publish_logged(self, drafts: Sequence[EventDraft]) -> None:
        try:
            await self.publish(*drafts)
        except Exception:
            logger.warning(
                "Failed to notify another worker: %s", ", ".join({draft.kind for draft in drafts}), exc_info=True
            )

    def publish_on_commit(self, *drafts: EventDraft, using: str | None = None, robust: bool = False) -> None:
        """Publish events from sync code when the current transaction commits.

        Without a transaction they are published at once. All events of a transaction are appended together, and
        repeated changes are published once. `using` is the database alias of the transaction, by default that of the
        log.

        An error after a commit is logged, because the transaction cannot fail any more. With `robust`, an error without
        a transaction is logged, too: for changes that are already saved.

        Raises:
            django.db.Error: without a transaction and `robust`, the events cannot be written.
        """
        try:
            self._publish_on_commit(drafts, router.db_for_write(StreamEvent) if using is None else using)
        except Exception:
            if not robust:
                raise
            logger.exception("Failed to publish a change that is saved; its events are lost")

    def _publish_on_commit(self, drafts: Sequence[EventDraft], alias: str) -> None:
        block = _committing_block(alias)
        batch = None if block is None else self._find_batch(alias, block)
        if batch is not None:
            batch.add(drafts)
            return

        batch = _TransactionBatch(self._publish, block)
        batch.add(drafts)
        if not call_on_commit(batch.publish_all, using=alias, logger=logger, failure=LOST_AFTER_COMMIT):
            # Autocommit is off, so a commit cannot be detected: followers find the events at their next poll.
            self._log.append(drafts)

    def publish_in_transaction(self, *drafts: EventDraft) -> None:
        """Publish events as a part of the current transaction: they are written if it commits, else it fails.

        Other publishers wait for the end of the transaction. Without a transaction they are published at once.

        Raises:
            django.db.Error: the events cannot be written.
        """
        self._publish(drafts)

    def close_follower(self, loop: Loop, *, timeout: float = 1.0) -> None:
        """Stop the follower of a loop within `timeout` seconds. Call it on another thread."""
        follower = self._followers.find(loop)
        if follower is not None and follower.is_active and loop.is_running():
            try:
                asyncio.run_coroutine_threadsafe(follower.close(), loop).result(timeout)
            except TimeoutError:
                pass

    def _find_batch(self, alias: str, block: Atomic) -> "_TransactionBatch | None":
        """Return the batch of the current transaction and savepoints, or None."""
        connection = connections[alias]
        savepoints = set(connection.savepoint_ids)
        for hook_savepoints, hook, *_ in reversed(connection.run_on_commit[-MAX_HOOKS_SEARCHED:]):
            batch = getattr(hook.function, "__self__", None) if isinstance(hook, CommitHook) else None
            # Compare the block, because hooks of earlier blocks remain in a TestCase.
            if (
                type(batch) is _TransactionBatch
                and batch.block is block
                and hook_savepoints == savepoints
                and batch.publish == self._publish
            ):
                return batch
        return None

    def _publish(self, drafts: Sequence[EventDraft]) -> list[Event]:
        events = self._log.append(drafts)
        alias = router.db_for_write(StreamEvent)
        if _committing_block(alias) is not None:
            notify = partial(self._notify_followers, events)
            call_on_commit(notify, using=alias, logger=logger, failure=DELAYED_AFTER_COMMIT)
        else:
            self._notify_followers(events)
            self._purge(len(events))
        return events

    def _purge(self, appended: int) -> None:
        """Delete more events than were appended since the last deletion, when it is due."""
        self._appended_count += appended
        now = monotonic()
        if now < self._next_purge and self._appended_count < MAX_EVENTS_BETWEEN_PURGES:
            return
        self._appended_count = 0
        self._next_purge = now + PURGE_INTERVAL_SECONDS
        try:
            self._log.delete_old(max_age_seconds=self.retention_seconds, limit=2 * MAX_EVENTS_BETWEEN_PURGES)
        except Error:
            logger.warning("Failed to delete old events; retrying later", exc_info=True)

    def _notify_followers(self, events: Sequence[Event]) -> None:
        if not events:
            return
        followers = [(loop, follower) for loop, follower in self._followers.items() if follower.is_active]

        publish_wake = self._threaded_wake_publisher.publish if self.layer is not None else None
        for loop, follower in followers:
            try:
                loop.call_soon_threadsafe(follower.receive, events)
                if publish_wake is not None:
                    loop.call_soon_threadsafe(follower.wake_publisher.publish, events)
            except RuntimeError:
                continue  # the loop was closed just now
            # One follower is enough to wake the other processes.
            publish_wake = None
        if publish_wake is not None:
            publish_wake(events)


_publishers: "weakref.WeakSet[EventPublisher]" = weakref.WeakSet()


def _reset_after_fork() -> None:
    for publisher in _publishers:
        publisher._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
