"""Pool of the clients of `MCP["CLIENTS"]`, by alias, user and event loop.

A client is created on demand and connects at its first call. An idle client disconnects after a while, and reconnects
at its next call. After a failed connection, calls fail immediately for some time. Forked processes share no clients,
and clients of a closed loop are discarded.
"""

import asyncio
import logging
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, Final, NamedTuple

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.dispatch import receiver

from mcp_django.aio.clock import monotonic
from mcp_django.client.client import Client
from mcp_django.client.errors import AuthorizationNeeded, CallError, ClientConnectionError, ClientError
from mcp_django.client.pool.factory import build_client
from mcp_django.client.pool.health import BOARD, Reports, described
from mcp_django.client.session.observer import Watcher
from mcp_django.client.session.session import Connection
from mcp_django.conf import get_settings
from mcp_django.conf.clients import ClientSettings
from mcp_django.signals import clients_used, server_drained

logger = logging.getLogger("mcp_django.client")

Loop = asyncio.AbstractEventLoop
DOUBLINGS: Final = 4
"""Maximum number of times that BACKOFF doubles."""
CLOSING: Final = 15.0
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
    return _REGISTRY.get(alias, user, owner)


async def aclose_clients() -> None:
    """Close the clients of the running loop.

    Waits until their connections and programs have ended.
    """
    loop = asyncio.get_running_loop()
    await _close(kept.client for kept in _REGISTRY.take(loop))
    _REGISTRY.stop_reports(loop)


def close_clients() -> None:
    """Close all clients of this process, waiting at most 15 seconds.

    Raises RuntimeError in a thread with a running event loop.
    """
    if _running() is not None:
        raise RuntimeError("An event loop is running in this thread: await aclose_clients()")
    _close_elsewhere(_REGISTRY.take(None))
    _REGISTRY.stop_reports(None)


def is_kept(client: Client) -> bool:
    """Return True if the client belongs to the pool, so that other code may use it."""
    return client in _REGISTRY.clients


def client_settings(alias: str) -> ClientSettings:
    """Return an entry of `MCP["CLIENTS"]`.

    Raises ImproperlyConfigured for an unknown alias, with the list of known ones.
    """
    known = get_settings().clients
    if alias not in known:
        raise ImproperlyConfigured(f'MCP["CLIENTS"] has no {alias!r}; it has: {", ".join(sorted(known)) or "nothing"}')
    return known[alias]


class _Place(NamedTuple):
    """Key of a pooled client."""

    alias: str
    owner: tuple[str, str] | None
    loop: Loop | None
    """The event loop; None for the loop of the blocking clients."""


class _Kept(Watcher):
    """A client of the pool, with its observer."""

    def __init__(self, settings: ClientSettings, client: Client, place: _Place) -> None:
        self.settings, self.client, self.place = settings, client, place
        self.calls = 0
        """Number of running calls."""
        self._used = 0.0
        self._failures, self._barred_until = 0, 0.0
        self._why: ClientError | None = None
        self._is_up, self._is_retired = False, False
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def admit(self) -> None:
        left = self._barred_until - monotonic()
        if left > 0 and self._why is not None:
            said = described(self._why, self.settings)
            raise ClientConnectionError(f"{said} (next attempt in {max(left, 0.1):.1f} s)")

    def connected(self, connection: Connection) -> None:
        self._failures, self._barred_until, self._is_up = 0, 0.0, True
        info = connection.session.server_info
        server = " ".join(part for part in (info.name, info.version) if part) if info is not None else ""
        BOARD.connected(self.settings.alias, protocol_version=connection.revision.version, server=server)
        self._used = monotonic()
        self._changed()

    def disconnected(self) -> None:
        if self._is_up:
            self._is_up = False
            BOARD.disconnected(self.settings.alias)
            self._changed()

    def failed(self, error: ClientError) -> None:
        if not isinstance(error, AuthorizationNeeded):
            # AuthorizationNeeded does not block calls: a person may authorize the server at any moment.
            self._barred_until = monotonic() + self.settings.backoff * 2 ** min(self._failures, DOUBLINGS)
            self._failures, self._why = self._failures + 1, error
        BOARD.failed(self.settings, error, call=False)
        self._changed()

    def began(self) -> None:
        self.calls += 1

    def ended(self, seconds: float, error: BaseException | None) -> None:
        self.calls -= 1
        self._used = monotonic()
        if error is None or isinstance(error, CallError):
            BOARD.called(self.settings.alias, seconds)
        elif isinstance(error, Exception):
            BOARD.failed(self.settings, error, call=True)
        self._changed()
        if self._is_retired and not self.calls:
            self._rest()

    def retire(self) -> None:
        """Disconnect after the running calls.

        Thread-safe; holders of the client may continue to use it.
        """
        loop = self.client.loop
        if loop is None or loop.is_closed():
            return
        try:
            loop.call_soon_threadsafe(self._retire)
        except RuntimeError:
            pass  # the loop was closed in the meantime

    def abandon(self) -> None:
        """Record the connection as closed, because its loop is closed."""
        if self._is_up:
            self._is_up = False
            BOARD.disconnected(self.settings.alias)

    def _retire(self) -> None:
        self._is_retired = True
        if not self.calls:
            self._rest()

    def _rest(self) -> None:
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done():
            self._task = loop.create_task(self.client.rest(), context=Context())

    def _changed(self) -> None:
        loop = asyncio.get_running_loop()
        _REGISTRY.reports(loop, apart=self.place.loop is None).changed(self.settings.alias)
        if self._timer is None and self._is_up and self.settings.idle is not None:
            self._timer = loop.call_later(self.settings.idle, self._look)

    def _look(self) -> None:
        """Disconnect if the client was idle for long enough; otherwise check again later."""
        self._timer, idle = None, self.settings.idle
        if not self._is_up or idle is None:
            return
        left = self._used + idle - monotonic()
        if self.calls or self.client.is_needed:
            left = idle
        if left > 0:
            self._timer = asyncio.get_running_loop().call_later(left, self._look)
        else:
            self._rest()


