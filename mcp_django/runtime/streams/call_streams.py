"""Call streams, and their relay to clients that reconnect to another worker.

The worker that serves the client requests the messages after the last one received, through the event log. The worker
of the call answers with these messages, writes further ones to the log, and disconnects the previous reader. Each
remote reader has its own topic, so it cannot receive messages for an earlier one. A process that ends writes the
streams that it keeps to the log, for the worker that serves their clients next.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from mcp_django.aio.loop_local import LoopLocal
from mcp_django.aio.tasks import BackgroundTasks, call_threadsafe
from mcp_django.models import Session as SessionRow
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.events.event_log import Event, EventDraft
from mcp_django.runtime.events.publisher import EventPublisher
from mcp_django.runtime.events.shared_subscription import SharedSubscription
from mcp_django.runtime.sessions.events import build_stream_topic
from mcp_django.runtime.shutdown import Lifecycle
from mcp_django.runtime.streams.reader import NumberedMessage, StreamReader
from mcp_django.runtime.streams.remote_reader import CONTROL_TOPIC, RemoteReader, StreamGoneError
from mcp_django.runtime.streams.replay_buffer import MAX_BUFFER_BYTES, ReplayBuffer, ReplayLimits
from mcp_django.runtime.streams.replay_store import ReplayStore
from mcp_django.server.calls.session import ServerSession
from mcp_django.signals import session_closed

logger = get_logger("mcp_django.events")

FINAL_READ_SECONDS = 1.0
"""Seconds at shutdown for clients to read the ends of their streams."""
MAX_FINAL_READ_CHECKS = 20
CHECK_INTERVAL_SECONDS = 30.0
"""Seconds between two checks whether the subscription to requests is still needed."""
RELAY_READ_TIMEOUT_SECONDS = 3600.0
MAX_BATCH_EVENTS = 500
"""Number of events after which a batch of finished streams is written at shutdown."""
MAX_REPEATED_BYTES = 4 * MAX_BUFFER_BYTES
"""Maximum bytes of a stream that are logged repeatedly.

