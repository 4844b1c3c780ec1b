"""The session of a connection, and its stream."""

from collections.abc import Callable

from django.db import Error

from mcp_django.models import EndReason
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.streams.call_streams import CallStreams
from mcp_django.runtime.streams.session_stream import EventsExpiredError, SessionStream
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.ports import Overloaded, SessionStore

logger = get_logger("mcp_django.server")

READ_TIMEOUT_SECONDS = 60.0
"""Seconds that one read of a silent stream waits."""


class ConnectionSession:
    """A session with the lifetime of its connection.

    It is a row like any other: administrators can see it and end it.
    """

    def __init__(
        self,
        session: ServerSession,
        create_stream: Callable[[ServerSession], SessionStream],
        sessions: SessionStore,
        connection: Connection,
    ) -> None:
        self.session = session
        self._create_stream = create_stream
        self._sessions = sessions
        self._connection = connection
        self.stream = create_stream(session)
        self._unregister: Callable[[], None] | None = None
        self._is_detached = self._is_session_ended = False
        session.open_streams += 1

    async def open(self, call_streams: CallStreams) -> None:
        """Open the stream of the session. Raises django.db.Error, Overloaded."""
        await self.stream.open(None, self._connection)
        if self._is_detached:
            self.stream.close()
        else:
            self._unregister = call_streams.add_session_stream(self.session.pk, self)

    async def forward_messages(self, outbox: Outbox) -> None:
        """Forward messages of the session's stream to the connection until its end."""
        while True:
            while (messages := await self.stream.read(READ_TIMEOUT_SECONDS)) is not None:
                for message in messages:
                    await outbox.put(message.message)
            if self._is_finished() or not self.stream.has_overflowed or not await self._reopen_stream():
                return

    async def _reopen_stream(self) -> bool:
        """Reopen an overflowed stream after the last message that was read.

        A client of Streamable HTTP resumes in the same way.
        """
        position = self.stream.position
        self.stream.close()
        self.stream = self._create_stream(self.session)
        try:
            await self.stream.open(position, self._connection)
        except (Error, Overloaded, EventsExpiredError) as error:
            logger.warning("The stream of a session could not be resumed", exc_info=error)
            return False
        if self._is_finished():
            self.stream.close()
        return not self._is_finished()

    def _is_finished(self) -> bool:
        return self._is_detached or self._is_session_ended

    def end(self) -> None:
        """Handle the end of the session by another cause. Pending messages are still forwarded."""
        self._is_session_ended = True
        self.stream.end()

    def detach(self) -> None:
        """Detach from the session's stream. May be called more than once."""
        self.stream.close()
        if not self._is_detached:
            self._is_detached = True
            self.session.open_streams -= 1
            if self._unregister is not None:
                self._unregister()

    async def close(self) -> None:
        """End the session for all processes. Never raises if the database is unavailable."""
        self.detach()
        await end_session(self._sessions, self.session)


async def end_session(sessions: SessionStore, session: ServerSession) -> None:
    """End a session whose connection is closed."""
    try:
        await sessions.end(session, EndReason.CLOSED)
    except (Error, Overloaded) as problem:
        logger.warning("A session could not be ended in the database; it expires there", exc_info=problem)
