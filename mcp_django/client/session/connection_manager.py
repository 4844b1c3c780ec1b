"""Connection management: connect at first use, reconnect when broken.

One task owns each connection for its whole life. A broken connection is reopened at once if calls wait or handlers for
changes are registered, otherwise at the next call.
"""

import asyncio
import copy
import os
import time
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any

import anyio.abc
import mcp_types as types
from mcp import MCPError

from mcp_django.aio.tasks import wait_for_event
from mcp_django.client import failures, sdk_compat
from mcp_django.client.errors import AuthorizationNeeded, ClientConnectionError, ClientError, HandshakeError
from mcp_django.client.options import ClientOptions, ClientTarget
from mcp_django.client.session.callbacks import ServerRequestCallbacks
from mcp_django.client.session.handlers import LIST_NAMES, NotificationHandlers
from mcp_django.client.session.session import ClientConnection
from mcp_django.client.session.subscriptions import ClientSubscriptions
from mcp_django.client.session.telemetry import ClientTelemetry
from mcp_django.client.session.timing import STABLE_AFTER_SECONDS, Backoff
from mcp_django.protocol.log_text import get_logger

logger = get_logger("mcp_django.client")

CLOSE_TIMEOUT_SECONDS = 10.0
"""Seconds for a connection to close before it is cancelled."""
CLOSE_REASON_TIMEOUT_SECONDS = 1.0
"""Seconds for which a call waits for the reason of a broken connection."""
_INHERITED_MANAGERS: list["ConnectionManager"] = []
"""Managers of the parent process, kept alive: the parent owns their sockets."""


class ClientObserver:
    """Observer of a client's connection and requests.

    Methods run on its loop; these do nothing.
    """

    def before_connect(self) -> None:
        """Called before connecting. Raise ClientError to fail the call without an attempt."""

    def on_connected(self, connection: ClientConnection) -> None:
        """Called when a connection is ready for use."""

    def on_disconnected(self) -> None:
        """Called when a ready connection has ended."""

    def on_connect_failed(self, error: ClientError) -> None:
        """Called when connecting failed without a further attempt; waiting calls fail."""

    def on_request_started(self) -> None:
        """Called at the start of a round of a call."""

    def on_request_finished(self, seconds: float, error: BaseException | None) -> None:
        """Called at the end of a round with its seconds, and its error or None."""


