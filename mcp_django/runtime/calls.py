"""The supervisor of calls: each is a task of its own, in a clean context, known to the in-flight table, with a
known end.

Of its own, because a call may outlive its client (handshake era) and because Django cancels a view whose client
went away; in a clean context, because one inherited from sync middleware names an executor that dies with the
request.
"""

import asyncio
import contextvars
import sys
from collections.abc import Callable
from typing import NamedTuple, cast

from ..protocol.errors import InternalError, MCPError
from ..protocol.jsonrpc import Request
from ..protocol.revisions import Era
from ..server.call import Call
from ..server.eras.base import Era as EraStrategy
from ..server.pipeline import Work
from ..server.ports import Overloaded
from ..server.streams import Outbox

Refuse = Callable[[EraStrategy, MCPError, Call], bytes]


class Landing(NamedTuple):
    """How a call ended: with an answer, with an error, or with nothing because it was cancelled."""

    body: bytes
    problem: MCPError | Overloaded | None = None


class InFlight:
    """How many calls each owner has running in this process."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._counts: dict[str, int] = {}

    def enter(self, owner: str) -> bool:
        """Count one call; False when the owner has too many."""
        now = self._counts.get(owner, 0)
        if now >= self.limit:
            return False
        self._counts[owner] = now + 1
        return True

    def leave(self, owner: str) -> None:
        """One call less."""
        left = self._counts[owner] - 1
        if left:
            self._counts[owner] = left
        else:
            del self._counts[owner]

    def __len__(self) -> int:
        return sum(self._counts.values())


class Flight:
    """One running call. `launch` it, wait for its `first` sign, then answer with the landing or read the outbox."""

    __slots__ = (
        "_alarm",
        "_begun",
        "_in_flight",
        "_landing",
        "_loop",
        "_may_stream",
        "_outbox",
        "_owner",
        "_refuse",
        "_settled",
        "_work",
        "call",
        "gone",
        "lost",
        "streaming",
        "task",
    )

    def __init__(self, work: Work, in_flight: InFlight, owner: str, refuse: Refuse) -> None:
        """`owner` has been counted in `in_flight`; the flight leaves it at its end. `refuse` encodes an error."""
        self._refuse = refuse
        self.call, self._work, self._may_stream = work.call, work, work.may_stream
        self._begun = False
        self._outbox: Outbox = self.call.outbox
        self._in_flight, self._owner = in_flight, owner
        self.task: asyncio.Task[None] | None = None
        self.streaming = False
        self.lost = False
        """Cancelled: there will be no answer."""
        self.gone = False
        """The client is."""
        self._landing: Landing | None = None
        self._settled: asyncio.Future[None] | None = None
        self._alarm: asyncio.Handle | None = None

    def launch(self) -> None:
        """Begin. Python 3.12 runs the first step at once, which most calls do not outlast; 3.11 runs it in this
        turn of the loop.
        """
        call = self.call
        if self._may_stream:
            self._outbox.opened = self._stream
        session = call.connection.session
        if session is not None:
            session.in_flight[cast(Request, call.message).id] = self
        context = contextvars.Context()
        loop = self._loop = asyncio.get_running_loop()  # a system call on 3.11, so asked once
        if sys.version_info >= (3, 12):
            self.task = asyncio.Task(self._fly(), loop=loop, context=context, eager_start=True)
        else:
            self.task = asyncio.Task(self._fly(), loop=loop, context=context)

    async def first(self, timeout: float, waiting: Callable[[], None] | None = None) -> Landing | None:
        """The landing, if it comes first and within `timeout` seconds; None when the reply must be a stream.

        The timer, and whatever `waiting` starts, begin only if the call is still in the air after its first step:
        most have landed by then, and until the loop has turned nobody can have left.
        """
        if self._landing is None and self.streaming:
            # It spoke in its first, eager step and goes on: from now on its reader may leave.
            if waiting is not None:
                waiting()
        elif self._landing is None:
            loop = self._loop
            self._settled = loop.create_future()
            self._alarm = loop.call_soon(self._wait, loop, timeout, waiting)
            try:
                await self._settled
            finally:
                self._alarm.cancel()
        return None if self.streaming else self._landing

    def _wait(self, loop: asyncio.AbstractEventLoop, timeout: float, waiting: Callable[[], None] | None) -> None:
        if self._landing is None:
            if self._may_stream:
                self._alarm = loop.call_later(timeout, self._stream)
            if waiting is not None:
                waiting()

    def _stream(self) -> None:
        """From now on the reply is a stream."""
        self.streaming = self._landing is None
        self._settle()

    def _settle(self) -> None:
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)

    async def _fly(self) -> None:
        self._begun = True
        call = self.call
        try:
            landing = Landing(await self._work.run)
        except (MCPError, Overloaded) as problem:
            landing = Landing(b"", problem)
        except asyncio.CancelledError:
            if not self.lost:
                self.lost = call.cancelled = True
            landing = Landing(b"")
        finally:
            self._leave()
        self._land(landing)

    def _leave(self) -> None:
        session = self.call.connection.session
        if session is not None:
            session.in_flight.pop(cast(Request, self.call.message).id, None)
        # No cycle may be left: collecting it would cost more than the call.
        self._outbox.opened = None
        self._in_flight.leave(self._owner)

    def _land(self, landing: Landing) -> None:
        self._landing = landing
        if self.streaming:
            self._outbox.finish(self._last(landing))
        else:
            self._settle()

    def _last(self, landing: Landing) -> bytes | None:
        problem = landing.problem
        if isinstance(problem, Overloaded):
            problem = InternalError(str(problem))
        return (landing.body or None) if problem is None else self._refuse(self.call.era, problem, self.call)

    def disconnected(self) -> None:
        """The client went away: the end of a stateless call; a handshake call goes on without a reader
        (basic/transports).
        """
        self.gone = True
        self._outbox.cut()
        if self.call.revision.era is Era.STATELESS:
            self.cancel()
        self._settle()

    def cancel(self) -> None:
        """Give the call up; nothing more is sent for it."""
        if self.task is not None and not self.task.done() and not self.lost:
            self.lost = self.call.cancelled = True
            self._outbox.cut()
            self.task.cancel()
            if not self._begun:
                # A task cancelled before its first step runs nothing, not even what it would do at its end.
                self._work.close()
                self._leave()
                self._land(Landing(b""))
