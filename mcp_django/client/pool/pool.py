"""Pool of the clients of `MCP["CLIENTS"]`, by alias, user and event loop.

A client is created on demand and connects at its first call. An idle client disconnects after a while, and reconnects
at its next call. After a failed connection, calls fail immediately for some time. Forked processes share no clients,
and clients of a closed loop are discarded.
"""

import asyncio
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from django.core.exceptions import ImproperlyConfigured
from django.dispatch import receiver

from mcp_django.aio.clock import monotonic
from mcp_django.aio.loop_local import find_running_loop
from mcp_django.aio.tasks import call_threadsafe, start_task
from mcp_django.client.client import Client
from mcp_django.client.errors import AuthorizationNeeded, CallError, ClientConnectionError, ClientError
from mcp_django.client.pool.factory import build_client
from mcp_django.client.pool.health import HEALTH_REGISTRY, HealthReporter, describe_error, describe_server
from mcp_django.client.session.connection_manager import ClientObserver
from mcp_django.client.session.session import ClientConnection
from mcp_django.conf import get_settings, on_change
from mcp_django.conf.clients import ClientSettings
from mcp_django.protocol.log_text import get_logger
from mcp_django.signals import clients_used, server_drained

logger = get_logger("mcp_django.client")

EventLoop = asyncio.AbstractEventLoop
MAX_BACKOFF_DOUBLINGS: Final = 4
"""Maximum number of times that BACKOFF doubles."""
CLOSE_TIMEOUT_SECONDS: Final = 15.0
"""Seconds that `close_clients` waits."""


def get_client(alias: str, *, user: Any = None, owner: str | None = None) -> Client:
    """Return the pooled client of an entry of `MCP["CLIENTS"]`.

    The client connects at its first call.

        result = await get_client("github", user=request.user).call_tool("search", {"q": "django"})
        result = get_client("weather").blocking().call_tool("forecast", {"city": "Zürich"})  # without a running loop

    `user` owns the credential where AUTH is per user, and is ignored otherwise. `owner` is any text; its client is only
    shared by calls with the same text. With a running event loop, the client belongs to that loop. Without one, use its
    `blocking()`.

    Do not close the client: `close_clients` closes it, and so does the end of the process.

    Raises:
        ImproperlyConfigured: The alias is unknown.
        AuthorizationNeeded: AUTH is per user, and no user is given.
    """
    return _POOL.get(alias, user, owner)


async def aclose_clients() -> None:
    """Close the clients of the running loop.

    Waits until their connections and programs have ended.
    """
    loop = asyncio.get_running_loop()
    await _close_clients(kept.client for kept in _POOL.remove(loop))
    _POOL.stop_reporters(loop)


def close_clients() -> None:
    """Close all clients of this process, waiting at most 15 seconds.

    Raises RuntimeError in a thread with a running event loop.
    """
    if find_running_loop() is not None:
        raise RuntimeError("An event loop is running in this thread: await aclose_clients()")
    _close_on_own_loops(_POOL.remove(None))
    _POOL.stop_reporters(None)


def is_pooled(client: Client) -> bool:
    """Return True if the client belongs to the pool, so that other code may use it."""
    return client in _POOL.clients


def client_settings(alias: str) -> ClientSettings:
    """Return an entry of `MCP["CLIENTS"]`.

    Raises ImproperlyConfigured for an unknown alias, with the list of known ones.
    """
    known = get_settings().clients
    if alias not in known:
        raise ImproperlyConfigured(f'MCP["CLIENTS"] has no {alias!r}; it has: {", ".join(sorted(known)) or "nothing"}')
    return known[alias]


class _ClientKey(NamedTuple):
    """Key of a pooled client: users of the same alias, owner and loop share it."""

    alias: str
    owner: tuple[str, str] | None
    loop: EventLoop | None
    """The event loop; None for the loop of the blocking clients."""


