"""Receiver of a connection: from the bytes of a message to its call."""

import asyncio
from collections.abc import Callable
from typing import Any

from django.db import Error

from mcp_django.auth.throttling import TOO_MANY_REQUESTS_STATUS
from mcp_django.protocol.errors import InvalidRequest, MCPError, UnsupportedProtocolVersion
from mcp_django.protocol.log_text import get_logger
from mcp_django.protocol.meta import PROTOCOL_VERSION
from mcp_django.protocol.revisions import HANDSHAKE_VERSIONS, Era
from mcp_django.runtime.database_failures import report_database_error
from mcp_django.runtime.shutdown import SHUTDOWN_MESSAGE
from mcp_django.server.calls.call import Connection, EraStrategy
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import Acknowledgement
from mcp_django.server.eras import select_era
from mcp_django.server.ports import Overloaded
from mcp_django.transports.admission import Admission
from mcp_django.transports.connection.calls import ConnectionCalls
from mcp_django.transports.connection.credential import ConnectionCredential
from mcp_django.transports.connection.inbound import (
    build_busy_error,
    is_initialize,
    is_notification,
    is_request,
    is_unanswered,
    needs_session,
    track_waiting,
    with_request_id,
)
from mcp_django.transports.connection.options import CloseReason
from mcp_django.transports.services import TransportServices

logger = get_logger("mcp_django.server")

MAX_CONSECUTIVE_REJECTIONS = 32
"""Number of consecutive rate-limited messages after which the connection closes."""


