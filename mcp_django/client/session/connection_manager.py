"""Keeps a client connected: makes the connection at its first use, and anew when it breaks.

One task owns the connection for as long as it lives. A connection that broke is made anew at once if somebody waits or
wants to be told of changes, and otherwise at the next call.
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
"""Seconds that a connection has to close before it is cut."""
REASON = 1.0
"""Seconds that a call waits to be told why its connection broke."""
_INHERITED: list["Keeper"] = []
"""Connections of the process that this one was forked from. They are its, so they are not even collected here."""


class Keeper:
    """The connection of a client over time."""

    def __init__(self, target: Openable, options: Options, answerers: Answerers, listeners: Listeners) -> None:
        self._target, self._options, self._answerers, self._listeners = target, options, answerers, listeners
        self.subscribed: dict[str, None] = {}
        """URIs that are subscribed to, on this connection and the next."""
        self.log_level: types.LoggingLevel | None = None
        self.current: Connection | None = None
        """The newest connection that was there; it may have ended."""
        self._attempt: Connection | None = None
        """The one that is being made, is there, or is being closed."""
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
        """The loop that the connection lives on, while it is alive."""
        if self._pid != os.getpid() or self._task is None or self._task.done():
            return None
        return self._loop

    @property
    def is_connected(self) -> bool:
        """Is there a connection, as far as is known?"""
        return self.loop is not None and self.current is not None and not self.current.ended

    async def open(self) -> Connection:
        """Connect, also after `close`."""
        self._closed = False
        return await self.connection()

    async def connection(self) -> Connection:
        """The connection, made first if there is none.

        Raises:
            ClientError: Why there is none; ClientConnectionError after `close`.
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
        """Does somebody wait for the connection, or want to be told of changes?"""
        wanted = self._listeners.wants("list_changed", "resource_updated", "log")
        return bool(self._waiting or self.subscribed or wanted)

    async def rest(self) -> None:
        """Close the connection as `close` does; the next call makes another."""
        await self._shut()

    async def close(self) -> None:
        """Close the connection, and wait until it is closed. Calls under way fail."""
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
            task.cancel()  # it is still being connected
        done, _ = await asyncio.wait({task}, timeout=CLOSING)
        if not done:
            logger.warning("%s took too long to close its connection, which is cut", self._options.name)
            task.cancel()
            await asyncio.wait({task}, timeout=CLOSING)

    async def reason(self, connection: Connection) -> ClientError:
        """Why a connection broke, as far as that becomes known soon."""
        if connection.ended:
            try:
                async with asyncio.timeout(REASON):
                    await connection.over.wait()
            except TimeoutError:
                pass
        return copy.copy(connection.failure) if connection.failure is not None else failures.lost(self._options)

    async def listen_to(self, uri: str) -> None:
        """Have the stream of changes include a URI of `subscribed`."""
        if self._listening is not None:
            await self._listening.added(uri)

    def _begin(self) -> None:
        """See that there is a task that connects, on this loop and of this process."""
        if self._pid != os.getpid():
            _INHERITED.append(copy.copy(self))
            self._pid, self._task, self._ready, self.current, self._listening = os.getpid(), None, None, None, None
        if self._task is not None and not self._task.done() and self._is_here():
            return
        self._loop = asyncio.get_running_loop()
        self._close = asyncio.Event()
        self._ready = self._loop.create_future()
        # The task outlives whoever happens to connect first, and serves others: it has nothing of the caller's context.
        self._task = self._loop.create_task(self._keep(), name="mcp-client", context=Context())

    def _is_here(self) -> bool:
        """Is the connection on this loop? Not if its loop is closed, and with it the connection."""
        if self._loop is asyncio.get_running_loop():
            return True
        if self._loop is not None and self._loop.is_closed():
            return False
        raise ClientConnectionError(
            "This client is connected on another event loop; use one client for each loop, or client.blocking()"
        )

    async def _keep(self) -> None:
        """Connect, and again, until nobody needs it, it fails for good or it is closed."""
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
        """Live one connection to its end, and say why it ended."""
        self._attempt = connection
        try:
            await connection.live(self._reached)
            failure = connection.failure or failures.lost(self._options)
        except Exception as error:
            failure = connection.failure or failures.of_connecting(error, self._options)
            connection.failure = failure
            logger.info("%s is not connected: %s", self._options.name, failure)
            self.last_error = failure
        finally:
            connection.end()
            connection.over.set()
            self._attempt = None
            if self.current is connection:
                self.watcher.disconnected()
        return failure

    async def _reached(self, connection: Connection, group: anyio.abc.TaskGroup) -> None:
        """Restore on a new connection what the last one had, and let the calls have it."""
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
        """What a session of the handshake era is told once: the level of its log, and its subscriptions."""
        capabilities = connection.session.server_capabilities
        if self.log_level is not None and capabilities is not None and capabilities.logging is not None:
            await self._is_taken(connection, "logging/setLevel", {"level": self.log_level})
        for uri in list(self.subscribed):
            if not await self._is_taken(connection, "resources/subscribe", {"uri": uri}):
                self.subscribed.pop(uri, None)

    async def _is_taken(self, connection: Connection, method: str, params: dict[str, Any]) -> bool:
        """Send a request that the server may refuse without harm to the connection."""
        try:
            await connection.request(method, params)
        except MCPError as error:
            if failures.is_lost(error):
                raise
            logger.warning("%s refused %s on a new connection (%d)", self._options.name, method, error.code)
            return False
        return True

    def _tell_of_gap(self, connection: Connection) -> None:
        """While there was no connection everything may have changed."""
        for kind in KINDS:
            if connection.announces(kind):
                connection.tell("list_changed", kind)
        for uri in self.subscribed:
            connection.tell("resource_updated", uri)

    def _renew(self) -> None:
        """Have calls wait for the next connection, once one has ended."""
        if self._ready is not None and self._ready.done() and not self._close.is_set():
            self._ready = asyncio.get_running_loop().create_future()

    def _settle(self, failure: ClientError) -> None:
        """Tell those who wait that there will be no connection."""
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(failure)
            self._ready.exception()  # nobody may be waiting

    def look(self) -> None:
        """Handlers or subscriptions came or went."""
        if self._listening is not None and self.is_connected:
            self._listening.look()
