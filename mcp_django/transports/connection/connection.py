"""Bidirectional connection of a client: WebSocket, stdio, or HTTP+SSE.

Messages arrive one by one. All output shares one queue: answers, notifications, client requests and changes. WebSocket,
HTTP+SSE and stdio are thin transports around this class.
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
"""Number of consecutive rate-limited messages after which the connection closes."""


class Duplex:
    """A connection. Its transport calls `receive`, `read` and finally `close`."""

    def __init__(self, shared: Shared, principal: Principal, terms: Terms) -> None:
        self._shared, self._terms, self._pipeline, self._limits = shared, terms, shared.pipeline, shared.limits
        self._owner, self._loop = principal.key, asyncio.get_running_loop()

        self.ending: Ending | None = None
        """Reason for the end of the connection; None while it is open."""
        self.on_end: Callable[[], None] | None = None
        """Callback, called once at the end, for a transport that is blocked in sending."""

        self._channel = Outbox(shared.limits.unsent, patience=shared.limits.unsent_wait)
        self._channel.loop, self._channel.abandoned = self._loop, partial(self.end, Ending.BEHIND)
        self._calls: dict[jsonrpc.Id, Cancellable] = {}
        self._running = InFlight(shared.limits.in_flight)
        self._subscriptions: dict[jsonrpc.Id, Subscription] = {}
        self._changes = ChangePump(self._channel, self._subscriptions, self._spawn)

        self._stateless, self._handshake = self._connect(principal), self._connect(principal)
        self._own: OwnSession | None = None
        self._opening: asyncio.Event | None = None
        """Event set after a session was opened; None while no session is being opened."""
        self._closed = self._draining = False
        self._refused = 0
        """Number of consecutive rate-limited messages."""

        self._tasks: set[asyncio.Task[None]] = set()
        self._noticed: set[asyncio.Task[None]] = set()
        """Tasks that handle notifications and responses."""
        self._heard = self._loop.time()
        self._since: float | None = None
        """Time at which the transport read messages that it has not sent yet."""

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
        """Session that the client opened on this connection, or None."""
        return self._handshake.session

    def is_over(self) -> bool:
        """Return True if the connection has ended. Pending messages may still be read."""
        return self.ending is not None

    def has_room(self) -> bool:
        """Return True if the client reads fast enough.

        Requests wait while it does not; notifications and responses do not wait.
        """
        return self._channel.has_room()

    async def receive(self, body: bytes) -> None:
        """Handle one received message.

        Never raises for the content of a message. Waits only while the client does not read and while its credential is
        verified. May be called concurrently.
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
                return  # Other messages were handled in the meantime.
            era, connection = self._sort(raw)
            if not self.is_over() and self._handle(era, raw, connection):
                await asyncio.sleep(0)  # A notification, such as a cancellation, takes effect before the next message.
        except MCPError as problem:
            await self._refuse(era, raw, problem)
        except Overloaded as problem:
            self._refused += problem.status == TOO_MANY
            if self._refused > PATIENCE:
                self.end(Ending.FLOOD)
            await self._refuse(era, raw, busy(raw, str(problem)))
        except Error:
            logger.exception("Database error before a message became a call")
            await self._refuse(era, raw, busy(raw, "The database does not answer; try again later"))

    def _must_wait(self, raw: Any) -> bool:
        if self._opening is not None and waits_for_session(raw):
            return True  # Some clients send messages before the answer to `initialize`.
        if is_aside(raw):
            return len(self._noticed) >= self._limits.in_flight  # Middleware may be slow.
        return not self._channel.has_room()

    async def _turn(self, raw: Any) -> bool:
        """Wait until a message may be handled; return False if the client cancels it."""
        with waiting(raw, self._calls) as it:
            # Of several requests that wait for room, the first may open the session of the rest.
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
        """Select the era of a message (basic/versioning).

        On a bidirectional connection each message names its era, and `initialize` opens the only session.
        """
        stateless = select(None, raw) is Era.STATELESS
        if stateless and Era.STATELESS not in self._terms.eras:
            stated = str(raw["params"]["_meta"][PROTOCOL_VERSION])[:128]
            raise about(raw, UnsupportedProtocolVersion(list(HANDSHAKE), stated))
        # Without a session, requests can still be cancelled.
        if stateless or (self._handshake.session is None and is_notification(raw)):
            return self._pipeline.stateless, self._stateless
        return self._pipeline.handshake, self._handshake

    async def _renew(self) -> None:
        principal = await self._standing.renew()
        if principal is not None:
            self._stateless.principal = self._handshake.principal = principal

    def is_surely_good(self) -> bool:
        """Return True if the cache proves that the credential is valid; never blocks."""
        return self._standing.is_surely_good()

    async def is_good(self) -> bool:
        """Verify the credential, and end the connection if it has become invalid."""
        try:
            if self.ending is None:
                await self._renew()
        except Overloaded:
            pass  # The credential cannot be verified at the moment.
        return True  # An invalid credential has already ended the connection.

    def _handle(self, era: EraStrategy, raw: Any, connection: Connection) -> bool:
        """Handle a message in its era; return True if it started an unanswered task."""
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
        """Finish a call with effects beyond its answer, even after the connection ended."""
        landing = await flight.first(float("inf"))
        call = flight.call
        assert landing is not None  # The call does not stream.
        try:
            opened, call.connection.opened = call.connection.opened, None
            if opened is not None:
                await self._begin(opened, wanted=landing.problem is None and not flight.lost)
            elif call.id in self._subscriptions and landing.problem is None and not flight.lost:
                self._changes.begin(self._subscriptions[call.id], ends=self._draining)
                return  # The answer is sent at the end of the stream.
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
        """Attach a session to the connection.

        The session's stream is opened before the client gets the answer, so that no message is missed. Raises
        django.db.Error, Overloaded.
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
            logger.error("Unhandled exception in a connection task", exc_info=task.exception())
        self._landed()

    async def _refuse(self, era: EraStrategy, raw: Any, problem: MCPError) -> None:
        if is_aside(raw):
            logger.debug("Rejected a message that gets no answer: %s", problem)
        else:
            # Invalid messages must not fill the queue either.
            await self._channel.put(self._pipeline.refuse(era, problem))

    async def read(self, patience: float) -> list[bytes] | None:
        """Return pending messages, an empty list after `timeout`, or None at the end.

        At the end, `close_reason` is set.
        """
        self._since = None
        self._landed()
        messages = await self._channel.read(patience)
        if messages:
            self._since = self._loop.time()
        return messages

    def moved(self) -> None:
        """Record that the client has received a part of the messages of the last `read`."""
        if self._since is not None:
            self._since = self._loop.time()

    def _is_busy(self) -> bool:
        return bool(len(self._running) or self._calls or self._opening is not None)

    def _landed(self) -> None:
        """End the connection if it drains and has no work left."""
        if self._draining and not (self._is_busy() or self._subscriptions):
            self._finish(Ending.CLOSING)

    def look(self, patience: float) -> None:
        """Check that the client is alive. Called periodically."""
        now, session = self._loop.time(), self.session
        if self._since is not None and now - self._since > patience:
            logger.info("A client has stopped reading its connection; the connection ends")
            self.end(Ending.BEHIND)
        elif session is not None and self.ending is None:
            self._pipeline.server.sessions.touch(session)
            if self._terms.pings and now - self._heard >= self._limits.ping:
                self._heard = now
                self._spawn(self._ping(session))

    async def _ping(self, session: Session) -> None:
        """Send a ping; without an answer the connection is stale (basic/utilities/ping)."""
        id, way = self._pipeline.server.replies.new_id(session), Way(self._channel, self._landed)
        try:
            await session.ask(way, id, "ping", None, timeout=self._limits.ping)
        except TimeoutError:
            logger.info("A client does not answer pings; the connection ends")
            self.end(Ending.DEAD)

    def end(self, ending: Ending = Ending.CLOSING) -> None:
        """End the connection; further messages are ignored.

        `SHUTDOWN` lets running calls finish first; any other reason cancels them.
        """
        if ending is not Ending.CLOSING:
            self._finish(ending)
        elif not self._draining:
            self._draining = True
            self._changes.end()
            self._landed()

    def lose(self) -> None:
        """Ignore the revocation: the verification has already ended the connection."""

    def drop(self) -> None:
        """End the connection at once, whatever still runs."""
        # Deferred, until all calls beyond the grace period have been cancelled, each with an error answer.
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
        """Release the connection after its transport has closed.

        It completes even if the caller is cancelled. May be called more than once.
        """
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
