"""GET streams: open the stream of a session, or resume an interrupted one.

Handshake era (basic/transports).
"""

from contextlib import ExitStack

from mcp_django.protocol.errors import TransportRefusal
from mcp_django.protocol.headers import LAST_EVENT_ID, Headers
from mcp_django.runtime.shutdown import SHUTDOWN_MESSAGE
from mcp_django.runtime.streams.event_ids import SESSION_STREAM, EventId
from mcp_django.runtime.streams.reader import StreamReader
from mcp_django.runtime.streams.remote_reader import StreamGoneError
from mcp_django.runtime.streams.replay_buffer import ReplayReader
from mcp_django.runtime.streams.session_stream import EventsExpiredError, SessionStream
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.ports import Overloaded
from mcp_django.transports.http.sse_body import NumberedSource
from mcp_django.transports.services import TransportServices

INVALID_EVENT_ID_BODY = b"Last-Event-ID is unknown in this session; open the stream without it."
EVENTS_EXPIRED_BODY = (
    b"The events after this Last-Event-ID have expired; open a stream without it and repeat your requests."
)


class SessionStreamOpener:
    """Opens the GET streams of the sessions of one server."""

    def __init__(self, services: TransportServices) -> None:
        self._services = services
        self.get_call_streams = services.call_streams.get_loop_streams

    async def open_source(self, session: ServerSession, connection: Connection) -> NumberedSource:
        """Open the stream for a request. Raises TransportRefusal, Overloaded."""
        if self._services.lifecycle.is_draining():
            raise Overloaded(SHUTDOWN_MESSAGE)
        last_event_id = self._parse_last_event_id(session, connection.headers or Headers())
        owner = connection.principal.key
        self._services.stream_limiter.acquire(owner)
        try:
            reader = await self._open_reader(session, last_event_id, connection)
        except BaseException as error:
            self._services.stream_limiter.release(owner)
            if isinstance(error, StreamGoneError | EventsExpiredError):
                raise TransportRefusal(400, body=EVENTS_EXPIRED_BODY) from None
            raise

        stream = SESSION_STREAM if last_event_id is None else last_event_id.stream
        return NumberedSource(
            reader,
            self._services.event_ids.create_factory(session.key, stream),
            polling=session.revision.polling,
            # An open stream counts as use of its session.
            on_read=lambda: self._services.server.ports.sessions.touch(session),
            on_close=self._register(session, reader, owner),
        )

    def _parse_last_event_id(self, session: ServerSession, headers: Headers) -> EventId | None:
        header = headers.wire.get(LAST_EVENT_ID)
        if not header:
            return None
        event_id = self._services.event_ids.parse(session.key, header)
        if event_id is None:
            raise TransportRefusal(400, body=INVALID_EVENT_ID_BODY)
        return event_id

    async def _open_reader(
        self, session: ServerSession, last_event_id: EventId | None, connection: Connection
    ) -> StreamReader:
        if last_event_id is not None and last_event_id.stream != SESSION_STREAM:
            return await self.get_call_streams().resume(
                session, last_event_id.stream, last_event_id.number, max_waiting=self._services.limits.events
            )
        stream = self._services.create_session_stream(session)
        await stream.open(None if last_event_id is None else last_event_id.number, connection)
        return stream

    def _register(self, session: ServerSession, reader: StreamReader, owner: str) -> ExitStack:
        """Register a stream to end with its session and process; return its cleanup."""
        cleanup_callbacks = ExitStack()
        cleanup_callbacks.callback(self._services.stream_limiter.release, owner)
        if not isinstance(reader, ReplayReader):
            # A stream of a call is read to its end in the process of the call. A remote stream can end at once.
            cleanup_callbacks.callback(self._services.lifecycle.add_drain_callback(reader.end))
            cleanup_callbacks.callback(self.get_call_streams().add_session_stream(session.pk, reader))
        if isinstance(reader, SessionStream):
            session.open_streams += 1
            cleanup_callbacks.callback(_uncount_open_stream, session)
        return cleanup_callbacks


def _uncount_open_stream(session: ServerSession) -> None:
    session.open_streams -= 1