class Receiver:
    """Receives the messages of a connection, in any order that their waits allow."""

    def __init__(
        self,
        services: TransportServices,
        calls: ConnectionCalls,
        credential: ConnectionCredential,
        outbox: Outbox,
        eras: frozenset[Era],
        *,
        on_rejected: Callable[[CloseReason], None],
        on_cancelled: Callable[[], None],
    ) -> None:
        """Set the parts of the connection, and its `eras`.

        `on_rejected` ends the connection. `on_cancelled` is called after the cancellation of a waiting message.
        """
        self._admission = Admission(services)
        self._pipeline = services.pipeline
        self._max_notifications = services.limits.in_flight
        self._calls = calls
        self._credential = credential
        self._outbox = outbox
        self._eras = eras
        self._on_rejected = on_rejected
        self._on_cancelled = on_cancelled
        self._loop = asyncio.get_running_loop()
        self.last_received_at = self._loop.time()
        """Time of the last message, or of the last ping, on the clock of the loop."""
        self._rejection_count = 0
        """Number of consecutive rate-limited messages."""
        self._is_stateless = False
        """True once a request of the stateless era was received."""
        self._is_stopped = False

    def stop(self) -> None:
        """Ignore further messages, because the connection has ended."""
        self._is_stopped = True

    def _has_ended(self) -> bool:
        return self._is_stopped

    async def receive(self, body: bytes) -> None:
        """Handle one received message.

        Never raises for the content of a message. Waits only while the client does not read, while the queue of calls
        is full, and while the credential is verified. May be called concurrently.
        """
        if self._has_ended():
            return

        self.last_received_at = self._loop.time()
        raw: Any = None
        era: EraStrategy = self._pipeline.stateless
        try:
            raw = self._admission.decode(body)
            if self._must_wait(raw) and not await self._wait_for_turn(raw):
                return
            await self._admission.check_message(raw, self._calls.stateless_connection.principal)
            self._rejection_count = 0
            await self._credential.verify()
            if self._must_wait(raw) and not await self._wait_for_turn(raw):
                return  # Other messages were handled in the meantime.
            era, connection = self._select_era(raw)
            if not self._has_ended() and self._handle(era, raw, connection, len(body)):
                await asyncio.sleep(0)  # A notification, such as a cancellation, takes effect before the next message.
        except MCPError as error:
            await self._send_error(era, raw, error)
        except Overloaded as error:
            self._rejection_count += error.status == TOO_MANY_REQUESTS_STATUS
            if self._rejection_count > MAX_CONSECUTIVE_REJECTIONS:
                self._on_rejected(CloseReason.TOO_MANY_MESSAGES)
            await self._send_error(era, raw, build_busy_error(raw, str(error)))
        except Error as error:
            overload = report_database_error("a message of a connection", error)
            await self._send_error(era, raw, build_busy_error(raw, str(overload)))

    def _must_wait(self, raw: Any) -> bool:
        if self._calls.session_state.is_opening and needs_session(raw):
            return True  # Some clients send messages before the answer to `initialize`.
        if is_unanswered(raw):
            return len(self._calls.notification_tasks) >= self._max_notifications  # Middleware may be slow.
        return not self._calls.has_room()

    async def _wait_for_turn(self, raw: Any) -> bool:
        """Wait until a message may be handled; return False if the client cancels it."""
        calls = self._calls
        with track_waiting(raw, calls.active) as waiting_request:
            # Of several requests that wait for room, the first may open the session of the rest.
            while self._must_wait(raw) and not self._has_ended():
                if calls.session_state.is_opening and needs_session(raw):
                    await calls.session_state.wait_until_opened()
                elif is_unanswered(raw):
                    await asyncio.wait(calls.notification_tasks, return_when=asyncio.FIRST_COMPLETED)
                else:
                    await calls.wait_for_room()
        if waiting_request.is_cancelled:
            self._on_cancelled()
        return not waiting_request.is_cancelled

    def _select_era(self, raw: Any) -> tuple[EraStrategy, Connection]:
        """Select the era of a message (basic/versioning).

        On a bidirectional connection each message names its era, and `initialize` opens the only session.
        """
        is_stateless = select_era(None, raw) is Era.STATELESS
        if is_stateless and Era.STATELESS not in self._eras:
            version = str(raw["params"]["_meta"][PROTOCOL_VERSION])[:128]
            raise with_request_id(raw, UnsupportedProtocolVersion(list(HANDSHAKE_VERSIONS), version))
        if is_stateless:
            self._is_stateless = True
        # Without a session, requests can still be cancelled.
        has_session = self._calls.session_state.session is not None
        if is_stateless or (not has_session and (is_notification(raw) or self._lacks_meta(raw))):
            return self._pipeline.stateless, self._calls.stateless_connection
        return self._pipeline.handshake, self._calls.session_state.connection

    def _lacks_meta(self, raw: Any) -> bool:
        """Return True for a request without `_meta` on a connection of the stateless era.

        Such a connection has seen stateless requests, and no session is open or being opened.
        """
        return self._is_stateless and is_request(raw) and not is_initialize(raw)

    def _handle(self, era: EraStrategy, raw: Any, connection: Connection, size: int) -> bool:
        """Handle a message of `size` bytes in its era; return True if it started an unanswered task."""
        calls = self._calls
        if calls.is_draining and not is_unanswered(raw):
            raise build_busy_error(raw, f"{SHUTDOWN_MESSAGE}; try again later")
        if connection is not calls.stateless_connection and connection.session is not None and is_initialize(raw):
            raise with_request_id(raw, InvalidRequest("This connection has its session already"))

        outcome = self._pipeline.handle(era, raw, connection.for_message(), self._admission.create_outbox())
        if isinstance(outcome, bytes):
            self._outbox.put_nowait(outcome)
        elif not isinstance(outcome, Acknowledgement):
            calls.start(outcome, size)
        elif outcome.run is not None:
            calls.start_notification(outcome.run)
            return True
        return False

    async def _send_error(self, era: EraStrategy, raw: Any, error: MCPError) -> None:
        if is_unanswered(raw):
            logger.debug("Rejected a message that gets no answer: %s", error)
        else:
            # Invalid messages must not fill the queue either.
            await self._outbox.put(self._pipeline.encode_error(era, error))
