"""Check of the client of a connection: it must read the messages that it gets, and answer pings."""

import asyncio
from collections.abc import Callable

from mcp_django.protocol.log_text import get_logger
from mcp_django.server.calls.session import ServerSession
from mcp_django.transports.connection.calls import ConnectionCalls
from mcp_django.transports.connection.options import CloseReason
from mcp_django.transports.connection.outbound import ConnectionSink
from mcp_django.transports.connection.receiver import Receiver
from mcp_django.transports.services import TransportServices

logger = get_logger("mcp_django.server")


class ClientMonitor:
    """Check of a client: a connection whose client is not alive is ended."""

    def __init__(
        self,
        services: TransportServices,
        calls: ConnectionCalls,
        receiver: Receiver,
        sink: ConnectionSink,
        *,
        sends_pings: bool,
        on_lost: Callable[[CloseReason], None],
    ) -> None:
        """Set the parts of the connection.

        `sink` takes the pings, which are sent if `sends_pings`. `on_lost` ends the connection.
        """
        self._ports = services.server.ports
        self._ping_seconds = services.limits.ping
        self._calls = calls
        self._receiver = receiver
        self._sink = sink
        self._sends_pings = sends_pings
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._unsent_since: float | None = None

    @property
    def has_unsent_messages(self) -> bool:
        """True while the transport sends the messages that it has read last."""
        return self._unsent_since is not None

    def start_sending(self) -> None:
        """Record that the transport has read messages to send."""
        self._unsent_since = self._loop.time()

    def mark_progress(self) -> None:
        """Record that the client has received a part of these messages."""
        if self._unsent_since is not None:
            self._unsent_since = self._loop.time()

    def finish_sending(self) -> None:
        """Record that the client has received all of them."""
        self._unsent_since = None

    def check(self, session: ServerSession | None, send_timeout: float) -> None:
        """Check the client; called periodically.

        It must have received some message within `send_timeout` seconds. The session, if any, is kept open.
        """
        now = self._loop.time()
        if self._unsent_since is not None and now - self._unsent_since > send_timeout:
            logger.info("A client has stopped reading its connection; the connection ends")
            self._on_lost(CloseReason.SLOW_CLIENT)
        elif session is not None:
            self._ports.sessions.touch(session)
            if self._sends_pings and now - self._receiver.last_received_at >= self._ping_seconds:
                self._receiver.last_received_at = now
                self._calls.spawn(self._ping(session))

    async def _ping(self, session: ServerSession) -> None:
        """Send a ping; without an answer the connection is stale (basic/utilities/ping)."""
        id = self._ports.pending_requests.new_id(session)
        try:
            await session.send_request(self._sink, id, "ping", None, timeout=self._ping_seconds)
        except TimeoutError:
            logger.info("A client does not answer pings; the connection ends")
            self._on_lost(CloseReason.PING_TIMEOUT)