class _PooledClient(ClientObserver):
    """A client of the pool, with its observer."""

    def __init__(self, settings: ClientSettings, client: Client, key: _ClientKey) -> None:
        self.settings = settings
        self.client = client
        self.key = key
        self.calls = 0
        """Number of running calls."""
        self._used_at = 0.0
        self._failure_count = 0
        self._blocked_until = 0.0
        self._last_failure: ClientError | None = None
        self._is_connected = False
        self._is_retired = False
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def before_connect(self) -> None:
        remaining = self._blocked_until - monotonic()
        if remaining > 0 and self._last_failure is not None:
            description = describe_error(self._last_failure, self.settings)
            raise ClientConnectionError(f"{description} (next attempt in {max(remaining, 0.1):.1f} s)")

    def on_connected(self, connection: ClientConnection) -> None:
        self._failure_count = 0
        self._blocked_until = 0.0
        self._is_connected = True
        server = describe_server(connection.session.server_info)
        HEALTH_REGISTRY.record_connected(
            self.settings.alias, protocol_version=connection.revision.version, server=server
        )
        self._used_at = monotonic()
        self._on_change()

    def on_disconnected(self) -> None:
        if self._is_connected:
            self.abandon()
            self._on_change()

    def on_connect_failed(self, error: ClientError) -> None:
        if not isinstance(error, AuthorizationNeeded):
            # AuthorizationNeeded does not block calls: a person may authorize the server at any moment.
            self._blocked_until = monotonic() + self.settings.backoff * 2 ** min(
                self._failure_count, MAX_BACKOFF_DOUBLINGS
            )
            self._failure_count = self._failure_count + 1
            self._last_failure = error
        HEALTH_REGISTRY.record_failure(self.settings, error, is_call=False)
        self._on_change()

    def on_request_started(self) -> None:
        self.calls += 1

    def on_request_finished(self, seconds: float, error: BaseException | None) -> None:
        self.calls -= 1
        self._used_at = monotonic()
        if error is None or isinstance(error, CallError):
            HEALTH_REGISTRY.record_call(self.settings.alias, seconds)
        elif isinstance(error, Exception):
            HEALTH_REGISTRY.record_failure(self.settings, error, is_call=True)
        self._on_change()
        if self._is_retired and not self.calls:
            self._disconnect()

    def retire(self) -> None:
        """Disconnect after the running calls.

        Thread-safe; holders of the client may continue to use it.
        """
        if self.client.loop is not None:
            call_threadsafe(self.client.loop, self._retire_on_loop)

    def abandon(self) -> None:
        """Record the connection as closed, because its loop is closed."""
        if self._is_connected:
            self._is_connected = False
            HEALTH_REGISTRY.record_disconnected(self.settings.alias)

    def _retire_on_loop(self) -> None:
        self._is_retired = True
        if not self.calls:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._task is None or self._task.done():
            self._task = start_task(self.client.disconnect())

    def _on_change(self) -> None:
        loop = asyncio.get_running_loop()
        _POOL.get_reporter(loop, has_own_thread=self.key.loop is None).schedule_write(self.settings.alias)
        if self._timer is None and self._is_connected and self.settings.idle is not None:
            self._timer = loop.call_later(self.settings.idle, self._disconnect_if_idle)

    def _disconnect_if_idle(self) -> None:
        """Disconnect if the client was idle for long enough; otherwise check again later."""
        self._timer = None
        idle = self.settings.idle
        if not self._is_connected or idle is None:
            return
        remaining = self._used_at + idle - monotonic()
        if self.calls or self.client.is_needed:
            remaining = idle
        if remaining > 0:
            self._timer = asyncio.get_running_loop().call_later(remaining, self._disconnect_if_idle)
        else:
            self._disconnect()


