"""Sink for requests on the stream of a session, which any process may serve.

A message is an event of the session's topic. The log keeps it for a stream that is resumed, but a stream that is
opened later does not get it. `has_open_stream` therefore comes before the first message.
"""

import asyncio
import secrets

from mcp_django.aio.tasks import wait_for_event
from mcp_django.protocol import jsonrpc
from mcp_django.runtime.events.event_log import Event, EventDraft
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.sessions.events import session_topic
from mcp_django.server.calls.session import ServerSession

PROBE, PRESENT = "probe", "present"
"""Kinds of events: the question for an open stream, and the answer of the process that serves it."""
PROBE_SECONDS = 5.0
"""Maximum seconds until the process with the stream has answered."""


async def has_open_stream(publisher: EventPublisher, session: ServerSession) -> bool:
    """Return True if a process serves the stream of a session.

    Raises:
        django.db.Error: the event log is unavailable.
    """
    if session.open_streams:
        return True
    topic, name, answered = session_topic(session.pk), secrets.token_urlsafe(9), asyncio.Event()

    def on_event(event: Event) -> None:
        if event.kind == PRESENT and event.payload["probe"] == name:
            answered.set()

    subscription = await publisher.get_follower().subscribe(topic, on_event)
    try:
        await publisher.publish(EventDraft(topic, PROBE, {"probe": name}))
        return await wait_for_event(answered, PROBE_SECONDS)
    finally:
        subscription.stop()


class SessionSink:
    """Stream of a session as the destination of messages. See `message_queue.MessageSink`."""

    def __init__(self, publisher: EventPublisher, session: ServerSession) -> None:
        self._publisher = publisher
        self._topic = session_topic(session.pk)

    async def put(self, message: bytes) -> None:
        """Append a message to the log. Raises django.db.Error."""
        await self._publisher.publish(self._build_draft(message))

    def put_nowait(self, message: bytes) -> None:
        self._publisher.publish_soon(self._build_draft(message))

    def put_cancellation(self, message: bytes) -> None:
        self.put_nowait(message)

    def _build_draft(self, message: bytes) -> EventDraft:
        return EventDraft(self._topic, "message", jsonrpc.loads(message))

    def has_room(self) -> bool:
        return True

    def finish(self, message: bytes | None = None) -> None:
        return None

    def abort(self) -> None:
        return None

    def disconnect_reader(self, retry: float | None) -> bool:
        return False
