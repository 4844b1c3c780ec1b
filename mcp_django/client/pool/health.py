"""Health of the servers in `MCP["CLIENTS"]`, in memory and in shared rows.

A process writes after a change, at most once in 15 seconds, and once a minute while it is connected. The rows contain
no credentials. Of an error they contain its class and one line, with all secrets of the setting removed.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

from asgiref.sync import sync_to_async
from django.db import connections
from django.utils import timezone

from mcp_django.client.errors import CallError, ClientError
from mcp_django.client.transports.process_output import ServerEnded, ServerUnresponsive
from mcp_django.conf.clients import ClientSettings
from mcp_django.models import ClientHealth
from mcp_django.protocol.display_text import clean_line, truncate
from mcp_django.protocol.log_text import get_logger

if TYPE_CHECKING:
    import mcp_types as types

logger = get_logger("mcp_django.client")

WRITE_INTERVAL_SECONDS: Final = 15.0
"""Minimum seconds between two writes of a process."""
HEARTBEAT_INTERVAL_SECONDS: Final = 60.0
"""Seconds between writes without a change, while the process is connected."""
HEARTBEAT_TIMEOUT_SECONDS: Final = 2.5 * HEARTBEAT_INTERVAL_SECONDS
"""Seconds after which the connections reported by a process are considered closed."""
LATENCY_WEIGHT: Final = 0.2
"""Weight of the latest call in the moving average of the latency."""
MAX_ERROR_LENGTH: Final = 300
"""Maximum length of a stored error, in characters."""
MAX_STDERR_LINES: Final = 10
"""Maximum number of shown lines of a program's standard error."""
MIN_SECRET_LENGTH: Final = 4
"""Minimum length of a value that is removed from texts as a secret, in characters."""


@dataclass(slots=True, kw_only=True)
class ServerHealth:
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

    def to_row(self) -> dict[str, Any]:
        """Return the values of the database row."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "alias"}


class HealthRegistry:
    """The health of all servers used by this process.

    One instance per process; thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_alias: dict[str, ServerHealth] = {}

    def get(self, alias: str) -> ServerHealth:
        """Return the health of a server, created if needed."""
        with self._lock:
            return self._by_alias.setdefault(alias, ServerHealth(alias=alias))

    def list_all(self) -> list[ServerHealth]:
        """Return the health of all used servers."""
        with self._lock:
            return list(self._by_alias.values())

    def record_connected(self, alias: str, *, protocol_version: str, server: str) -> None:
        """Record an opened connection."""
        health = self.get(alias)
        with self._lock:
            if health.connections == 0:
                health.since = timezone.now()
            health.connections += 1
            health.reached = timezone.now()
            health.protocol_version, health.server = protocol_version[:32], clean_line(server, 200)

    def record_disconnected(self, alias: str) -> None:
        """Record a closed connection."""
        health = self.get(alias)
        with self._lock:
            health.connections = max(0, health.connections - 1)
            if health.connections == 0:
                health.since = None

    def record_call(self, alias: str, seconds: float) -> None:
        """Record the duration of a call with a response."""
        health = self.get(alias)
        with self._lock:
            health.calls += 1
            previous = health.latency
            health.latency = seconds if previous is None else previous + LATENCY_WEIGHT * (seconds - previous)

    def record_failure(self, settings: ClientSettings, error: BaseException, *, is_call: bool) -> None:
        """Record a call without a response, or a failed connection."""
        health = self.get(settings.alias)
        description = describe_error(error, settings)
        with self._lock:
            health.calls += is_call
            health.failures += is_call
            health.error, health.error_text, health.error_at = type(error).__name__[:100], description, timezone.now()

    def record_check(self, alias: str, *, protocol_version: str, server: str, tools: int) -> None:
        """Record a successful check, whose connection is already closed."""
        health = self.get(alias)
        with self._lock:
            health.reached, health.tools = timezone.now(), tools
            health.protocol_version, health.server = protocol_version[:32], clean_line(server, 200)

    def reset_after_fork(self) -> None:
        """Discard all records of the parent process, in a forked child.

        The inherited lock may be held.
        """
        self._lock = threading.Lock()
        self._by_alias = {}


HEALTH_REGISTRY: Final = HealthRegistry()


def get_process_name() -> str:
    """Return a name for this process that is unique across hosts."""
    return f"{socket.gethostname()[:80]}:{os.getpid()}"


def describe_server(info: "types.Implementation | None") -> str:
    """Return the name and version of a server, as sent by the server."""
    return "" if info is None else " ".join(part for part in (info.name, info.version) if part)


