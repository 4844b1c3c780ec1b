"""Bidirectional connection of a client: WebSocket, stdio, or HTTP+SSE.

Messages arrive one by one. All output shares one queue: answers, notifications, client requests and changes. WebSocket,
HTTP+SSE and stdio are thin transports around this class.
"""

import asyncio
import contextvars
from collections import ChainMap
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from django.db import Error

from mcp_django.aio.tasks import BackgroundTasks, run_in_background
from mcp_django.auth.throttling import TOO_MANY_REQUESTS_STATUS
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError, InvalidRequest, MCPError, UnsupportedProtocolVersion
from mcp_django.protocol.log_text import get_logger
from mcp_django.protocol.meta import PROTOCOL_VERSION
from mcp_django.protocol.revisions import HANDSHAKE_VERSIONS, Era
from mcp_django.runtime.calls.call_limiter import CallCounter
from mcp_django.runtime.calls.task import CallResult, CallTask
from mcp_django.runtime.database_failures import report_database_error
from mcp_django.runtime.shutdown import SHUTDOWN_MESSAGE
from mcp_django.server.calls.call import Connection, EraStrategy
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import Acknowledgement, PendingResponse
from mcp_django.server.calls.session import Cancellable, ServerSession
from mcp_django.server.eras import select_era
from mcp_django.server.eras.handshake import INITIALIZE
from mcp_django.server.ports import Overloaded, Principal
from mcp_django.server.subscriptions.listen import Subscription
from mcp_django.transports.admission import Admission
from mcp_django.transports.connection.call_queue import CallQueue
from mcp_django.transports.connection.credential import ConnectionCredential
from mcp_django.transports.connection.inbound import (
    InboundQueue,
    build_busy_error,
    is_initialize,
    is_notification,
    is_request,
    is_unanswered,
    needs_session,
    track_waiting,
    with_request_id,
)
from mcp_django.transports.connection.options import CloseReason, ConnectionOptions
from mcp_django.transports.connection.outbound import ConnectionSink, SubscriptionSender
from mcp_django.transports.connection.session import ConnectionSession, end_session
from mcp_django.transports.credential_monitor import RevocableCredential
from mcp_django.transports.services import TransportServices

logger = get_logger("mcp_django.server")

MAX_CONSECUTIVE_REJECTIONS = 32
"""Number of consecutive rate-limited messages after which the connection closes."""


def open_connection(
    services: TransportServices, principal: Principal, options: ConnectionOptions | None = None
) -> "DuplexConnection":
    """Open a connection for `principal` on the running loop. Raises Overloaded."""
    if services.lifecycle.is_draining():
        raise Overloaded(SHUTDOWN_MESSAGE)
    services.stream_limiter.acquire(principal.key)
    try:
        return DuplexConnection(services, principal, options or ConnectionOptions())
    except BaseException:
        services.stream_limiter.release(principal.key)
        raise


