"""The session that a client opened on a channel, and its own stream."""

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
"""Seconds between two looks at a stream that says nothing."""


class Ends(Protocol):
    """What ends with a session."""

    def end(self) -> None:
        """The session is over."""


Keep = Callable[[Any, Ends], Callable[[], None]]
"""Has something end with the session of this primary key; what it returns takes that back."""


class _Tie:
    """Hears that the session is over, whichever of its streams is open then."""

    def __init__(self, own: "OwnSession") -> None:
        self._own = own

    def end(self) -> None:
        self._own.over()


class OwnSession:
    """A session as long as its channel. It is a row like any other: operators see it and end it."""

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
        """Listen from now on. Raises django.db.Error, Overloaded."""
        await self.stream.open(None, self._connection)
        if self._left:
            self.stream.leave()
        else:
            self._untie = keep(self.session.pk, _Tie(self))

    async def tell(self, channel: Outbox) -> None:
        """Pass on what the session is told beside its calls, to its end."""
        while True:
            while (said := await self.stream.read(SILENCE)) is not None:
                for message in said:
                    await channel.put(message.message)
            if self._is_over() or not self.stream.was_full or not await self._come_back():
                return

    async def _come_back(self) -> bool:
        """Go on after what was read, as a client of Streamable HTTP does: more was said at once than a stream holds."""
        after = self.stream.position
        self.stream.leave()
        self.stream = self._make_stream(self.session)
        try:
            await self.stream.open(after, self._connection)
        except (Error, Overloaded, Missed) as problem:
            logger.warning("What a session was told could not be read on", exc_info=problem)
            return False
        if self._is_over():
            self.stream.leave()
        return not self._is_over()

    def _is_over(self) -> bool:
        return self._left or self._over

    def over(self) -> None:
        """The session has ended. What waits is told still."""
        self._over = True
        self.stream.end()

    def leave(self) -> None:
        """Nobody listens any more. May be called more than once."""
        self.stream.leave()
        if not self._left:
            self._left = True
            self.session.streams -= 1
            if self._untie is not None:
                self._untie()

    async def end(self) -> None:
        """End it everywhere. Never raises for a database that does not answer."""
        self.leave()
        await end_session(self._sessions, self.session)


async def end_session(sessions: SessionStore, session: Session) -> None:
    """End a session whose channel is closed."""
    try:
        await sessions.end(session, EndReason.CLOSED)
    except (Error, Overloaded) as problem:
        logger.warning("A session could not be ended in the database; it expires there", exc_info=problem)
