"""Stream of a session: messages that belong to no call.

See basic/transports, listening for messages. The stream is the event log filtered for the session
(`SessionEventSource`), so any worker can serve it from any event on. A session has at most one such stream in all
processes: the newest. An opening stream writes an event that ends an earlier one.
"""

import secrets

from mcp_django.runtime.events.event_log import Event, EventDraft, EventLog
from mcp_django.runtime.events.follower import TopicSubscription
from mcp_django.runtime.sessions.events import session_topic
from mcp_django.runtime.streams.reader import StreamReader
from mcp_django.runtime.streams.session_sink import PRESENT, PROBE
from mcp_django.runtime.subscriptions import SessionEventSource, SessionEventStream
from mcp_django.runtime.threads.executor import run_on_own_thread
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.session import ServerSession


class EventsExpiredError(Exception):
    """Error: the events that the client missed have been deleted from the log."""


class SessionStream(StreamReader):
    """Reader of a session's own stream."""

    def __init__(self, session: ServerSession, source: SessionEventSource, *, max_waiting: int) -> None:
        """Create a reader that ends with `max_waiting` unread messages."""
        super().__init__(max_waiting=max_waiting)
        self._session = session
        self._source = source
        self._event_stream: SessionEventStream | None = None
        self._subscription: TopicSubscription | None = None

    async def open(self, after: int | None, connection: Connection) -> None:
        """Open the stream after event `after`, by default now.

        The session's other stream ends. The principal of `connection` must have permission for the events.

        Raises:
            EventsExpiredError: the log no longer has all events after `after`.
        """
        if after is not None and not await run_on_own_thread(self._source.executor, _is_complete_after, after):
            raise EventsExpiredError

        topic = session_topic(self._session.pk)
        name = secrets.token_urlsafe(9)
        (opened_event,) = await self._source.publisher.publish(EventDraft(topic, "opened", {"reader": name}))
        self._read_number = opened_event.seq if after is None else after

        try:
            self._subscription = await self._source.publisher.get_follower().subscribe(
                topic, self._on_event, after=opened_event.seq
            )
            self._event_stream = await self._source.open(
                self._session, self._read_number, self.add, connection=connection
            )
        except BaseException:
            self.close()
            raise

    @property
    def position(self) -> int:
        """Number up to which all events have been read."""
        if self.waiting or self.is_ended or self._event_stream is None:
            return self._read_number
        return max(self._read_number, self._event_stream.position)

    def end(self) -> None:
        """End the stream after the waiting messages."""
        self._read_number = self.position
        super().end()
        if self._event_stream is not None:
            self._event_stream.stop()
        if self._subscription is not None:
            self._subscription.stop()

    def _on_event(self, event: Event) -> None:
        if event.kind in ("opened", "ended"):
            self.end()
        elif event.kind == PROBE:
            self._source.publisher.publish_soon(EventDraft(event.topic, PRESENT, event.payload))


def _is_complete_after(after: int) -> bool:
    """Return True if the log has all events after this number.

    Numbers have no gaps, so checking the next event is sufficient.
    """
    log = EventLog()
    return log.head() <= after or [event.seq for event in log.read(after, limit=1)] == [after + 1]