class _Registry:
    """The clients of this process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._kept: OrderedDict[_Place, _Kept] = OrderedDict()
        self._reports: weakref.WeakKeyDictionary[Loop, Reports] = weakref.WeakKeyDictionary()
        self._inherited: list[Any] = []
        self.clients: weakref.WeakSet[Client] = weakref.WeakSet()

    def get(self, alias: str, user: Any, owner: str | None) -> Client:
        settings, loop = client_settings(alias), _running()
        place = _Place(alias, _owner(settings, user, owner), loop)
        fresh = False

        with self._unused() as unused:
            kept = self._kept.get(place)
            if kept is None or kept.settings is not settings:
                if kept is not None:
                    unused.append(kept)
                fresh = not any(one.loop is loop for one in self._kept)
                client = build_client(settings, user=user)
                kept = self._kept[place] = _Kept(settings, client, place)
                client.watch(kept)
                self.clients.add(client)
                unused += self._superfluous(settings)
            self._kept.move_to_end(place)

        if fresh and loop is not None:
            clients_used.send(sender=None, loop=loop, close=aclose_clients)
        return kept.client

    def take(self, loop: Loop | None) -> list[_Kept]:
        """Remove and return the clients of a loop, or all of them."""
        return self._take(lambda kept: loop is None or loop in (kept.place.loop, kept.client.loop))

    def take_blocking(self) -> list[_Kept]:
        """Remove and return the clients that were requested without a running loop."""
        return self._take(lambda kept: kept.place.loop is None)

    def _take(self, wanted: Callable[[_Kept], bool]) -> list[_Kept]:
        with self._lock:
            found = [kept for kept in self._kept.values() if wanted(kept)]
            for kept in found:
                del self._kept[kept.place]
        return found

    def reports(self, loop: Loop, *, apart: bool) -> Reports:
        """Return the health reporter of a loop, created if needed."""
        with self._lock:
            if loop not in self._reports:
                self._reports[loop] = Reports(apart=apart)
            return self._reports[loop]

    def stop_reports(self, loop: Loop | None) -> None:
        """Stop the health reporters of a loop, or all of them."""
        with self._lock:
            found = [(one, reports) for one, reports in self._reports.items() if loop in (None, one)]
        for one, reports in found:
            if one.is_running():
                one.call_soon_threadsafe(reports.stop)

    def renew(self) -> None:
        """Discard all clients after a change of settings; new ones are created on demand."""
        for kept in self.take(None):
            kept.retire()

    def forked(self) -> None:
        """Discard all objects of the parent process in a forked child.

        They are kept from garbage collection, which would close the parent's sockets.
        """
        self._inherited += [self._kept, self._reports]
        self._lock, self._kept = threading.RLock(), OrderedDict()
        self._reports, self.clients = weakref.WeakKeyDictionary(), weakref.WeakSet()

    @contextmanager
    def _unused(self) -> Iterator[list[_Kept]]:
        """Hold the lock, and retire the collected clients after releasing it.

        Clients of closed loops are removed, too.
        """
        unused: list[_Kept] = []
        with self._lock:
            for place in [place for place in self._kept if place.loop is not None and place.loop.is_closed()]:
                self._kept.pop(place).abandon()
            yield unused
        for kept in unused:
            kept.retire()

    def _superfluous(self, settings: ClientSettings) -> list[_Kept]:
        """Remove clients of single owners beyond MAX_OWNERS.

        The least recently used are removed first, but none with running calls.
        """
        owned = [
            kept for place, kept in self._kept.items() if place.alias == settings.alias and place.owner is not None
        ]
        idle = [kept for kept in owned[:-1] if not kept.calls]
        over = idle[: max(0, len(owned) - settings.max_owners)]
        for kept in over:
            del self._kept[kept.place]
        return over


def _owner(settings: ClientSettings, user: Any, owner: str | None) -> tuple[str, str] | None:
    own = str(user.pk) if settings.per_user and user is not None else ""
    return (own, owner or "") if own or owner else None


def _running() -> Loop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _close(clients: Iterable[Client]) -> None:
    for problem in await asyncio.gather(*(client.close() for client in clients), return_exceptions=True):
        if isinstance(problem, Exception):
            logger.warning("Closing a client failed: %s", type(problem).__name__)


def _close_elsewhere(found: Iterable[_Kept]) -> None:
    """Close clients on their own loops, which run in other threads."""
    by_loop: dict[Loop, list[Client]] = {}
    for kept in found:
        loop = kept.client.loop
        if loop is not None and loop.is_running():
            by_loop.setdefault(loop, []).append(kept.client)

    futures = [asyncio.run_coroutine_threadsafe(_close(clients), loop) for loop, clients in by_loop.items()]
    until = monotonic() + CLOSING
    for future in futures:
        try:
            future.result(max(0.0, until - monotonic()))
        except TimeoutError:
            logger.warning("Closing clients timed out after %g seconds", CLOSING)


_REGISTRY: Final = _Registry()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_REGISTRY.forked)


@receiver(setting_changed)
def _on_change(*, setting: str, **kwargs: Any) -> None:
    if setting == "MCP":
        _REGISTRY.renew()


@receiver(server_drained)
def _on_drained(**kwargs: Any) -> None:
    """Close the blocking clients: some servers exit without atexit functions."""
    _close_elsewhere(_REGISTRY.take_blocking())
