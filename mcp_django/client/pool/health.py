"""Health of the servers in `MCP["CLIENTS"]`, in memory and in shared rows.

A process writes after a change, at most once in 15 seconds, and once a minute while it is connected. The rows contain
no credentials. Of an error they contain its class and one line, with all secrets of the setting removed.
"""

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from asgiref.sync import sync_to_async
from django.db import connections
from django.utils import timezone

from mcp_django.client.errors import CallError, ClientError, legible
from mcp_django.conf.clients import ClientSettings
from mcp_django.models import ClientHealth

logger = logging.getLogger("mcp_django.client")

EVERY: Final = 15.0
"""Minimum seconds between two writes of a process."""
BEAT: Final = 60.0
"""Seconds between writes without a change, while the process is connected."""
BELIEVED: Final = 2.5 * BEAT
"""Seconds after which the connections reported by a process are considered closed."""
WEIGHT: Final = 0.2
"""Weight of the latest call in the moving average of the latency."""
LINE: Final = 300
"""Maximum length of a stored error, in characters."""
SHORTEST: Final = 4
"""Minimum length of a value that is removed from texts as a secret, in characters."""


@dataclass(slots=True, kw_only=True)
class Health:
    """The health of one server as seen by this process.

    Times are aware; `latency` is in seconds.
    """

    alias: str
    connections: int = 0
    """Number of open connections.

    There is one for each loop, and for each user where credentials are per user.
    """
    since: datetime | None = None
    """Start of the current period with at least one connection."""
    reached: datetime | None = None
    """Time of the latest established connection."""
    calls: int = 0
    failures: int = 0
    """Number of calls without a response."""
    latency: float | None = None
    """Moving average of the calls' duration."""
    protocol_version: str = ""
    server: str = ""
    """The server's name and version, as sent by the server."""
    tools: int | None = None
    """Number of tools, if they have been listed."""
    error: str = ""
    """Class name of the last error."""
    error_text: str = ""
    error_at: datetime | None = None

    def row(self) -> dict[str, Any]:
        """Return the values of the database row."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "alias"}


class Board:
    """The health of all servers used by this process.

    One instance per process; thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, Health] = {}

    def get(self, alias: str) -> Health:
        """Return the health of a server, created if needed."""
        with self._lock:
            return self._found.setdefault(alias, Health(alias=alias))

    def all(self) -> list[Health]:
        """Return the health of all used servers."""
        with self._lock:
            return list(self._found.values())

    def connected(self, alias: str, *, protocol_version: str, server: str) -> None:
        """Record an opened connection."""
        health = self.get(alias)
        with self._lock:
            if health.connections == 0:
                health.since = timezone.now()
            health.connections += 1
            health.reached = timezone.now()
            health.protocol_version, health.server = protocol_version[:32], legible(server)[:200]

    def disconnected(self, alias: str) -> None:
        """Record a closed connection."""
        health = self.get(alias)
        with self._lock:
            health.connections = max(0, health.connections - 1)
            if health.connections == 0:
                health.since = None

    def called(self, alias: str, seconds: float) -> None:
        """Record the duration of a call with a response."""
        health = self.get(alias)
        with self._lock:
            health.calls += 1
            before = health.latency
            health.latency = seconds if before is None else before + WEIGHT * (seconds - before)

    def failed(self, settings: ClientSettings, error: BaseException, *, call: bool) -> None:
        """Record a call without a response, or a failed connection."""
        health = self.get(settings.alias)
        said = described(error, settings)
        with self._lock:
            health.calls += call
            health.failures += call
            health.error, health.error_text, health.error_at = type(error).__name__[:100], said, timezone.now()

    def checked(self, alias: str, *, protocol_version: str, server: str, tools: int) -> None:
        """Record a successful check, whose connection is already closed."""
        health = self.get(alias)
        with self._lock:
            health.reached, health.tools = timezone.now(), tools
            health.protocol_version, health.server = protocol_version[:32], legible(server)[:200]

    def forget(self) -> None:
        """Discard all records of the parent process, in a forked child.

        The inherited lock may be held.
        """
        self._lock, self._found = threading.Lock(), {}