@dataclass(eq=False, repr=False)
class ConnectionManager:
    """The connection of a client, across reconnects."""

    _target: ClientTarget
    _options: ClientOptions
    _callbacks: ServerRequestCallbacks
    _handlers: NotificationHandlers
    subscribed: dict[str, None] = field(default_factory=dict)
    """Subscribed URIs, restored on the next connection."""
    log_level: types.LoggingLevel | None = None
    current: ClientConnection | None = None
    """The latest established connection, which may have ended."""
    _attempt: ClientConnection | None = None
    """The connection that is being opened, used or closed."""
    last_error: ClientError | None = None
    observer: ClientObserver = field(default_factory=ClientObserver)
    telemetry: ClientTelemetry = field(init=False)
    _subscriptions: ClientSubscriptions | None = None
    _task: asyncio.Task[None] | None = None
    _ready: asyncio.Future[ClientConnection] | None = None
    _owner_pid: int = field(default_factory=os.getpid)
    _loop: asyncio.AbstractEventLoop | None = None
    _waiting_calls: int = 0
    _is_closed: bool = False
    _close_requested: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._handlers.on_change = self.refresh_subscriptions
        self.telemetry = ClientTelemetry(self._target)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the connection; None without a connection."""
        if self._owner_pid != os.getpid() or self._task is None or self._task.done():
            return None
        return self._loop

    @property
    def is_connected(self) -> bool:
        """Return True if there is an open connection, as far as the client can detect."""
        return self.loop is not None and self.current is not None and not self.current.is_closing

    @property
    def is_closed(self) -> bool:
        """Return True after `close`, until `open`."""
        return self._is_closed

    async def open(self) -> ClientConnection:
        """Connect, also after `close`."""
        self._is_closed = False
        return await self.get_connection()

    async def get_connection(self) -> ClientConnection:
        """Return the connection, opened if needed.

        Raises:
            ClientError: The connection failed. After `close` this is a ClientConnectionError.
        """
        if self._is_closed:
            raise ClientConnectionError("This client is closed; call connect() to use it again")
        if (
            self._close_requested.is_set()
            and self._task is not None
            and self.loop is not None
            and self._is_on_running_loop()
        ):
            await asyncio.wait({self._task})
        if not self.is_connected:
            self.observer.before_connect()

        self._ensure_task()
        assert self._ready is not None
        self._waiting_calls += 1
        try:
            return await asyncio.shield(self._ready)
        except ClientError as error:
            raise copy.copy(error) from None
        finally:
            self._waiting_calls -= 1

    @property
    def is_needed(self) -> bool:
        """Return True if calls wait for it, or handlers for changes are registered."""
        wanted = self._handlers.has_handlers("list_changed", "resource_updated", "log")
        return bool(self._waiting_calls or self.subscribed or wanted)

    async def disconnect(self) -> None:
        """Close the connection; the next call opens another."""
        await self._close_connection()

    async def close(self) -> None:
        """Close the connection and wait until it is closed. Running calls fail."""
        self._is_closed = True
        await self._close_connection()

    async def _close_connection(self) -> None:
        if self.loop is None or self._task is None or not self._is_on_running_loop():
            return
        task = self._task
        self._close_requested.set()
        if self.current is not None:
            self.current.close()

        if task is asyncio.current_task():
            return
        if self._attempt is not None and self._attempt is not self.current:
            task.cancel()  # The connection is still being opened.
        done, _ = await asyncio.wait({task}, timeout=CLOSE_TIMEOUT_SECONDS)
        if not done:
            logger.warning("Closing the connection timed out: %s", self._options.server_label)
            task.cancel()
            await asyncio.wait({task}, timeout=CLOSE_TIMEOUT_SECONDS)

    async def get_close_reason(self, connection: ClientConnection) -> ClientError:
        """Return the reason why a connection broke, or a generic error."""
        if connection.is_closing:
            await wait_for_event(connection.finished, CLOSE_REASON_TIMEOUT_SECONDS)
        return (
            copy.copy(connection.failure)
            if connection.failure is not None
            else failures.build_connection_lost_error(self._options)
        )

    async def add_subscription(self, uri: str) -> None:
        """Add a URI of `subscribed` to the stream of changes."""
        if self._subscriptions is not None:
            await self._subscriptions.wait_for_subscription(uri)

    def _ensure_task(self) -> None:
        """Start the connection task, unless one runs on this loop in this process."""
        if self._owner_pid != os.getpid():
            _INHERITED_MANAGERS.append(copy.copy(self))
            self._owner_pid = os.getpid()
            self._task = None
            self._ready = None
            self.current = None
            self._subscriptions = None
        if self._task is not None and not self._task.done() and self._is_on_running_loop():
            return

        self._loop = asyncio.get_running_loop()
        self._close_requested = asyncio.Event()
        self._ready = self._loop.create_future()
        # Use an empty context: the task outlives the caller that starts it, and serves other callers.
        self._task = self._loop.create_task(self._run(), name="mcp-client", context=Context())

    def _is_on_running_loop(self) -> bool:
        """Return True if the connection belongs to the running loop.

        Returns False if its loop is closed. Raises ClientConnectionError for a connection on another open loop.
        """
        if self._loop is asyncio.get_running_loop():
            return True
        if self._loop is not None and self._loop.is_closed():
            return False
        raise ClientConnectionError(
            "This client is connected on another event loop; use one client for each loop, or client.blocking()"
        )

    async def _run(self) -> None:
        """Keep the client connected until it is unused, closed, or fails permanently."""
        loop, backoff, failure = asyncio.get_running_loop(), Backoff(self._options.max_retries), None
        try:
            while not self._close_requested.is_set():
                started_at = loop.time()
                connection = ClientConnection(self._target, self._options, self._callbacks, self._handlers)
                connection.on_close = self._reset_ready
                failure = await self._run_connection(connection)

                was_connected = self.current is connection
                if was_connected and (not self.is_needed or self._close_requested.is_set()):
                    return

                if was_connected and loop.time() - started_at > STABLE_AFTER_SECONDS:
                    backoff.reset()
                is_final = isinstance(failure, HandshakeError | AuthorizationNeeded)
                if is_final or (delay := backoff.next_delay()) is None:
                    if not was_connected and not self._close_requested.is_set():
                        self.observer.on_connect_failed(failure)
                    return
                await wait_for_event(self._close_requested, delay)
        finally:
            self._fail_waiting_calls(failure or ClientConnectionError("This client was closed"))

    async def _run_connection(self, connection: ClientConnection) -> ClientError:
        """Run one connection to its end and return the reason for the end."""
        self._attempt = connection
        started_at = time.perf_counter()
        try:
            await connection.run(self._on_connected)
            failure = connection.failure or failures.build_connection_lost_error(self._options)
        except Exception as error:
            failure = connection.failure or failures.convert_connection_error(error, self._options)
            connection.failure = failure
            logger.info("Connection failed or ended: %s: %s", self._options.server_label, failure)
            self.last_error = failure
        finally:
            connection.close()
            connection.finished.set()
            self._attempt = None
            if self.current is connection:
                seconds = time.perf_counter() - started_at
                self.telemetry.record_session(seconds, connection.revision.version, connection.failure)
                self.observer.on_disconnected()

        return failure

    async def _on_connected(self, connection: ClientConnection, group: anyio.abc.TaskGroup) -> None:
        """Restore the state of the previous connection, then release the waiting calls."""
        is_reconnect = self.current is not None
        self._subscriptions = None
        async with asyncio.timeout(self._options.startup_timeout):
            if connection.is_stateless:
                self._subscriptions = ClientSubscriptions(
                    connection, self._handlers, self.subscribed, self._options.startup_timeout
                )
                group.start_soon(self._subscriptions.run, group)
            else:
                await self._restore_session(connection)

        self.current = connection
        self.last_error = None
        self.observer.on_connected(connection)
        if is_reconnect:
            self._report_missed_changes(connection)
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(connection)

    async def _restore_session(self, connection: ClientConnection) -> None:
        """Restore the state of a handshake-era session: log level and subscriptions."""
        capabilities = connection.session.server_capabilities
        if self.log_level is not None and capabilities is not None and capabilities.logging is not None:
            await self._send_optional(connection, "logging/setLevel", {"level": self.log_level})
        for uri in list(self.subscribed):
            if not await self._send_optional(connection, "resources/subscribe", {"uri": uri}):
                self.subscribed.pop(uri, None)

    async def _send_optional(self, connection: ClientConnection, method: str, params: dict[str, Any]) -> bool:
        """Send a request that the server may refuse; return True if it was accepted."""
        try:
            await connection.request(method, params)
        except MCPError as error:
            if sdk_compat.is_lost(error):
                raise
            logger.warning(
                "Request refused on a new connection: %s refused %s (%d)",
                self._options.server_label,
                method,
                error.code,
            )
            return False
        return True

    def _report_missed_changes(self, connection: ClientConnection) -> None:
        """Report all lists and subscribed resources as changed after a reconnect."""
        for kind in LIST_NAMES:
            if connection.announces_changes(kind):
                connection.queue_change("list_changed", kind)
        for uri in self.subscribed:
            connection.queue_change("resource_updated", uri)

    def _reset_ready(self) -> None:
        """Make calls wait for the next connection after one has ended."""
        if self._ready is not None and self._ready.done() and not self._close_requested.is_set():
            self._ready = asyncio.get_running_loop().create_future()

    def _fail_waiting_calls(self, failure: ClientError) -> None:
        """Fail the waiting calls: the client stops connecting."""
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(failure)
            self._ready.exception()  # mark as retrieved: there may be no waiting call

    def refresh_subscriptions(self) -> None:
        """Update the stream of changes after handlers or subscriptions have changed."""
        if self._subscriptions is not None and self.is_connected:
            self._subscriptions.refresh()