class _ClientPool:
    """The clients of this process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._clients_by_key: OrderedDict[_ClientKey, _PooledClient] = OrderedDict()
        self._reporters: weakref.WeakKeyDictionary[EventLoop, HealthReporter] = weakref.WeakKeyDictionary()
        self._inherited_objects: list[Any] = []
        self.clients: weakref.WeakSet[Client] = weakref.WeakSet()

    def get(self, alias: str, user: Any, owner: str | None) -> Client:
        settings, loop = client_settings(alias), find_running_loop()
        key = _ClientKey(alias, _get_owner_key(settings, user, owner), loop)
        is_first_on_loop = False

        with self._lock_and_retire() as retired:
            pooled = self._clients_by_key.get(key)
            if pooled is None or pooled.settings is not settings:
                if pooled is not None:
                    retired.append(pooled)
                is_first_on_loop = not any(one.loop is loop for one in self._clients_by_key)
                client = build_client(settings, user=user)
                pooled = self._clients_by_key[key] = _PooledClient(settings, client, key)
                client.set_observer(pooled)
                self.clients.add(client)
                retired += self._remove_excess(settings)
            self._clients_by_key.move_to_end(key)

        if is_first_on_loop and loop is not None:
            clients_used.send(sender=None, loop=loop, close=aclose_clients)
        return pooled.client

    def remove(self, loop: EventLoop | None, *, is_blocking: bool = False) -> list[_PooledClient]:
        """Remove and return the clients of a loop, or all of them.

        With `is_blocking` only those that were requested without a running loop.
        """
        with self._lock:
            removed = [
                kept
                for kept in self._clients_by_key.values()
                if (loop is None or loop in (kept.key.loop, kept.client.loop))
                and (kept.key.loop is None or not is_blocking)
            ]
            for kept in removed:
                del self._clients_by_key[kept.key]
        return removed

    def get_reporter(self, loop: EventLoop, *, has_own_thread: bool) -> HealthReporter:
        """Return the health reporter of a loop, created if needed."""
        with self._lock:
            if loop not in self._reporters:
                self._reporters[loop] = HealthReporter(has_own_thread=has_own_thread)
            return self._reporters[loop]

    def stop_reporters(self, loop: EventLoop | None) -> None:
        """Stop the health reporters of a loop, or all of them."""
        with self._lock:
            found = [(one, reports) for one, reports in self._reporters.items() if loop in (None, one)]
        for one, reports in found:
            if one.is_running():
                one.call_soon_threadsafe(reports.stop)

    def retire_all(self) -> None:
        """Discard all clients after a change of settings; new ones are created on demand."""
        for kept in self.remove(None):
            kept.retire()

    def reset_after_fork(self) -> None:
        """Discard all objects of the parent process in a forked child.

        They are kept from garbage collection, which would close the parent's sockets.
        """
        self._inherited_objects += [self._clients_by_key, self._reporters]
        self._lock = threading.RLock()
        self._clients_by_key = OrderedDict()
        self._reporters = weakref.WeakKeyDictionary()
        self.clients = weakref.WeakSet()

    @contextmanager
    def _lock_and_retire(self) -> Iterator[list[_PooledClient]]:
        """Hold the lock, and retire the collected clients after releasing it.

        Clients of closed loops are removed, too.
        """
        retired: list[_PooledClient] = []
        with self._lock:
            for place in [place for place in self._clients_by_key if place.loop is not None and place.loop.is_closed()]:
                self._clients_by_key.pop(place).abandon()
            yield retired
        for kept in retired:
            kept.retire()

    def _remove_excess(self, settings: ClientSettings) -> list[_PooledClient]:
        """Remove clients of single owners beyond MAX_OWNERS.

        The least recently used are removed first, but none with running calls.
        """
        owned = [
            kept
            for place, kept in self._clients_by_key.items()
            if place.alias == settings.alias and place.owner is not None
        ]
        idle = [kept for kept in owned[:-1] if not kept.calls]
        excess = idle[: max(0, len(owned) - settings.max_owners)]
        for kept in excess:
            del self._clients_by_key[kept.key]
        return excess


def _get_owner_key(settings: ClientSettings, user: Any, owner: str | None) -> tuple[str, str] | None:
    user_key = str(user.pk) if settings.per_user and user is not None else ""
    return (user_key, owner or "") if user_key or owner else None


async def _close_clients(clients: Iterable[Client]) -> None:
    for problem in await asyncio.gather(*(client.close() for client in clients), return_exceptions=True):
        if isinstance(problem, Exception):
            logger.warning("Closing a client failed: %s", type(problem).__name__)


def _close_on_own_loops(pooled_clients: Iterable[_PooledClient]) -> None:
    """Close clients on their own loops, which run in other threads."""
    by_loop: dict[EventLoop, list[Client]] = {}
    for kept in pooled_clients:
        loop = kept.client.loop
        if loop is not None and loop.is_running():
            by_loop.setdefault(loop, []).append(kept.client)

    futures = [asyncio.run_coroutine_threadsafe(_close_clients(clients), loop) for loop, clients in by_loop.items()]
    deadline = monotonic() + CLOSE_TIMEOUT_SECONDS
    for future in futures:
        try:
            future.result(max(0.0, deadline - monotonic()))
        except TimeoutError:
            logger.warning("Closing clients timed out after %g seconds", CLOSE_TIMEOUT_SECONDS)


_POOL: Final = _ClientPool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_POOL.reset_after_fork)


on_change(_POOL.retire_all)


@receiver(server_drained)
def _on_server_drained(**kwargs: Any) -> None:
    """Close the blocking clients: some servers exit without atexit functions."""
    _close_on_own_loops(_POOL.remove(None, is_blocking=True))
