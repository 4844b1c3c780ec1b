"""The supervisor of calls: each is a task of its own, in a clean context, known to the in-flight table, with a
known end.

Of its own, because a call may outlive its client (handshake era) and because Django cancels a view whose client
went away; in a clean context, because one inherited from sync middleware names an executor that dies with the
request.
"""

import asyncio
import contextvars
import logging
import sys
from collections.abc import Callable
from typing import NamedTuple, Protocol, cast

from mcp_django.protocol.errors import InternalError, MCPError
from mcp_django.protocol.jsonrpc import Request
from mcp_django.protocol.revisions import Era
from mcp_django.runtime.calls.background import Afterwards
from mcp_django.runtime.calls.concurrency import InFlight
from mcp_django.runtime.shutdown import CLOSING, Lifecycle
from mcp_django.runtime.streams.replay_buffer import Reader, Ring
from mcp_django.runtime.threads.executor import is_inline
from mcp_django.server.calls.message_queue import Outbox, Track
from mcp_django.server.calls.pending import Work
from mcp_django.server.calls.session import Session
from mcp_django.server.context.background import run_jobs
from mcp_django.server.eras.handshake import OPENING
from mcp_django.server.ports import Overloaded

logger = logging.getLogger("mcp_django.server")

Decline = Callable[[Work, MCPError], bytes]


class Rings(Protocol):
    """Where streams are opened that can be resumed."""

    def open(self, session: Session) -> Ring:
        """A new stream, with its first reader."""


class Landing(NamedTuple):
    """How a call ended: with an answer, with an error, or with nothing because it was cancelled."""

    body: bytes
    problem: MCPError | Overloaded | None = None