class DuplexConnection:
    """A connection. Its transport calls `receive`, `read` and finally `close`."""

    def __init__(self, services: TransportServices, principal: Principal, options: ConnectionOptions) -> None:
        self._services = services
        self._options = options
        self._admission = Admission(services)
        self._pipeline = services.pipeline
        self._owner = principal.key
        self._loop = asyncio.get_running_loop()

        self.close_reason: CloseReason | None = None
        """Reason for the end of the connection; None while it is open."""
        self.on_end: Callable[[], None] | None = None
        """Callback, called once at the end, for a transport that is blocked in sending."""

        self.inbound_queue = InboundQueue(self.receive, self.is_ready, services.limits.body)
        """Queue for a transport that must read ahead."""
        self._outbox = Outbox(services.limits.send_buffer, send_timeout=services.limits.send_timeout)
        self._outbox.loop = self._loop
        self._outbox.on_abandoned = partial(self.end, CloseReason.SLOW_CLIENT)
        self._calls: dict[jsonrpc.Id, Cancellable] = {}
        self._call_queue = CallQueue(services.limits.in_flight, services.limits.body, self._owner)
        self._subscriptions: dict[jsonrpc.Id, Subscription] = {}
        self._used_ids: ChainMap[jsonrpc.Id, Any] = ChainMap(self._calls, self._subscriptions)
        self._subscription_sender = SubscriptionSender(self._outbox, self._subscriptions, self._spawn)

        self._stateless_connection = self._create_connection(principal)
        self._handshake_connection = self._create_connection(principal)
        self._own_session: ConnectionSession | None = None
        self._session_opened: asyncio.Event | None = None
        """Event set after a session was opened; None while no session is being opened."""
        self._is_closed = self._is_draining = False
        self._is_stateless = False
        """True once a request of the stateless era was received."""
        self._rejection_count = 0
        """Number of consecutive rate-limited messages."""

        self._tasks = BackgroundTasks(on_error=_log_failure)
        self._notification_tasks: set[asyncio.Task[None]] = set()
        """Tasks that handle notifications and responses."""
        self._last_received_at = self._loop.time()
        self._unsent_since: float | None = None
        """Time at which the transport read messages that it has not sent yet."""

        self._credential = ConnectionCredential(
            principal, options.credential, on_change=self._set_principal, on_lost=self.end
        )
        self.credential: RevocableCredential | None = None if options.credential is None else self._credential
        self._open_streams = services.open_streams.get_loop_registry()
        self._open_streams.add(self)

    def _create_connection(self, principal: Principal) -> Connection:
        """Create the connection object of the calls of an era; both share one table of calls."""
        connection = Connection(
            principal,
            headers=self._options.headers,
            url_kwargs=self._options.url_kwargs,
            make_request=self._options.make_request,
            shared_calls=self._calls,
            network=self._options.network,
        )
        connection.subscriptions = self._subscriptions
        return connection

    def _set_principal(self, principal: Principal) -> None:
        self._stateless_connection.principal = principal
        self._handshake_connection.principal = principal

    @property
    def session(self) -> ServerSession | None:
        """Session that the client opened on this connection, or None."""
        return self._handshake_connection.session

    def is_ended(self) -> bool:
        """Return True if the connection has ended. Pending messages may still be read."""
        return self.close_reason is not None

    def is_ready(self) -> bool:
        """Return True unless requests must wait: the client reads too slowly, or too many calls wait already."""
        return self._has_room() or self.is_ended()

    def _has_room(self) -> bool:
        return self._outbox.has_room() and not self._call_queue.is_full()

    async def receive(self, body: bytes) -> None:
        """Handle one received message.

        Never raises for the content of a message. Waits only while the client does not read, while the queue of calls
        is full, and while the credential is verified. May be called concurrently.
        """
        if self.close_reason is not None:
            return

        self._last_received_at = self._loop.time()
        raw: Any = None
        era: EraStrategy = self._pipeline.stateless
        try:
            raw = self._admission.decode(body)
            if self._must_wait(raw) and not await self._wait_for_turn(raw):
                return
            await self._admission.check_message(raw, self._stateless_connection.principal)
            self._rejection_count = 0
            await self._credential.verify()
            if self._must_wait(raw) and not await self._wait_for_turn(raw):
                return  # Other messages were handled in the meantime.
            era, connection = self._select_era(raw)
            if not self.is_ended() and self._handle(era, raw, connection, len(body)):
                await asyncio.sleep(0)  # A notification, such as a cancellation, takes effect before the next message.
        except MCPError as error:
            await self._send_error(era, raw, error)
        except Overloaded as error:
            self._rejection_count += error.status == TOO_MANY_REQUESTS_STATUS
            if self._rejection_count > MAX_CONSECUTIVE_REJECTIONS:
                self.end(CloseReason.TOO_MANY_MESSAGES)
            await self._send_error(era, raw, build_busy_error(raw, str(error)))
        except Error as error:
            overload = report_database_error("a message of a connection", error)
            await self._send_error(era, raw, build_busy_error(raw, str(overload)))

    def _must_wait(self, raw: Any) -> bool:
        if self._session_opened is not None and needs_session(raw):
            return True  # Some clients send messages before the answer to `initialize`.
        if is_unanswered(raw):
            return len(self._notification_tasks) >= self._services.limits.in_flight  # Middleware may be slow.
        return not self._has_room()

    async def _wait_for_turn(self, raw: Any) -> bool:
        """Wait until a message may be handled; return False if the client cancels it."""
        with track_waiting(raw, self._calls) as waiting_request:
            # Of several requests that wait for room, the first may open the session of the rest.
            while self._must_wait(raw) and not self.is_ended():
                if self._session_opened is not None and needs_session(raw):
                    await self._session_opened.wait()
                elif is_unanswered(raw):
                    await asyncio.wait(self._notification_tasks, return_when=asyncio.FIRST_COMPLETED)
                else:
                    await self._outbox.wait_for_room()
                    await self._call_queue.wait_for_room()
        if waiting_request.is_cancelled:
            self._check_drained()
        return not waiting_request.is_cancelled

    def _select_era(self, raw: Any) -> tuple[EraStrategy, Connection]:
        """Select the era of a message (basic/versioning).

        On a bidirectional connection each message names its era, and `initialize` opens the only session.
        """
        is_stateless = select_era(None, raw) is Era.STATELESS
        if is_stateless and Era.STATELESS not in self._options.eras:
            version = str(raw["params"]["_meta"][PROTOCOL_VERSION])[:128]
            raise with_request_id(raw, UnsupportedProtocolVersion(list(HANDSHAKE_VERSIONS), version))
        if is_stateless:
            self._is_stateless = True
        # Without a session, requests can still be cancelled.
        if is_stateless or (
            self._handshake_connection.session is None and (is_notification(raw) or self._lacks_meta(raw))
        ):
            return self._pipeline.stateless, self._stateless_connection
        return self._pipeline.handshake, self._handshake_connection

    def _lacks_meta(self, raw: Any) -> bool:
        """Return True for a request without `_meta` on a connection of the stateless era.

        Such a connection has seen stateless requests, and no session is open or being opened.
        """
        return self._is_stateless and is_request(raw) and not is_initialize(raw)

    def _handle(self, era: EraStrategy, raw: Any, connection: Connection, size: int) -> bool:
        """Handle a message of `size` bytes in its era; return True if it started an unanswered task."""
        if self._is_draining and not is_unanswered(raw):
            raise build_busy_error(raw, f"{SHUTDOWN_MESSAGE}; try again later")
        if connection is self._handshake_connection and connection.session is not None and is_initialize(raw):
            raise with_request_id(raw, InvalidRequest("This connection has its session already"))

        outcome = self._admission.start(era, raw, connection.for_message())
        if isinstance(outcome, bytes):
            self._outbox.put_nowait(outcome)
        elif isinstance(outcome, Acknowledgement):
            if outcome.run is not None:
                self._notification_tasks.add(self._spawn(outcome.run))
                return True
        else:
            try:
                work, counter = self._call_queue.admit(outcome, size, self._used_ids)
            except (MCPError, Overloaded) as error:
                self._reject_call(outcome, error)
            else:
                self._start_call(work, counter)

        return False

    def _reject_call(self, work: PendingResponse, error: MCPError | Overloaded) -> None:
        reported_error = error if isinstance(error, MCPError) else InternalError(str(error))
        self._outbox.put_nowait(self._pipeline.encode_work_error(work, reported_error))

    def _start_call(self, work: PendingResponse, counter: CallCounter) -> None:
        task = CallTask(work, counter, self._owner, self._pipeline.encode_work_error, self._services.lifecycle)
        task.attach_sink(ConnectionSink(self._outbox, self._check_drained), includes_answer=work.can_stream)
        if work.call.method == INITIALIZE:
            self._session_opened = asyncio.Event()
        task.start(self._create_context())
        if not work.can_stream:
            run_in_background(self._finish_unstreamed_call(task))

    def _create_context(self) -> contextvars.Context:
        context = self._options.context
        return contextvars.Context() if context is None else context.copy()

    async def _finish_unstreamed_call(self, task: CallTask) -> None:
        """Finish a call with effects beyond its answer, even after the connection ended."""
        result = await task.wait_for_output(float("inf"))
        call = task.call
        assert result is not None  # The call does not stream.
        try:
            session, call.connection.opened_session = call.connection.opened_session, None
            if session is not None:
                await self._attach_session(session, is_wanted=result.error is None and not task.is_cancelled)
            elif call.id in self._subscriptions and result.error is None and not task.is_cancelled:
                self._subscription_sender.add(self._subscriptions[call.id], is_closing=self._is_draining)
                return  # The answer is sent at the end of the stream.
        except Overloaded as overload:
            logger.warning("A session could not be opened", exc_info=overload)
            result = CallResult(b"", overload)
        except Error as error:
            result = CallResult(b"", report_database_error("the session of a connection", error))
        finally:
            if self._session_opened is not None and call.method == INITIALIZE:
                self._session_opened.set()
                self._session_opened = None

        answer = task.encode_answer(result)
        if answer is not None:
            self._outbox.put_nowait(answer)

        self._check_drained()

    async def _attach_session(self, session: ServerSession, *, is_wanted: bool) -> None:
        """Attach a session to the connection.

        The session's stream is opened before the client gets the answer, so that no message is missed. Raises
        django.db.Error, Overloaded.
        """
        sessions = self._pipeline.server.sessions
        if self.close_reason is not None or not is_wanted:
            await end_session(sessions, session)
            return

        session.in_flight = self._calls
        self._handshake_connection.session = session
        own_session = self._own_session = ConnectionSession(
            session, self._services.create_session_stream, sessions, self._handshake_connection
        )
        try:
            await own_session.open(self._services.call_streams.get_loop_streams())
        except BaseException:
            self._own_session = self._handshake_connection.session = None
            run_in_background(own_session.close())
            raise

        if self.close_reason is None:
            self._spawn(self._forward_session_messages(own_session))

    async def _forward_session_messages(self, own_session: ConnectionSession) -> None:
        await own_session.forward_messages(self._outbox)
        if not self._is_draining:
            self.end(CloseReason.SESSION_ENDED)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._tasks.spawn_in(self._create_context(), coroutine)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        self._notification_tasks.discard(task)
        self._check_drained()

    async def _send_error(self, era: EraStrategy, raw: Any, error: MCPError) -> None:
        if is_unanswered(raw):
            logger.debug("Rejected a message that gets no answer: %s", error)
        else:
            # Invalid messages must not fill the queue either.
            await self._outbox.put(self._pipeline.encode_error(era, error))

    async def read(self, timeout: float) -> list[bytes] | None:
        """Return pending messages, an empty list after `timeout`, or None at the end.

        At the end, `close_reason` is set.
        """
        self._unsent_since = None
        self._check_drained()
        messages = await self._outbox.read(timeout)
        if messages:
            self._unsent_since = self._loop.time()
        return messages

    def mark_progress(self) -> None:
        """Record that the client has received a part of the messages of the last `read`."""
        if self._unsent_since is not None:
            self._unsent_since = self._loop.time()

    def _check_drained(self) -> None:
        """End the connection if it drains and has no work left."""
        is_busy = self._calls or self._subscriptions or self._session_opened is not None or self._call_queue.is_busy()
        if self._is_draining and not is_busy:
            self._end(CloseReason.SHUTDOWN)

    def check(self, send_timeout: float) -> None:
        """Check that the client is alive. Called periodically."""
        now, session = self._loop.time(), self.session
        if self._unsent_since is not None and now - self._unsent_since > send_timeout:
            logger.info("A client has stopped reading its connection; the connection ends")
            self.end(CloseReason.SLOW_CLIENT)
        elif session is not None and self.close_reason is None:
            self._pipeline.server.sessions.touch(session)
            if self._options.sends_pings and now - self._last_received_at >= self._services.limits.ping:
                self._last_received_at = now
                self._spawn(self._ping(session))

    async def _ping(self, session: ServerSession) -> None:
        """Send a ping; without an answer the connection is stale (basic/utilities/ping)."""
        id = self._pipeline.server.pending_requests.new_id(session)
        sink = ConnectionSink(self._outbox, self._check_drained)
        try:
            await session.send_request(sink, id, "ping", None, timeout=self._services.limits.ping)
        except TimeoutError:
            logger.info("A client does not answer pings; the connection ends")
            self.end(CloseReason.PING_TIMEOUT)

    def end(self, reason: CloseReason = CloseReason.SHUTDOWN) -> None:
        """End the connection; further messages are ignored.

        `SHUTDOWN` lets running calls finish first; any other reason cancels them.
        """
        if reason is not CloseReason.SHUTDOWN:
            self._end(reason)
        elif not self._is_draining:
            self._is_draining = True
            self._subscription_sender.close_all()
            self._check_drained()

    def on_revoked(self) -> None:
        """Ignore the revocation: the verification has already ended the connection."""

    def abort(self) -> None:
        """End the connection at once, whatever still runs."""
        self._is_draining = True
        for call in list(self._calls.values()):
            if isinstance(call, CallTask):
                call.abort()
        # Deferred, until all calls beyond the grace period have been cancelled, each with an error answer.
        self._loop.call_soon(self._end, CloseReason.SHUTDOWN, context=contextvars.Context())

    def _end(self, reason: CloseReason) -> None:
        if self.close_reason is not None:
            return

        self.close_reason = reason
        self._credential.stop()
        for call in list(self._calls.values()):
            call.cancel()

        self._subscription_sender.cancel_all()
        if self._own_session is not None:
            self._own_session.detach()
        if reason.sends_pending:
            self._outbox.finish()
        else:
            self._outbox.abort()
        if self.on_end is not None:
            self.on_end()

    async def close(self) -> None:
        """Release the connection after its transport has closed.

        It completes even if the caller is cancelled. May be called more than once.
        """
        self._end(CloseReason.CLIENT_GONE)
        self._outbox.abort()
        self.inbound_queue.stop()
        if self._is_closed:
            return
        self._is_closed = True
        self._tasks.cancel()
        released = asyncio.Event()
        run_in_background(self._release(released))
        await released.wait()

    async def _release(self, released: asyncio.Event) -> None:
        try:
            if self._own_session is not None:
                await self._own_session.close()
        finally:
            self._services.stream_limiter.release(self._owner)
            self._open_streams.remove(self)
            released.set()


def _log_failure(error: BaseException) -> None:
    if not isinstance(error, Overloaded):  # Logged where it was raised.
        logger.error("Unhandled exception in a connection task", exc_info=error)