A client causes this by requesting the same messages again at another worker. Further requests are rejected.
"""
ROW_OVERHEAD_BYTES = 256
"""Approximate bytes of a log row in addition to its message."""


class EndableStream(Protocol):
    """Open stream that can be ended."""

    def end(self) -> None:
        """End the stream after the waiting messages."""


class CallStreams:
    """Call streams of one event loop, and the other open streams of its sessions."""

    def __init__(self, publisher: EventPublisher, add_cleanup: Callable[[Any], None]) -> None:
        """Create an empty registry; `add_cleanup` registers a shutdown callback."""
        self._publisher = publisher
        self._add_cleanup = add_cleanup
        self._subscription = SharedSubscription(
            publisher, CONTROL_TOPIC, self._on_event, lambda: len(self.store) > 0, CHECK_INTERVAL_SECONDS
        )
        self.store = ReplayStore(on_empty=self._subscription.stop)
        self.session_streams: dict[Any, set[EndableStream]] = {}
        """Open streams that belong to no call here, by session primary key."""
        self._has_cleanup = False
        self._relays = BackgroundTasks()

    def open_stream(self, session: ServerSession, limits: ReplayLimits) -> ReplayBuffer:
        """Open a stream of a session with its first reader."""
        if not self._has_cleanup:
            self._has_cleanup = True
            self._add_cleanup(self._store_finished)
        if not self._subscription.is_active:
            self._subscription.start()
        return self.store.open_stream(session, limits)

    async def resume(self, session: ServerSession, token: str, after: int, *, max_waiting: int) -> StreamReader:
        """Return a reader of a session's stream after message `after`.

        At most `max_waiting` messages of another worker wait to be read.

        Raises:
            StreamGoneError: the stream, or some of these messages, are gone.
        """
        buffer = self.store.find(session.pk, token)

        if buffer is not None:
            reader = buffer.attach(after)
            if reader is None:
                raise StreamGoneError
            return reader

        remote = RemoteReader(self._publisher, after=after, max_waiting=max_waiting)
        await remote.open(session.pk, token)
        return remote

    def has_session(self, session: Any) -> bool:
        """Return True if the session has a stream here. Thread-safe."""
        return session in self.session_streams or self.store.has_session(session)

    def end_session(self, session: Any) -> None:
        """End all streams of an ended session."""
        self.store.end_session(session)
        for stream in list(self.session_streams.get(session, ())):
            stream.end()

    def add_session_stream(self, session: Any, stream: EndableStream) -> Callable[[], None]:
        """Register a stream that belongs to no call; return a function that removes it."""
        self.session_streams.setdefault(session, set()).add(stream)

        def remove() -> None:
            streams = self.session_streams.get(session, set())
            streams.discard(stream)
            if not streams:
                self.session_streams.pop(session, None)

        return remove

    def _on_event(self, event: Event) -> None:
        request = event.payload
        buffer = self.store.find(request["session"], request["stream"])
        if buffer is None:
            return
        reader, name = buffer.reader, request["reader"]

        is_current = reader is not None and reader.relay_name == name
        if event.kind == "detach":
            if is_current:
                buffer.detach_reader()
        elif event.kind == "attach":
            if is_current:
                topic = build_stream_topic(buffer.session_pk, buffer.token, name)
                self._publisher.publish_soon(EventDraft(topic, "attached"))
            else:
                self._relays.spawn(self._relay(buffer, name, request["after"]))

    async def _relay(self, buffer: ReplayBuffer, name: str, after: int) -> None:
        topic, reader = build_stream_topic(buffer.session_pk, buffer.token, name), None
        if buffer.repeated_bytes <= MAX_REPEATED_BYTES:
            reader = buffer.attach(after, relay_name=name)

        try:
            if reader is None:
                await self._publisher.publish(EventDraft(topic, "dropped"))
                return
            await self._publisher.publish(EventDraft(topic, "attached"))
            while (messages := await reader.read(RELAY_READ_TIMEOUT_SECONDS)) is not None:
                if messages:
                    buffer.repeated_bytes += sum(
                        ROW_OVERHEAD_BYTES + len(message) for n, message in messages if n <= buffer.last_logged_number
                    )
                    buffer.last_logged_number = max(buffer.last_logged_number, messages[-1].number)
                    await self._publisher.publish(*_message_drafts(topic, messages))
            kind, payload = ("end", None) if reader.retry is None else ("released", {"retry": reader.retry})
            await self._publisher.publish(EventDraft(topic, kind, payload))
        except Exception:
            logger.warning("Failed to relay the messages of a call to another worker", exc_info=True)
            if reader is not None:
                reader.close()

    async def _store_finished(self) -> None:
        """Write the streams of finished calls to the log, because the process ends.

        Sent streams are among them, because their last bytes may be lost with a connection.
        """
        for _ in range(MAX_FINAL_READ_CHECKS):
            if not self._relays and not any(buffer.reader is not None for buffer in self.store.list_kept()):
                break
            await asyncio.sleep(FINAL_READ_SECONDS / MAX_FINAL_READ_CHECKS)

        drafts: list[EventDraft] = []
        size = 0
        for buffer in self.store.list_kept():
            topic = build_stream_topic(buffer.session_pk, buffer.token)
            messages = buffer.get_messages_after(buffer.first_number - 1)
            kept = EventDraft(topic, "kept", {"first": buffer.first_number})
            drafts += [kept, *_message_drafts(topic, messages), EventDraft(topic, "end")]
            size += buffer.size
            if len(drafts) >= MAX_BATCH_EVENTS or size >= MAX_BUFFER_BYTES:
                await self._publisher.publish(*drafts)
                drafts, size = [], 0
            self.store.discard(buffer)
        if drafts:
            await self._publisher.publish(*drafts)


class CallStreamRegistry:
    """Registry of call streams; each process has one instance.

    A stream belongs to the loop of its call. Other loops treat it like a stream of another process.
    """

    def __init__(self, publisher: EventPublisher, lifecycle: Lifecycle) -> None:
        self._streams = LoopLocal(partial(CallStreams, publisher, lifecycle.add_cleanup))
        session_closed.connect(self._on_closed, sender=SessionRow)

    def get_loop_streams(self) -> CallStreams:
        """Return the call streams of the running loop."""
        return self._streams.get()

    def open_stream(self, session: ServerSession, *, limits: ReplayLimits) -> ReplayBuffer:
        """Open a stream of a session on the running loop, with its first reader."""
        return self._streams.get().open_stream(session, limits)

    def _on_closed(self, *, session: SessionRow, **kwargs: Any) -> None:
        """End the streams of a session that ended in this process. Thread-safe."""
        for loop, streams in self._streams.items():
            if streams.has_session(session.pk):
                call_threadsafe(loop, streams.end_session, session.pk)


def _message_drafts(topic: str, messages: list[NumberedMessage]) -> list[EventDraft]:
    # As text, so that a message is sent unchanged to the byte.
    return [EventDraft(topic, "message", {"n": n, "text": message.decode()}) for n, message in messages]
