"""Supervision of calls: each call runs as a separate task in a clean context.

A separate task, because a call may outlive its client (handshake era) and Django cancels a view whose client
disconnects. A clean context, because a context inherited from sync middleware refers to an executor that ends with the
request. Running calls are registered in the table of in-flight requests.
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
    """Factory of resumable streams."""

    def open(self, session: Session) -> Ring:
        """Open a stream with its first reader."""


class Landing(NamedTuple):
    """Result of a call: an answer, an error, or an empty body for a cancelled call."""

    body: bytes
    problem: MCPError | Overloaded | None = None


class Flight:
    """Running call of a client.

    Call `start`, then `wait_for_output`. Then send the result, or read the message queue as a stream.
    """

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
        """Create the task of a call that is counted in `limiter` for `owner`.

        The task releases the count at its end. `encode_error` encodes an error. `get_replay_buffers` returns the
        factory of resumable streams, if sessions have them.
        """
        self._decline, self._lifecycle = decline, lifecycle
        self.call, self._work, self._may_stream = work.call, work, work.may_stream

        self._begun = False
        self._outbox: Outbox = self.call.outbox
        self._in_flight, self._owner, self._rings = in_flight, owner, rings
        self.task: asyncio.Task[None] | None = None
        self.streaming = False
        self.reader: Reader | None = None
        """Reader of a resumable stream; None if the client reads the message queue."""

        self.lost = False
        """True after a cancellation; no answer is sent."""
        self.gone = False
        """True after the client disconnected."""

        self._answered = False
        self._after: Afterwards | None = None
        self._landing: Landing | None = None
        self._settled: asyncio.Future[None] | None = None
        self._alarm: asyncio.Handle | None = None

    def launch(self, context: contextvars.Context | None = None) -> None:
        """Start the call in `context`, or in a clean context by default.

        Python 3.12 runs the first step eagerly, and most calls finish in it. Python 3.11 runs it in this iteration of
        the loop.
        """
        call = self.call
        if self._may_stream and not self.streaming:
            self._outbox.opened = self._stream

        context = contextvars.Context() if context is None else context
        loop = self.loop = self._outbox.loop = asyncio.get_running_loop()  # a system call on 3.11, so called once

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
        """Send all messages to an open sink, the answer too if `includes_answer`.

        Call it before `start`.
        """
        self._outbox.hand_over(track)
        self.streaming, self._answered = answers, True

    async def first(self, timeout: float, waiting: Callable[[], None] | None = None) -> Landing | None:
        """Return the result if it arrives within `timeout` seconds; None for a stream.

        The timer and `on_wait` start only if the call is still running after its first step. Most calls are done by
        then, and a client cannot disconnect before the next iteration of the loop.
        """
        if self._landing is None and self.streaming:
            # Messages were sent during the first, eager step; from now on the client may disconnect.
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
        """Switch the reply to a stream."""
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
        logger.info("Client stopped reading the messages of its call; treating it as disconnected")
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
            # Nothing more is sent after a cancellation, whatever the error.
            landing = Landing(b"", None if self.lost else problem)
        except asyncio.CancelledError:
            if not self.lost:
                self.lost = call.cancelled = True
            landing = Landing(b"")
        except BaseException:
            # The exception ends the loop's task; the waiting client must still get an answer.
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
        """Run the background jobs under `async_to_sync`; otherwise schedule them."""
        if is_inline():
            await run_jobs(self._work.calls)
            return
        self._after = Afterwards(self._work.calls, self._lifecycle)
        if self._answered:
            self._after.begin()

    @property
    def answered(self) -> bool:
        """True after the transport has sent its whole response."""
        return self._answered

    @answered.setter
    def answered(self, answered: bool) -> None:
        # Set from any thread.
        self._answered = answered
        if answered and self._after is not None:
            self._after.begin()

    def _leave(self) -> None:
        in_flight = self.call.connection.in_flight
        if in_flight is not None and not self._work.in_batch:
            in_flight.pop(cast(Request, self.call.message).id, None)
        # Break the reference cycle: collecting it would cost more than the call.
        self._outbox.opened = self._outbox.abandoned = None
        self._in_flight.leave(self._owner, self._work.weight)
        self._lifecycle.flights.discard(self)

    def _land(self, landing: Landing) -> None:
        if self._landing is not None:
            return  # the call was aborted, which was its answer
        self._landing = landing
        if self.streaming:
            self._outbox.finish(self.answer(landing))
        else:
            # Tasks left by the handler may still send messages, and must not wait for a reader.
            self._outbox.finish()
            self._settle()

    def answer(self, landing: Landing) -> bytes | None:
        """Return the encoded answer of a result; None for a cancelled call."""
        problem = landing.problem
        if isinstance(problem, Overloaded):
            problem = InternalError(str(problem))
        return (landing.body or None) if problem is None else self.decline(problem)

    def decline(self, problem: MCPError) -> bytes:
        """Return an encoded error response."""
        return self._decline(self._work, problem)

    def disconnected(self) -> None:
        """Handle the client's disconnection.

        A stateless call is cancelled. A handshake call continues without a reader (basic/transports), and its stream
        buffers the messages. Without a resumable stream the client has no id to reconnect with.
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
        """Return the loop that the call runs on."""
        return self.loop

    def cancel(self) -> None:
        """Cancel the call; nothing more is sent."""
        if self.call.method == OPENING:
            return  # must not be cancelled (basic/utilities/cancellation), and its session would remain open
        if self.task is not None and not self.task.done() and not self.lost:
            self._outbox.cut()
            self._give_up(self.task)
            if not self._begun:
                self._land(Landing(b""))

    def shut_down(self) -> None:
        """Cancel the call because the process ends, and answer with an error."""
        if self.task is not None and not self.task.done() and not self.lost:
            self._land(Landing(b"", Overloaded(CLOSING)))
            self._give_up(self.task)

    def _give_up(self, task: asyncio.Task[None]) -> None:
        self.lost = self.call.cancelled = True
        task.cancel()
        if not self._begun:
            # A task cancelled before its first step runs no code at all, not even its cleanup.
            self._work.close()
            self._leave()
