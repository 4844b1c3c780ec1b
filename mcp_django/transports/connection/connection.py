"""A client with a channel of its own: a socket, a pipe, a stream with its POSTs.

Messages come in one by one, and whatever goes out shares the way back: answers, what handlers say, questions, changes.
WebSocket, HTTP+SSE and stdio are thin transports around this.
"""

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from django.db import Error

from mcp_django.aio.tasks import run_aside
from mcp_django.auth.throttling.checks import TOO_MANY, admit_messages
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError, InvalidRequest, MCPError, UnsupportedProtocolVersion
from mcp_django.protocol.meta import PROTOCOL_VERSION
from mcp_django.protocol.revisions import HANDSHAKE, Era
from mcp_django.runtime.calls.concurrency import InFlight
from mcp_django.runtime.calls.task import Flight, Landing
from mcp_django.runtime.shutdown import CLOSING
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import Receipt, Work
from mcp_django.server.calls.session import Cancellable, Session
from mcp_django.server.eras import select
from mcp_django.server.eras.base import Era as EraStrategy
from mcp_django.server.eras.handshake import OPENING
from mcp_django.server.ports import Overloaded, Principal
from mcp_django.server.subscriptions.listen import Subscription
from mcp_django.transports.connection.backpressure import waiting
from mcp_django.transports.connection.credential import Standing
from mcp_django.transports.connection.dependencies import Shared
from mcp_django.transports.connection.message_kinds import (
    about,
    busy,
    is_aside,
    is_notification,
    opens,
    waits_for_session,
)
from mcp_django.transports.connection.options import Ending, Terms
from mcp_django.transports.connection.session import OwnSession, end_session
from mcp_django.transports.connection.sink import Way
from mcp_django.transports.connection.subscriptions import ChangePump
from mcp_django.transports.credential_monitor import Warranted

logger = logging.getLogger("mcp_django.server")

PATIENCE = 32
"""Messages in a row that may be too many; then the channel ends."""


