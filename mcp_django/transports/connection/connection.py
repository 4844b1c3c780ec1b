"""Bidirectional connection of a client: WebSocket, stdio, or HTTP+SSE.

Messages arrive one by one. All output shares one queue: answers, notifications, client requests and changes. WebSocket,
HTTP+SSE and stdio are thin transports around this class. It joins a receiver, its calls, and their session.
"""

import asyncio
import contextvars
from collections.abc import Callable
from functools import partial

from mcp_django.aio.tasks import run_in_background
from mcp_django.runtime.shutdown import SHUTDOWN_MESSAGE
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.ports import Overloaded, Principal
from mcp_django.transports.connection.calls import ConnectionCalls
from mcp_django.transports.connection.client_monitor import ClientMonitor
from mcp_django.transports.connection.credential import ConnectionCredential
from mcp_django.transports.connection.inbound import InboundQueue
from mcp_django.transports.connection.options import CloseReason, ConnectionOptions
from mcp_django.transports.connection.outbound import ConnectionSink
from mcp_django.transports.connection.receiver import Receiver
from mcp_django.transports.credential_monitor import RevocableCredential
from mcp_django.transports.services import TransportServices


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
        self._owner = principal.key
        self._loop = asyncio.get_running_loop()
        self.close_reason: CloseReason | None = None
        """Reason for the end of the connection; None while it is open."""
        self.on_end: Callable[[], None] | None = None
        """Callback, called once at the end, for a transport that is blocked in sending."""
        self._is_closed = False

        limits = services.limits
        self._outbox = Outbox(limits.send_buffer, send_timeout=limits.send_timeout)
        self._outbox.loop = self._loop
        self._outbox.on_abandoned = partial(self.end, CloseReason.SLOW_CLIENT)
        self._calls = ConnectionCalls(
            services,
            options,
            principal,
            self._outbox,
            on_finished=self._check_drained,
            on_session_ended=self._on_session_ended,
        )
        self._credential = ConnectionCredential(
            principal, options.credential, on_change=self._calls.set_principal, on_lost=self.end
        )
        self.credential: RevocableCredential | None = None if options.credential is None else self._credential
        self._receiver = Receiver(
            services,
            self._calls,
            self._credential,
            self._outbox,
            options.eras,
            on_rejected=self.end,
            on_cancelled=self._check_drained,
        )
        self._client_monitor = ClientMonitor(
            services,
            self._calls,
            self._receiver,
            ConnectionSink(self._outbox, self._check_drained),
            sends_pings=options.sends_pings,
            on_lost=self.end,
        )
        self.inbound_queue = InboundQueue(self.receive, self.is_ready, limits.body)
        """Queue for a transport that must read ahead."""
        self._open_streams = services.open_streams.get_loop_registry()
        self._open_streams.add(self)

    @property
    def session(self) -> ServerSession | None:
        """Session that the client opened on this connection, or None."""
        return self._calls.session_state.session

    def is_ended(self) -> bool:
        """Return True if the connection has ended. Pending messages may still be read."""
        return self.close_reason is not None

    def is_ready(self) -> bool:
        """Return True unless requests must wait: the client reads too slowly, or too many calls wait already."""
        return self._calls.has_room() or self.is_ended()

    async def receive(self, body: bytes) -> None:
        """Handle one received message (`Receiver.receive`)."""
        await self._receiver.receive(body)

    async def read(self, timeout: float) -> list[bytes] | None:
        """Return pending messages, an empty list after `timeout`, or None at the end.

        At the end, `close_reason` is set.
        """
        self._client_monitor.finish_sending()
        self._check_drained()
        messages = await self._outbox.read(timeout)
        if messages:
            self._client_monitor.start_sending()
        return messages

    def mark_progress(self) -> None:
        """Record that the client has received a part of the messages of the last `read`."""
        self._client_monitor.mark_progress()

    def check(self, send_timeout: float) -> None:
        """Check that the client is alive. Called periodically."""
        if self.close_reason is None:
            self._client_monitor.check(self.session, send_timeout)

    def end(self, reason: CloseReason = CloseReason.SHUTDOWN) -> None:
        """End the connection; further messages are ignored.

        `SHUTDOWN` lets running calls finish first; any other reason cancels them.
        """
        if reason is not CloseReason.SHUTDOWN:
            self._end(reason)
        elif not self._calls.is_draining:
            self._calls.drain()
            self._check_drained()

    def _check_drained(self) -> None:
        """End the connection if it drains and has no work left."""
        if self._calls.is_draining and not self._calls.is_busy():
            self._end(CloseReason.SHUTDOWN)

    def _on_session_ended(self) -> None:
        if not self._calls.is_draining:
            self.end(CloseReason.SESSION_ENDED)

    def on_revoked(self) -> None:
        """Ignore the revocation: the verification has already ended the connection."""

    def abort(self) -> None:
        """Abort the connection and its running calls."""
        self._calls.abort()
        # Deferred, until all calls beyond the grace period have been cancelled, each with an error answer.
        self._loop.call_soon(self._end, CloseReason.SHUTDOWN, context=contextvars.Context())

    def _end(self, reason: CloseReason) -> None:
        if self.close_reason is not None:
            return

        self.close_reason = reason
        self._receiver.stop()
        self._credential.stop()
        self._calls.cancel()
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
        self._calls.stop_tasks()
        released = asyncio.Event()
        run_in_background(self._release(released))
        await released.wait()

    async def _release(self, released: asyncio.Event) -> None:
        try:
            await self._calls.session_state.close()
        finally:
            self._services.stream_limiter.release(self._owner)
            self._open_streams.remove(self)
            released.set()
