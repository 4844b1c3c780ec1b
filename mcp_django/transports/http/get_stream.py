"""GET streams: open the stream of a session, or resume an interrupted one.

Handshake era (basic/transports).
"""

from collections.abc import Callable

from mcp_django.protocol.errors import TransportRefusal
from mcp_django.protocol.headers import LAST_EVENT_ID, Headers
from mcp_django.runtime.shutdown import CLOSING, Lifecycle
from mcp_django.runtime.streams.event_ids import OWN, EventId, EventIds
from mcp_django.runtime.streams.relay import CallStreams
from mcp_django.runtime.streams.remote_reader import Gone, RemoteReader
from mcp_django.runtime.streams.replay_buffer import Reader
from mcp_django.runtime.streams.session_stream import Missed, OwnStream
from mcp_django.runtime.subscriptions import Listens
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.session import Session
from mcp_django.server.ports import Overloaded, SessionStore
from mcp_django.transports.http.sse_body import Events

AnyReader = Reader | RemoteReader | OwnStream
NOT_YOURS = b"Last-Event-ID is unknown in this session; open the stream without it."
MISSED = b"The events after this Last-Event-ID have expired; open a stream without it and repeat your requests."


class SessionStreams:
    """Opens the GET streams of the sessions of one server."""

    def __init__(
        self,
        *,
        ids: EventIds,
        streams: Callable[[], CallStreams],
        own: Callable[[Session], OwnStream],
        listens: Listens,
        lifecycle: Lifecycle,
        sessions: SessionStore,
    ) -> None:
        """Set the dependencies; `limiter` counts open streams."""
        self.ids, self.streams, self._own = ids, streams, own
        self._listens, self._lifecycle, self._sessions = listens, lifecycle, sessions

    async def open(self, session: Session, connection: Connection) -> Events:
        """Open the stream for a request. Raises TransportRefusal, Overloaded."""
        if self._lifecycle.has_drained and self._lifecycle.is_draining():
            raise Overloaded(CLOSING)
        wanted, owner = self._wanted(session, connection.headers or Headers()), connection.principal.key
        self._listens.enter(owner)
        try:
            reader = await self._reader(session, wanted, connection)
        except BaseException as problem:
            self._listens.leave(owner)
            if isinstance(problem, Gone | Missed):
                raise TransportRefusal(400, body=MISSED) from None
            raise

        stream = OWN if wanted is None else wanted.stream
        return Events(
            reader,
            self.ids.of(session.key, stream),
            polling=session.revision.polling,
            # An open stream counts as use of its session.
            alive=lambda: self._sessions.touch(session),
            on_end=self._tie(session, reader, owner),
        )

    def _wanted(self, session: Session, headers: Headers) -> EventId | None:
        last = headers.get(LAST_EVENT_ID)
        if not last:
            return None
        found = self.ids.read(session.key, last)
        if found is None:
            raise TransportRefusal(400, body=NOT_YOURS)
        return found

    async def _reader(self, session: Session, wanted: EventId | None, connection: Connection) -> AnyReader:
        if wanted is not None and wanted.stream != OWN:
            return await self.streams().resume(session, wanted.stream, wanted.n)
        own = self._own(session)
        await own.open(None if wanted is None else wanted.n, connection)
        return own

    def _tie(self, session: Session, reader: AnyReader, owner: str) -> Callable[[], None]:
        """Register a stream to end with its session and process; return its cleanup."""
        own = isinstance(reader, OwnStream)
        untie: list[Callable[[], None]] = [lambda: self._listens.leave(owner)]
        if not isinstance(reader, Reader):
            # A stream of a call is read to its end in the process of the call. A remote stream can end at once.
            untie += [self._lifecycle.on_drain(reader.end), self.streams().keep(session.pk, reader)]
        if own:
            session.streams += 1

        def ended() -> None:
            for undo in untie:
                undo()
            if own:
                session.streams -= 1

        return ended