BOARD: Final = Board()


def process_name() -> str:
    """Return a name for this process that is unique across hosts."""
    return f"{socket.gethostname()[:80]}:{os.getpid()}"


def described(error: BaseException, settings: ClientSettings | None) -> str:
    """Describe an error in one line without secrets, for administrators.

    The text of an error response is omitted, because it is meant for the caller and may contain anything.
    """
    if isinstance(error, CallError):
        return f"The server responded with error {error.code}"
    if not isinstance(error, ClientError | OSError | TimeoutError):
        return "Unexpected error; see the log"
    text = " ".join(str(error).split())
    for secret in sorted(_secrets(settings), key=len, reverse=True) if settings is not None else ():
        text = text.replace(secret, "…")
    return text if len(text) <= LINE else text[: LINE - 1] + "…"


def _secrets(settings: ClientSettings) -> Iterable[str]:
    url = urlsplit(settings.url or "")
    found = [
        url.query,
        *(value for _, value in parse_qsl(url.query)),
        *settings.headers.values(),
        *settings.env.values(),
    ]
    found += [word for value in settings.headers.values() for word in value.split()]
    for argument in (settings.command or ())[1:]:
        found += [argument, argument.partition("=")[2]]
    if settings.auth is not None:
        found += [settings.auth.token or "", settings.auth.client_secret or "", settings.auth.private_key or ""]
    return {value for value in found if len(value) >= SHORTEST}


class Reports:
    """Writes the health of servers from one event loop.

    With `has_own_thread` it uses a separate database thread, because the loop serves no requests.
    """

    def __init__(self, *, apart: bool) -> None:
        self._apart = apart
        self._changed: set[str] = set()
        self._at = -EVERY
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def changed(self, alias: str) -> None:
        """Schedule a write of a server's health. Called on the loop."""
        self._changed.add(alias)
        loop = asyncio.get_running_loop()
        due = max(loop.time(), self._at + EVERY)
        if self._timer is not None and self._timer.when() <= due:
            return
        self.stop()
        self._timer = loop.call_at(due, self._start, loop)

    def stop(self) -> None:
        """Cancel the scheduled write."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._task is None or self._task.done():
            self._at = loop.time()
            self._task = loop.create_task(self._write())

    async def _write(self) -> None:
        aliases, self._changed = self._changed, set()
        rows = [(alias, BOARD.get(alias).row()) for alias in sorted(aliases)]

        try:
            if self._apart:
                await asyncio.get_running_loop().run_in_executor(_WRITER.threads, _write_apart, rows)
            else:
                await sync_to_async(_write_beside)(rows)
        except Exception as problem:
            # Without a table or database, or with a lock, clients still work; the admin shows the last state.
            logger.debug("Writing the health of servers failed: %s", type(problem).__name__)

        busy = [alias for alias, row in rows if row["connections"]]
        if busy and self._timer is None:
            self._changed.update(busy)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(loop.time() + BEAT, self._start, loop)


class _Writer:
    """The database thread for loops that serve no requests."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(1, "mcp-client-health")

    def forked(self) -> None:
        """Replace the executor in a forked child, where its thread does not exist."""
        self.threads = ThreadPoolExecutor(1, "mcp-client-health")
        BOARD.forget()


_WRITER: Final = _Writer()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_WRITER.forked)


def _write(rows: list[tuple[str, dict[str, Any]]]) -> None:
    for alias, row in rows:
        ClientHealth.objects.tell(process_name(), alias, row)


def _write_beside(rows: list[tuple[str, dict[str, Any]]]) -> None:
    """Write on a thread that also serves requests, whose connections may be in use."""
    _close_old()
    try:
        _write(rows)
    finally:
        _close_old()


def _close_old() -> None:
    """Close old connections, as Django does around requests.

    Connections inside a transaction, as in tests, stay open.
    """
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def _write_apart(rows: list[tuple[str, dict[str, Any]]]) -> None:
    try:
        _write(rows)
    finally:
        connections.close_all()