class Flight:
    """One running call. `launch` it, wait for its `first` sign, then answer with the landing or read the outbox."""

    is_call = True
    __slots__ = (
        "_after",
        "_alarm",
        "_answered",
        "_begun",
        "_decline",
        "_in_flight",
        "_landing",
        "_lifecycle",
        "_may_stream",
        "_outbox",
        "_owner",
        "_rings",
        "_settled",
        "_work",
        "call",
        "gone",
        "loop",
        "lost",
        "reader",
        "streaming",
        "task",
    )

    def __init__(
        self,
        work: Work,
        in_flight: InFlight,
        owner: str,
        decline: Decline,
        lifecycle: Lifecycle,
        *,
        rings: Callable[[], Rings] | None = None,
    ) -> None:
        """The work's calls have been counted in `in_flight` for `owner`; the flight takes them off at its end.
        `decline` encodes an error; `rings` gives what remembers the streams of sessions, where they can be resumed.
        """
        self._decline, self._lifecycle = decline, lifecycle
        self.call, self._work, self._may_stream = work.call, work, work.may_stream
        self._begun = False
        self._outbox: Outbox = self.call.outbox
        self._in_flight, self._owner, self._rings = in_flight, owner, rings
        self.task: asyncio.Task[None] | None = None
        self.streaming = False
        self.reader: Reader | None = None
        """The client's place on a stream that can be resumed; None where it reads the outbox."""
        self.lost = False
        """Cancelled: there will be no answer."""
        self.gone = False
        """The client is."""
        self._answered = False
        self._after: Afterwards | None = None
        self._landing: Landing | None = None
        self._settled: asyncio.Future[None] | None = None
        self._alarm: asyncio.Handle | None = None

    def launch(self, context: contextvars.Context | None = None) -> None:
        """Begin, in `context` or a clean one of its own. Python 3.12 runs the first step at once, which most calls do
        not outlast; 3.11 runs it in this turn of the loop.
        """
        call = self.call
        if self._may_stream and not self.streaming:
            self._outbox.opened = self._stream
        context = contextvars.Context() if context is None else context
        loop = self.loop = self._outbox.loop = asyncio.get_running_loop()  # a system call on 3.11, so asked once
        in_flight = call.connection.in_flight
        if in_flight is not None and not self._work.in_batch:
            in_flight[cast(Request, call.message).id] = self
        self._lifecycle.board(self)
        flying = self._fly()
        try:
            if sys.version_info >= (3, 12):
                self.task = asyncio.Task(flying, loop=loop, context=context, eager_start=True)
            else:
                self.task = asyncio.Task(flying, loop=loop, context=context)
        except BaseException:
            if not self._begun:
                flying.close()
                self._work.close()
                self._leave()
            raise

    def share(self, track: Track, *, answers: bool) -> None:
        """Say everything on a way that is open already, the answer too if it `answers` there. Before `launch`."""
        self._outbox.hand_over(track)
        self.streaming, self._answered = answers, True

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
            loop = self.loop
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
        if self._landing is None and not self.streaming:
            self.streaming = True
            session = self.call.connection.session
            if session is None or self._rings is None:
                self._outbox.abandoned = self._abandoned
            else:
                ring = self._rings().open(session)
                self.reader = ring.reader
                self._outbox.hand_over(ring)
        self._settle()

    def _abandoned(self) -> None:
        logger.info("A client has stopped reading the messages of its call, and counts as gone")
        self.disconnected()

    def _settle(self) -> None:
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)

    async def _fly(self) -> None:
        self._begun = True
        call = self.call
        try:
            landing = Landing(await self._work.run)
        except (MCPError, Overloaded) as problem:
            # After a cancellation nothing more is sent, whatever came of it.
            landing = Landing(b"", None if self.lost else problem)
        except asyncio.CancelledError:
            if not self.lost:
                self.lost = call.cancelled = True
            landing = Landing(b"")
        except BaseException:
            # It is for the loop, which may live on: who waits must not wait for ever.
            self._land(Landing(b"", InternalError()))
            raise
        finally:
            for one in self._work.calls:
                if one.fate.jobs is not None:
                    await self._afterwards()
                    break
            self._leave()
        self._land(landing)

    async def _afterwards(self) -> None:
        """See to what was left for when the call is answered: now, where nothing can come after the answer."""
        if is_inline():
            await run_jobs(self._work.calls)
            return
        self._after = Afterwards(self._work.calls, self._lifecycle)
        if self._answered:
            self._after.begin()

    @property
    def answered(self) -> bool:
        """Has the door sent all that it will send?"""
        return self._answered

    @answered.setter
    def answered(self, answered: bool) -> None:
        # Said from whatever thread.
        self._answered = answered
        if answered and self._after is not None:
            self._after.begin()

    def _leave(self) -> None:
        in_flight = self.call.connection.in_flight
        if in_flight is not None and not self._work.in_batch:
            in_flight.pop(cast(Request, self.call.message).id, None)
        # No cycle may be left: collecting it would cost more than the call.
        self._outbox.opened = self._outbox.abandoned = None
        self._in_flight.leave(self._owner, self._work.weight)
        self._lifecycle.flights.discard(self)

    def _land(self, landing: Landing) -> None:
        if self._landing is not None:
            return  # it was shut down, and that was its answer
        self._landing = landing
        if self.streaming:
            self._outbox.finish(self.answer(landing))
        else:
            # What the handler left running may speak on, and must not wait for a reader.
            self._outbox.finish()
            self._settle()

    def answer(self, landing: Landing) -> bytes | None:
        """The answer that a call ended with, encoded; None when it was cancelled."""
        problem = landing.problem
        if isinstance(problem, Overloaded):
            problem = InternalError(str(problem))
        return (landing.body or None) if problem is None else self.decline(problem)

    def decline(self, problem: MCPError) -> bytes:
        """An error in place of the answer, encoded."""
        return self._decline(self._work, problem)

    def disconnected(self) -> None:
        """The client went away: the end of a stateless call; a handshake call goes on without a reader
        (basic/transports), and its stream remembers what it says. Without a stream nobody has an id to come back with.
        """
        self.gone = self.answered = True
        if self.reader is not None:
            self.reader.leave()
            return
        self._outbox.cut()
        if self.call.revision.era is Era.STATELESS:
            self.cancel()
        self._settle()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that it runs on."""
        return self.loop

    def cancel(self) -> None:
        """Give the call up; nothing more is sent for it."""
        if self.call.method == OPENING:
            return  # it must not be cancelled (basic/utilities/cancellation), and nobody would end its session
        if self.task is not None and not self.task.done() and not self.lost:
            self._outbox.cut()
            self._give_up(self.task)
            if not self._begun:
                self._land(Landing(b""))

    def shut_down(self) -> None:
        """Give the call up because the process ends; the client is told so."""
        if self.task is not None and not self.task.done() and not self.lost:
            self._land(Landing(b"", Overloaded(CLOSING)))
            self._give_up(self.task)

    def _give_up(self, task: asyncio.Task[None]) -> None:
        self.lost = self.call.cancelled = True
        task.cancel()
        if not self._begun:
            # A task cancelled before its first step runs nothing, not even what it would do at its end.
            self._work.close()
            self._leave()