class Duplex:
    """One channel. Its transport feeds `receive`, sends what `read` gives, and calls `close` at the end."""

    def __init__(self, shared: Shared, principal: Principal, terms: Terms) -> None:
        self._shared, self._terms, self._pipeline, self._limits = shared, terms, shared.pipeline, shared.limits
        self._owner, self._loop = principal.key, asyncio.get_running_loop()
        self.ending: Ending | None = None
        """Why it ended; None while it is open."""
        self.on_end: Callable[[], None] | None = None
        """Called once when it ends, for a transport that is stuck in sending."""
        self._channel = Outbox(shared.limits.unsent, patience=shared.limits.unsent_wait)
        self._channel.loop, self._channel.abandoned = self._loop, partial(self.end, Ending.BEHIND)
        self._calls: dict[jsonrpc.Id, Cancellable] = {}
        self._running = InFlight(shared.limits.in_flight)
        self._subscriptions: dict[jsonrpc.Id, Subscription] = {}
        self._changes = ChangePump(self._channel, self._subscriptions, self._spawn)
        self._stateless, self._handshake = self._connect(principal), self._connect(principal)
        self._own: OwnSession | None = None
        self._opening: asyncio.Event | None = None
        """Set when the session is there that is being opened."""
        self._closed = self._draining = False
        self._refused = 0
        """Messages in a row that were too many."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._noticed: set[asyncio.Task[None]] = set()
        """Those of them that act on what is said aside."""
        self._heard = self._loop.time()
        self._since: float | None = None
        """When the transport was given what it has not sent yet."""
        self.warrant: Warranted | None = None if terms.credential is None else self
        self._standing = Standing(principal, terms.credential, self.end)
        self._open_ones = shared.open_ones.here()
        self._open_ones.add(self)

    def _connect(self, principal: Principal) -> Connection:
        connection = self._terms.connect(principal, self._calls)
        connection.subscriptions = self._subscriptions
        return connection

    @property
    def session(self) -> Session | None:
        """The session that the client opened on it, if any."""
        return self._handshake.session

    def is_over(self) -> bool:
        """Has it ended? What waits may still be read."""
        return self.ending is not None

    def has_room(self) -> bool:
        """Does the client keep up with what it is sent? Until it does, requests wait; what is said aside does not."""
        return self._channel.has_room()

    async def receive(self, body: bytes) -> None:
        """Take one message in. Never raises for what a client sends; waits only while the client does not read what it
        is sent, and while its credential is verified anew. May be called while an earlier call still waits.
        """
        if self.ending is not None:
            return
        self._heard = self._loop.time()
        raw: Any = None
        era: EraStrategy = self._pipeline.stateless
        try:
            if len(body) > self._limits.body:
                raise InvalidRequest(f"A message may have {self._limits.body} bytes at most")
            raw = jsonrpc.decode(body, max_nesting=self._limits.nesting)
            if self._must_wait(raw) and not await self._turn(raw):
                return
            await admit_messages(self._stateless.principal, raw, self._pipeline.server.executor)
            self._refused = 0
            if self._terms.credential is not None:
                await self._renew()
            if self._must_wait(raw) and not await self._turn(raw):
                return  # others went on meanwhile
            era, connection = self._sort(raw)
            if not self.is_over() and self._handle(era, raw, connection):
                await asyncio.sleep(0)  # what is said aside, a cancellation say, counts before the next message
        except MCPError as problem:
            await self._refuse(era, raw, problem)
        except Overloaded as problem:
            self._refused += problem.status == TOO_MANY
            if self._refused > PATIENCE:
                self.end(Ending.FLOOD)
            await self._refuse(era, raw, busy(raw, str(problem)))
        except Error:
            logger.exception("The database failed a message before it was a call")
            await self._refuse(era, raw, busy(raw, "The database does not answer; try again later"))

    def _must_wait(self, raw: Any) -> bool:
        if self._opening is not None and waits_for_session(raw):
            return True  # some clients send on without waiting for the answer
        if is_aside(raw):
            return len(self._noticed) >= self._limits.in_flight  # middleware may take its time
        return not self._channel.has_room()

    async def _turn(self, raw: Any) -> bool:
        """Wait until a message may be acted on. False when its client has taken it back meanwhile."""
        with waiting(raw, self._calls) as it:
            # Of several that wait for room, the first may be what opens the session of the others.
            while self._must_wait(raw) and not self.is_over():
                if self._opening is not None and waits_for_session(raw):
                    await self._opening.wait()
                elif is_aside(raw):
                    await asyncio.wait(self._noticed, return_when=asyncio.FIRST_COMPLETED)
                else:
                    await self._channel.room()
        if it.taken_back:
            self._landed()
        return not it.taken_back

    def _sort(self, raw: Any) -> tuple[EraStrategy, Connection]:
        """basic/versioning: on a channel each message names its era, and `initialize` opens the one session."""
        stateless = select(None, raw) is Era.STATELESS
        if stateless and Era.STATELESS not in self._terms.eras:
            stated = str(raw["params"]["_meta"][PROTOCOL_VERSION])[:128]
            raise about(raw, UnsupportedProtocolVersion(list(HANDSHAKE), stated))
        # Without a session there still are requests that can be taken back.
        if stateless or (self._handshake.session is None and is_notification(raw)):
            return self._pipeline.stateless, self._stateless
        return self._pipeline.handshake, self._handshake

    async def _renew(self) -> None:
        principal = await self._standing.renew()
        if principal is not None:
            self._stateless.principal = self._handshake.principal = principal

    def is_surely_good(self) -> bool:
        """Is its credential still good, without asking anybody?"""
        return self._standing.is_surely_good()

    async def is_good(self) -> bool:
        """Have it end when its credential is not good any more."""
        try:
            if self.ending is None:
                await self._renew()
        except Overloaded:
            pass  # nobody could say
        return True  # or it has ended already

    def _handle(self, era: EraStrategy, raw: Any, connection: Connection) -> bool:
        """Whether it has begun something that no answer waits for."""
        if self._draining and not is_aside(raw):
            raise busy(raw, f"{CLOSING}; try again later")
        if connection is self._handshake and connection.session is not None and opens(raw):
            raise about(raw, InvalidRequest("This connection has its session already"))
        outbox = Outbox(self._limits.unsent, patience=self._limits.unsent_wait)
        outcome = self._pipeline.handle(era, raw, connection.of_message(), outbox)
        if isinstance(outcome, bytes):
            self._channel.put_nowait(outcome)
        elif isinstance(outcome, Receipt):
            if outcome.run is not None:
                self._noticed.add(self._spawn(outcome.run))
                return True
        else:
            self._take_off(outcome)
        return False

    def _take_off(self, work: Work) -> None:
        id, most = work.call.id, self._running.limit
        problem: MCPError | Overloaded | None = None
        if not work.in_batch and (id in self._calls or id in self._subscriptions):
            problem = InvalidRequest("A request with this id is still running", request_id=id)
        elif work.weight > most:
            problem = InvalidRequest(f"A batch may hold {most} calls at most; send several")
        elif not self._running.enter(self._owner, work.weight):
            problem = Overloaded(f"More than {most} calls at once; wait for one to end", status=429)
        if problem is not None:
            work.close(problem)
            told = problem if isinstance(problem, MCPError) else InternalError(str(problem))
            self._channel.put_nowait(self._pipeline.decline(work, told))
            return
        flight = Flight(work, self._running, self._owner, self._pipeline.decline, self._shared.lifecycle)
        flight.share(Way(self._channel, self._landed), answers=work.may_stream)
        if work.call.method == OPENING:
            self._opening = asyncio.Event()
        flight.launch(self._context())
        if not work.may_stream:
            run_aside(self._see_through(flight))

    def _context(self) -> contextvars.Context:
        context = self._terms.context
        return contextvars.Context() if context is None else context.copy()

    async def _see_through(self, flight: Flight) -> None:
        """Make what is to be made of a call of which more comes than its answer. Goes on after the end."""
        landing = await flight.first(float("inf"))
        call = flight.call
        assert landing is not None  # it streams nothing
        try:
            opened, call.connection.opened = call.connection.opened, None
            if opened is not None:
                await self._begin(opened, wanted=landing.problem is None and not flight.lost)
            elif call.id in self._subscriptions and landing.problem is None and not flight.lost:
                self._changes.begin(self._subscriptions[call.id], ends=self._draining)
                return  # the answer is for the end of the stream
        except (Error, Overloaded) as problem:
            logger.warning("A session could not be opened", exc_info=problem)
            landing = Landing(b"", Overloaded("The server is busy; try again later"))
        finally:
            if self._opening is not None and call.method == OPENING:
                self._opening.set()
                self._opening = None
        answer = flight.answer(landing)
        if answer is not None:
            self._channel.put_nowait(answer)
        self._landed()

    async def _begin(self, session: Session, *, wanted: bool) -> None:
        """Tie a session to the channel. Its own stream is open before the client knows of it, so that nothing is
        missed. Raises django.db.Error, Overloaded.
        """
        sessions = self._pipeline.server.sessions
        if self.ending is not None or not wanted:
            await end_session(sessions, session)
            return
        session.in_flight, self._handshake.session = self._calls, session
        own = self._own = OwnSession(session, self._shared.own, sessions, self._handshake)
        try:
            await own.open(self._shared.keep)
        except BaseException:
            self._own = self._handshake.session = None
            run_aside(own.end())
            raise
        if self.ending is None:
            self._spawn(self._tell(own))

    async def _tell(self, own: OwnSession) -> None:
        await own.tell(self._channel)
        if not self._draining:
            self.end(Ending.OVER)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work, context=self._context())
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._noticed.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("Something failed on a channel", exc_info=task.exception())
        self._landed()

    async def _refuse(self, era: EraStrategy, raw: Any, problem: MCPError) -> None:
        if is_aside(raw):
            logger.debug("A message that gets no answer was refused: %s", problem)
        else:
            # Nor may what is no message at all fill the queue.
            await self._channel.put(self._pipeline.refuse(era, problem))

    async def read(self, patience: float) -> list[bytes] | None:
        """The messages that wait, encoded; an empty list after `patience` seconds of silence; None at the end, of which
        `ending` says why.
        """
        self._since = None
        self._landed()
        messages = await self._channel.read(patience)
        if messages:
            self._since = self._loop.time()
        return messages

    def moved(self) -> None:
        """The client has taken a part of what `read` gave last."""
        if self._since is not None:
            self._since = self._loop.time()

    def _is_busy(self) -> bool:
        return bool(len(self._running) or self._calls or self._opening is not None)

    def _landed(self) -> None:
        """Something has come to its end, or was sent."""
        if self._draining and not (self._is_busy() or self._subscriptions):
            self._finish(Ending.CLOSING)

    def look(self, patience: float) -> None:
        """See whether the client is still there. Called now and then."""
        now, session = self._loop.time(), self.session
        if self._since is not None and now - self._since > patience:
            logger.info("A client has stopped reading its channel, and counts as gone")
            self.end(Ending.BEHIND)
        elif session is not None and self.ending is None:
            self._pipeline.server.sessions.touch(session)
            if self._terms.pings and now - self._heard >= self._limits.ping:
                self._heard = now
                self._spawn(self._ping(session))

    async def _ping(self, session: Session) -> None:
        """basic/utilities/ping: without an answer the connection is stale."""
        id, way = self._pipeline.server.replies.new_id(session), Way(self._channel, self._landed)
        try:
            await session.ask(way, id, "ping", None, timeout=self._limits.ping)
        except TimeoutError:
            logger.info("A client does not answer, and counts as gone")
            self.end(Ending.DEAD)

    def end(self, ending: Ending = Ending.CLOSING) -> None:
        """Nothing more comes in. `CLOSING` lets what runs come to its end first; anything else ends that too."""
        if ending is not Ending.CLOSING:
            self._finish(ending)
        elif not self._draining:
            self._draining = True
            self._changes.end()
            self._landed()

    def lose(self) -> None:
        """Its credential is good no more; that has ended it already."""

    def drop(self) -> None:
        """It is over, whatever still runs."""
        # Not before all calls have been ended that outlast the grace, each with an answer that says so.
        self._draining = True
        self._loop.call_soon(self._finish, Ending.CLOSING, context=contextvars.Context())

    def _finish(self, ending: Ending) -> None:
        if self.ending is not None:
            return
        self.ending = ending
        self._standing.stop()
        for call in list(self._calls.values()):
            call.cancel()
        self._changes.cancel()
        if self._own is not None:
            self._own.leave()
        if ending.sends_rest:
            self._channel.finish()
        else:
            self._channel.cut()
        if self.on_end is not None:
            self.on_end()

    async def close(self) -> None:
        """The channel is gone. What it has left is ended, also when this is cancelled. May be called more than once."""
        self._finish(Ending.GONE)
        self._channel.cut()
        if self._closed:
            return
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        over = asyncio.Event()
        run_aside(self._leave(over))
        await over.wait()

    async def _leave(self, over: asyncio.Event) -> None:
        try:
            if self._own is not None:
                await self._own.end()
        finally:
            self._shared.listens.leave(self._owner)
            self._open_ones.discard(self)
            over.set()
