"""Connection management: connect at first use, reconnect when broken.

One task owns each connection for its whole life. A broken connection is reopened at once if calls wait or handlers for
changes are registered, otherwise at the next call.
"""

import asyncio
import copy
import logging
import os
from contextvars import Context
from typing import Any

import anyio.abc
import mcp_types as types
from mcp import MCPError

from mcp_django.client import failures
from mcp_django.client.errors import AuthorizationNeeded, ClientConnectionError, ClientError, HandshakeError
from mcp_django.client.options import Openable, Options
from mcp_django.client.session.callbacks import Answerers
from mcp_django.client.session.handlers import KINDS, Listeners
from mcp_django.client.session.observer import Watcher
from mcp_django.client.session.session import Connection
from mcp_django.client.session.subscriptions import Listening
from mcp_django.client.session.timing import STEADY, Backoff

logger = logging.getLogger("mcp_django.client")

CLOSING = 10.0
"""Seconds for a connection to close before it is cancelled."""
REASON = 1.0
"""Seconds for which a call waits for the reason of a broken connection."""
_INHERITED: list["Keeper"] = []
"""Managers of the parent process, kept alive: the parent owns their sockets."""


class Keeper:
    """The connection of a client, across reconnects."""

    def __init__(self, target: Openable, options: Options, answerers: Answerers, listeners: Listeners) -> None:
        self._target, self._options, self._answerers, self._listeners = target, options, answerers, listeners
        self.subscribed: dict[str, None] = {}
        """Subscribed URIs, restored on the next connection."""
        self.log_level: types.LoggingLevel | None = None
        self.current: Connection | None = None
        """The latest established connection, which may have ended."""
        self._attempt: Connection | None = None
        """The connection that is being opened, used or closed."""
        self.last_error: ClientError | None = None
        self.watcher = Watcher()
        self._listening: Listening | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Connection] | None = None
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting, self._closed = 0, False
        self._close = asyncio.Event()
        listeners.changed = self.look

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the connection; None without a connection."""
        if self._pid != os.getpid() or self._task is None or self._task.done():
            return None
        return self._loop

    @property
    def is_connected(self) -> bool:
        """Return True if there is an open connection, as far as the client can detect."""
        return self.loop is not None and self.current is not None and not self.current.ended

    async def open(self) -> Connection:
        """Connect, also after `close`."""
        self._closed = False
        return await self.connection()

    async def connection(self) -> Connection:
        """Return the connection, opened if needed.

        Raises:
            ClientError: The connection failed. After `close` this is a ClientConnectionError.
        """
        if self._closed:
            raise ClientConnectionError("This client is closed; call connect() to use it again")
        if self._close.is_set() and self._task is not None and self.loop is not None and self._is_here():
            await asyncio.wait({self._task})
        if not self.is_connected:
            self.watcher.admit()

        self._begin()
        assert self._ready is not None
        self._waiting += 1
        try:
            return await asyncio.shield(self._ready)
        except ClientError as error:
            raise copy.copy(error) from None
        finally:
            self._waiting -= 1

    @property
    def is_needed(self) -> bool:
        """Return True if calls wait for it, or handlers for changes are registered."""
        wanted = self._listeners.wants("list_changed", "resource_updated", "log")
        return bool(self._waiting or self.subscribed or wanted)

    async def rest(self) -> None:
        """Close the connection; the next call opens another."""
        await self._shut()

    async def close(self) -> None:
        """Close the connection and wait until it is closed. Running calls fail."""
        self._closed = True
        await self._shut()

    async def _shut(self) -> None:
        if self.loop is None or self._task is None or not self._is_here():
            return
        task = self._task
        self._close.set()
        if self.current is not None:
            self.current.end()

        if task is asyncio.current_task():
            return
        if self._attempt is not None and self._attempt is not self.current:
            task.cancel()  # The connection is still being opened.
        done, _ = await asyncio.wait({task}, timeout=CLOSING)
        if not done:
            logger.warning("Closing the connection timed out: %s", self._options.name)
            task.cancel()
            await asyncio.wait({task}, timeout=CLOSING)

    async def reason(self, connection: Connection) -> ClientError:
        """Return the reason why a connection broke, or a generic error."""
        if connection.ended:
            try:
                async with asyncio.timeout(REASON):
                    await connection.over.wait()
            except TimeoutError:
                pass
        return copy.copy(connection.failure) if connection.failure is not None else failures.lost(self._options)

    async def listen_to(self, uri: str) -> None:
        """Add a URI of `subscribed` to the stream of changes."""
        if self._listening is not None:
            await self._listening.added(uri)

    def _begin(self) -> None:
        """Start the connection task, unless one runs on this loop in this process."""
        if self._pid != os.getpid():
            _INHERITED.append(copy.copy(self))
            self._pid, self._task, self._ready, self.current, self._listening = os.getpid(), None, None, None, None
        if self._task is not None and not self._task.done() and self._is_here():
            return

        self._loop = asyncio.get_running_loop()
        self._close = asyncio.Event()
        self._ready = self._loop.create_future()
        # Use an empty context: the task outlives the caller that starts it, and serves other callers.
        self._task = self._loop.create_task(self._keep(), name="mcp-client", context=Context())

    def _is_here(self) -> bool:
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

    async def _keep(self) -> None:
        """Keep the client connected until it is unused, closed, or fails permanently."""
        loop, backoff, failure = asyncio.get_running_loop(), Backoff(self._options.max_retries), None
        try:
            while not self._close.is_set():
                since = loop.time()
                connection = Connection(self._target, self._options, self._answerers, self._listeners)
                connection.on_end = self._renew
                failure = await self._live(connection)

                was_there = self.current is connection
                if was_there and (not self.is_needed or self._close.is_set()):
                    return

                if was_there and loop.time() - since > STEADY:
                    backoff.reset()
                final = isinstance(failure, HandshakeError | AuthorizationNeeded)
                if final or (delay := backoff.delay()) is None:
                    if not was_there and not self._close.is_set():
                        self.watcher.failed(failure)
                    return
                try:
                    async with asyncio.timeout(delay):
                        await self._close.wait()
                except TimeoutError:
                    pass
        finally:
            self._settle(failure or ClientConnectionError("This client was closed"))

    async def _live(self, connection: Connection) -> ClientError:
        """Run one connection to its end and return the reason for the end."""
        self._attempt = connection
        try:
            await connection.live(self._reached)
            failure = connection.failure or failures.lost(self._options)
        except Exception as error:
            failure = connection.failure or failures.of_connecting(error, self._options)
            connection.failure = failure
            logger.info("Connection failed or ended: %s: %s", self._options.name, failure)
            self.last_error = failure
        finally:
            connection.end()
            connection.over.set()
            self._attempt = None
            if self.current is connection:
                self.watcher.disconnected()

        return failure

    async def _reached(self, connection: Connection, group: anyio.abc.TaskGroup) -> None:
        """Restore the state of the previous connection, then release the waiting calls."""
        again = self.current is not None
        self._listening = None
        async with asyncio.timeout(self._options.startup_timeout):
            if connection.stateless:
                self._listening = Listening(connection, self._listeners, self.subscribed, self._options.startup_timeout)
                group.start_soon(self._listening.keep, group)
            else:
                await self._restore(connection)

        self.current, self.last_error = connection, None
        self.watcher.connected(connection)
        if again:
            self._tell_of_gap(connection)
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(connection)

    async def _restore(self, connection: Connection) -> None:
        """Restore the state of a handshake-era session: log level and subscriptions."""
        capabilities = connection.session.server_capabilities
        if self.log_level is not None and capabilities is not None and capabilities.logging is not None:
            await self._is_taken(connection, "logging/setLevel", {"level": self.log_level})
        for uri in list(self.subscribed):
            if not await self._is_taken(connection, "resources/subscribe", {"uri": uri}):
                self.subscribed.pop(uri, None)

    async def _is_taken(self, connection: Connection, method: str, params: dict[str, Any]) -> bool:
        """Send a request that the server may refuse; return True if it was accepted."""
        try:
            await connection.request(method, params)
        except MCPError as error:
            if failures.is_lost(error):
                raise
            logger.warning(
                "Request refused on a new connection: %s refused %s (%d)", self._options.name, method, error.code
            )
            return False
        return True

    def _tell_of_gap(self, connection: Connection) -> None:
        """Report all lists and subscribed resources as changed after a reconnect."""
        for kind in KINDS:
            if connection.announces(kind):
                connection.tell("list_changed", kind)
        for uri in self.subscribed:
            connection.tell("resource_updated", uri)

    def _renew(self) -> None:
        """Make calls wait for the next connection after one has ended."""
        if self._ready is not None and self._ready.done() and not self._close.is_set():
            self._ready = asyncio.get_running_loop().create_future()

    def _settle(self, failure: ClientError) -> None:
        """Fail the waiting calls: the client stops connecting."""
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(failure)
            self._ready.exception()  # mark as retrieved: there may be no waiting call

    def look(self) -> None:
        """Update the stream of changes after handlers or subscriptions have changed."""
        if self._listening is not None and self.is_connected:
            self._listening.look()
