"""Stream of a session: messages that belong to no call.

See basic/transports, listening for messages. The stream is the event log filtered for the session
(`SessionEventSource`), so any worker can serve it from any event on. A session has at most one such stream in all
processes: the newest. An opening stream writes an event that ends an earlier one.
"""

import asyncio
import secrets

from mcp_django.runtime.events.event_log import Draft, Event, EventLog
from mcp_django.runtime.events.follower import Following, run_apart
from mcp_django.runtime.events.publisher import Feeds
from mcp_django.runtime.streams.replay_buffer import Said
from mcp_django.runtime.subscriptions import SessionView, View
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.session import Session
from mcp_django.server.ports import Executor


class Missed(Exception):
    """Error: the events that the client missed have been deleted from the log."""


class OwnStream:
    """Reader of a session's own stream."""

    def __init__(self, session: Session, *, feeds: Feeds, view: SessionView, executor: Executor, most: int) -> None:
        """Create a reader that ends with `max_waiting` unread messages."""
        self._session, self._feeds, self._view, self._most = session, feeds, view, most
        self._executor = executor
        self.retry: float | None = None
        self.was_full = False
        """True if the stream ended because of too many unread messages; the log has more."""
        self._read = 0
        self._waiting: list[Said] = []
        self._over = False
        self._handle: View | None = None
        self._following: Following | None = None
        self._news = asyncio.Event()

    async def open(self, after: int | None, connection: Connection) -> None:
        """Open the stream after event `after`, by default now.

        The session's other stream ends. The principal of `connection` must have permission for the events.

        Raises:
            EventsExpiredError: the log no longer has all events after `after`.
        """
        if after is not None and not await run_apart(self._executor, _is_kept, after):
            raise Missed

        topic = f"session:{self._session.pk}"
        name = secrets.token_urlsafe(9)
        (opened,) = await self._feeds.publish(Draft(topic, "opened", {"reader": name}))
        self._read = opened.seq if after is None else after

        try:
            self._following = await self._feeds.here().follow(topic, self._on_event, after=opened.seq)
            self._handle = await self._view.open(
                self._session, self._read, self._sink, connection=connection, fresh=after is None
            )
        except BaseException:
            self.leave()
            raise

    @property
    def position(self) -> int:
        """Number up to which all events have been read."""
        if self._waiting or self._over or self._handle is None:
            return self._read
        return max(self._read, self._handle.position)

    async def read(self, patience: float) -> list[Said] | None:
        """Return waiting messages; an empty list after `timeout` seconds, None at the end."""
        if not self._waiting and not self._over:
            self._news.clear()
            try:
                async with asyncio.timeout(patience):
                    await self._news.wait()
            except TimeoutError:
                pass
        if not self._waiting:
            return None if self._over else []
        said, self._waiting = self._waiting, []
        self._read = said[-1].n
        return said

    def end(self) -> None:
        """End the stream after the waiting messages."""
        self._stop()
        self._over = True
        self._news.set()

    def leave(self) -> None:
        """End the stream and discard the waiting messages."""
        self._waiting.clear()
        self.end()

    def _stop(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            if not self._waiting:
                self._read = max(self._read, handle.position)
            handle.stop()
        following, self._following = self._following, None
        if following is not None:
            following.stop()

    def _on_event(self, event: Event) -> None:
        if event.kind in ("opened", "ended"):
            self.end()

    def _sink(self, seq: int, message: bytes) -> None:
        if self._over:
            return
        self._waiting.append(Said(seq, message))
        self._news.set()
        if len(self._waiting) >= self._most:
            self.was_full = True
            self.end()


def _is_kept(after: int) -> bool:
    """Return True if the log has all events after this number.

    Numbers have no gaps, so checking the next event is sufficient.
    """
    log = EventLog()
    return log.head() <= after or [event.seq for event in log.read(after, most=1)] == [after + 1]