def describe_error(error: BaseException, settings: ClientSettings | None) -> str:
    """Describe an error in one line without secrets, for administrators.

    The text of an error response is omitted, because it is meant for the caller and may contain anything.
    """
    if isinstance(error, CallError):
        return f"The server responded with error {error.code}"
    if not isinstance(error, ClientError | OSError | TimeoutError):
        return "Unexpected error; see the log"
    text = _remove_secrets(" ".join(str(error).split()), settings)
    return truncate(text, MAX_ERROR_LENGTH)


def describe_stderr(error: BaseException, settings: ClientSettings) -> str:
    """Return the last lines that a program wrote to standard error, without secrets of the setting."""
    if not isinstance(error, ServerEnded | ServerUnresponsive):
        return ""
    lines = [clean_line(line) for line in _remove_secrets(error.stderr, settings).splitlines()]
    last_lines = [line[:MAX_ERROR_LENGTH] for line in lines if line][-MAX_STDERR_LINES:]
    return "\n".join(last_lines)


def _remove_secrets(text: str, settings: ClientSettings | None) -> str:
    for secret in sorted(_list_secrets(settings), key=len, reverse=True) if settings is not None else ():
        text = text.replace(secret, "…")
    return text


def _list_secrets(settings: ClientSettings) -> Iterable[str]:
    url = urlsplit(settings.url or "")
    secrets = [
        url.query,
        *(value for _, value in parse_qsl(url.query)),
        *settings.headers.values(),
        *settings.env.values(),
    ]
    secrets += [word for value in settings.headers.values() for word in value.split()]
    for argument in (settings.command or ())[1:]:
        secrets += [argument, argument.partition("=")[2]]
    if settings.auth is not None:
        secrets += [settings.auth.token or "", settings.auth.client_secret or "", settings.auth.private_key or ""]
    return {value for value in secrets if len(value) >= MIN_SECRET_LENGTH}


class HealthReporter:
    """Writes the health of servers from one event loop.

    With `has_own_thread` it uses a separate database thread, because the loop serves no requests.
    """

    def __init__(self, *, has_own_thread: bool) -> None:
        self._has_own_thread = has_own_thread
        self._changed_aliases: set[str] = set()
        self._last_write_at = -WRITE_INTERVAL_SECONDS
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def schedule_write(self, alias: str) -> None:
        """Schedule a write of a server's health. Called on the loop."""
        self._changed_aliases.add(alias)
        loop = asyncio.get_running_loop()
        due = max(loop.time(), self._last_write_at + WRITE_INTERVAL_SECONDS)
        if self._timer is not None and self._timer.when() <= due:
            return
        self.stop()
        self._timer = loop.call_at(due, self._start_write, loop)

    def stop(self) -> None:
        """Cancel the scheduled write."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_write(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._task is None or self._task.done():
            self._last_write_at = loop.time()
            self._task = loop.create_task(self._write())

    async def _write(self) -> None:
        aliases = self._changed_aliases
        self._changed_aliases = set()
        rows = [(alias, HEALTH_REGISTRY.get(alias).to_row()) for alias in sorted(aliases)]

        try:
            if self._has_own_thread:
                await asyncio.get_running_loop().run_in_executor(_WRITER_THREAD.executor, _write_on_own_thread, rows)
            else:
                await sync_to_async(_write_on_shared_thread)(rows)
        except Exception as problem:
            # Without a table or database, or with a lock, clients still work; the admin shows the last state.
            logger.debug("Writing the health of servers failed: %s", type(problem).__name__)

        busy = [alias for alias, row in rows if row["connections"]]
        if busy and self._timer is None:
            self._changed_aliases.update(busy)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(loop.time() + HEARTBEAT_INTERVAL_SECONDS, self._start_write, loop)


class _WriterThread:
    """The database thread for loops that serve no requests."""

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(1, "mcp-client-health")

    def reset_after_fork(self) -> None:
        """Replace the executor in a forked child, where its thread does not exist."""
        self.executor = ThreadPoolExecutor(1, "mcp-client-health")
        HEALTH_REGISTRY.reset_after_fork()


_WRITER_THREAD: Final = _WriterThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_WRITER_THREAD.reset_after_fork)


def _write_rows(rows: list[tuple[str, dict[str, Any]]]) -> None:
    for alias, row in rows:
        ClientHealth.objects.report(get_process_name(), alias, row)


def _write_on_shared_thread(rows: list[tuple[str, dict[str, Any]]]) -> None:
    """Write on a thread that also serves requests, whose connections may be in use."""
    _close_old_connections()
    try:
        _write_rows(rows)
    finally:
        _close_old_connections()


def _close_old_connections() -> None:
    """Close old connections, as Django does around requests.

    Connections inside a transaction, as in tests, stay open.
    """
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def _write_on_own_thread(rows: list[tuple[str, dict[str, Any]]]) -> None:
    try:
        _write_rows(rows)
    finally:
        connections.close_all()
