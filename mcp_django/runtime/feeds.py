"""Publishing: into the log, to those in this process who follow it, and to other processes.

From anywhere: an event loop that lasts, one that is gone with its request, or a thread without any.
"""

import asyncio
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.db import connections, router, transaction

from ..models import StreamEvent
from ..server.ports import Executor
from .events import Draft, Event, EventLog
from .feed import Feed, run_apart
from .hub import Crier, Voice

Loop = asyncio.AbstractEventLoop


class Feeds:
    """The feeds of this process, one for each event loop, and the way into the log. There is one for a process."""

    def __init__(self, *, executor: Callable[[], Executor], layer: Callable[[], Any]) -> None:
        """`layer` gives the channel layer that wakes other processes, or None."""
        self._executor, self._layer = executor, layer
        self._log = EventLog()
        self._crier = Crier(layer)
        self._lock = threading.Lock()
        self._feeds: weakref.WeakKeyDictionary[Loop, Feed] = weakref.WeakKeyDictionary()

    def here(self) -> Feed:
        """The feed of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            feed = self._feeds.get(loop)
            if feed is None:
                voice = Voice(self._layer, left=self._crier.say)
                feed = self._feeds[loop] = Feed(self._log, self._executor, self._layer, voice)
            return feed

    async def publish(self, *drafts: Draft) -> list[Event]:
        """Append these and have everybody told who follows them, in this process and in others. They are in the log on
        return, whatever becomes of the caller.

        Not part of a transaction of the call that publishes, which has a connection of its own; on the thread of a
        caller that is inside one they are part of it, and told when it commits. Raises django.db.Error.
        """
        return await run_apart(self._executor(), self._publish, drafts)

    def publish_on_commit(self, *drafts: Draft, using: str | None = None) -> None:
        """The same from sync code, when the transaction that surrounds it commits, or at once if there is none.

        `using` is the alias of that transaction's database, by default the log's own. What goes wrong is logged by
        Django, and fails nobody.
        """
        alias = router.db_for_write(StreamEvent) if using is None else using
        transaction.on_commit(partial(self._publish, drafts), using=alias, robust=True)

    def close(self, loop: Loop, *, wait: float = 1.0) -> None:
        """End the feed of a loop, within `wait` seconds. Called on another thread."""
        with self._lock:
            feed = self._feeds.get(loop)
        if feed is not None and feed.active and loop.is_running():
            try:
                asyncio.run_coroutine_threadsafe(feed.close(), loop).result(wait)
            except TimeoutError:
                pass

    def _publish(self, drafts: Sequence[Draft]) -> list[Event]:
        events = self._log.append(drafts)
        connection = connections[router.db_for_write(StreamEvent)]
        # The transaction that Django's TestCase wraps around a test does not count: it never commits.
        if any(not getattr(block, "_from_testcase", False) for block in connection.atomic_blocks):
            transaction.on_commit(partial(self._tell, events), using=connection.alias, robust=True)
        else:
            self._tell(events)
        return events

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
