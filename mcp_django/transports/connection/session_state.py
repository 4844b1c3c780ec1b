"""The only session of a connection: absent, being opened by `initialize`, or open."""

import asyncio

from mcp_django.aio.tasks import run_in_background
from mcp_django.protocol import jsonrpc
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.session import Cancellable, ServerSession
from mcp_django.transports.connection.session import ConnectionSession, end_session
from mcp_django.transports.services import TransportServices


class SessionState:
    """Session of a connection, and the messages that wait until it is open."""

    def __init__(self, services: TransportServices, connection: Connection) -> None:
        """Set the connection object of the calls of the handshake era, which gets the session."""
        self._services = services
        self.connection = connection
        self._own_session: ConnectionSession | None = None
        self._opened: asyncio.Event | None = None
        """Event set after a session was opened; None while no session is being opened."""
        self._is_detached = False

    @property
    def session(self) -> ServerSession | None:
        """Session that the client opened on this connection, or None."""
        return self.connection.session

    @property
    def is_opening(self) -> bool:
        """True while a session is being opened."""
        return self._opened is not None

    def start_opening(self) -> None:
        """Let messages wait, because a client has sent `initialize`."""
        self._opened = asyncio.Event()

    def finish_opening(self) -> None:
        """Wake the messages that wait, whether or not a session was opened."""
        if self._opened is not None:
            self._opened.set()
            self._opened = None

    async def wait_until_opened(self) -> None:
        """Wait while a session is being opened."""
        if self._opened is not None:
            await self._opened.wait()

    async def attach(
        self, session: ServerSession, in_flight: dict[jsonrpc.Id, Cancellable], *, is_wanted: bool
    ) -> ConnectionSession | None:
        """Attach a session to the connection; return it if its messages are to be forwarded.

        The session's stream is opened before the client gets the answer, so that no message is missed. Raises
        django.db.Error, Overloaded.
        """
        sessions = self._services.pipeline.server.ports.sessions
        if self._has_ended() or not is_wanted:
            await end_session(sessions, session)
            return None

        session.in_flight = in_flight
        self.connection.session = session
        own_session = self._own_session = ConnectionSession(
            session, self._services.create_session_stream, sessions, self.connection
        )
        try:
            await own_session.open(self._services.call_streams.get_loop_streams())
        except BaseException:
            self._own_session = self.connection.session = None
            run_in_background(own_session.close())
            raise
        return None if self._has_ended() else own_session

    def _has_ended(self) -> bool:
        return self._is_detached

    def detach(self) -> None:
        """Detach from the stream of the session, because the connection has ended."""
        self._is_detached = True
        if self._own_session is not None:
            self._own_session.detach()

    async def close(self) -> None:
        """End the session for all processes."""
        if self._own_session is not None:
            await self._own_session.close()
