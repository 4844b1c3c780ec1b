"""The session of a connection, and its stream."""

import logging
from collections.abc import Callable
from typing import Any, Protocol

from django.db import Error

from mcp_django.models import EndReason
from mcp_django.runtime.streams.session_stream import Missed, OwnStream
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.session import Session
from mcp_django.server.ports import Overloaded, SessionStore

logger = logging.getLogger("mcp_django.server")

SILENCE = 60.0
"""Seconds that one read of a silent stream waits."""


class Ends(Protocol):
    """An object that is ended with its session."""

    def end(self) -> None:
        """Handle the end of the session."""


Keep = Callable[[Any, Ends], Callable[[], None]]
"""Function that registers an object to end with a session; returns its removal."""


class _Tie:
    """Forwards the end of the session, independent of the stream that is open then."""

    def __init__(self, own: "OwnSession") -> None:
        self._own = own

    def end(self) -> None:
        self._own.over()


class OwnSession:
    """A session with the lifetime of its connection.

    It is a row like any other: administrators can see it and end it.
    """

    def __init__(
        self,
        session: Session,
        make_stream: Callable[[Session], OwnStream],
        sessions: SessionStore,
        connection: Connection,
    ) -> None:
        self.session, self._make_stream, self._sessions, self._connection = session, make_stream, sessions, connection
        self.stream = make_stream(session)
        self._untie: Callable[[], None] | None = None
        self._left = self._over = False
        session.streams += 1

    async def open(self, keep: Keep) -> None:
        """Open the stream of the session. Raises django.db.Error, Overloaded."""
        await self.stream.open(None, self._connection)
        if self._left:
            self.stream.leave()
        else:
            self._untie = keep(self.session.pk, _Tie(self))

    async def tell(self, channel: Outbox) -> None:
        """Forward messages of the session's stream to the connection until its end."""
        while True:
            while (said := await self.stream.read(SILENCE)) is not None:
                for message in said:
                    await channel.put(message.message)
            if self._is_over() or not self.stream.was_full or not await self._come_back():
                return

    async def _come_back(self) -> bool:
        """Reopen an overflowed stream after the last message that was read.

        A client of Streamable HTTP resumes in the same way.
        """
        after = self.stream.position
        self.stream.leave()
        self.stream = self._make_stream(self.session)
        try:
            await self.stream.open(after, self._connection)
        except (Error, Overloaded, Missed) as problem:
            logger.warning("The stream of a session could not be resumed", exc_info=problem)
            return False
        if self._is_over():
            self.stream.leave()
        return not self._is_over()

    def _is_over(self) -> bool:
        return self._left or self._over

    def over(self) -> None:
        """Handle the end of the session. Pending messages are still forwarded."""
        self._over = True
        self.stream.end()

    def leave(self) -> None:
        """Detach from the session's stream. May be called more than once."""
        self.stream.leave()
        if not self._left:
            self._left = True
            self.session.streams -= 1
            if self._untie is not None:
                self._untie()

    async def end(self) -> None:
        """End the session for all processes. Never raises if the database is unavailable."""
        self.leave()
        await end_session(self._sessions, self.session)


async def end_session(sessions: SessionStore, session: Session) -> None:
    """End a session whose connection is closed."""
    try:
        await sessions.end(session, EndReason.CLOSED)
    except (Error, Overloaded) as problem:
        logger.warning("A session could not be ended in the database; it expires there", exc_info=problem)
