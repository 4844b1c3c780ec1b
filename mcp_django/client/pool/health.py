"""How the servers in `MCP["CLIENTS"]` are doing: counted in memory by each process, and told to the others by a row.

A process writes when something has changed, at most once in 15 seconds, and once a minute while it has a connection.
What is kept holds no credential: of errors the class and one line, out of which everything is taken that the setting
keeps secret.
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
"""Seconds between what a process writes."""
BEAT: Final = 60.0
"""Seconds after which it repeats itself while it has a connection."""
BELIEVED: Final = 2.5 * BEAT
"""Seconds for which a process is believed to have the connections that it said it has."""
WEIGHT: Final = 0.2
"""Of the latest call in the latency."""
LINE: Final = 300
"""Characters of an error that are kept."""
SHORTEST: Final = 4
"""Characters that a value has at least to be taken for a secret in a text."""


@dataclass(slots=True, kw_only=True)
class Health:
    """How one server is doing, as this process knows. Times are aware, `latency` is in seconds."""

    alias: str
    connections: int = 0
    """Open now: one for each loop, and for each user where they have their own."""
    since: datetime | None = None
    """When the oldest of them was made, or the first after there was none."""
    reached: datetime | None = None
    """When a connection was made last."""
    calls: int = 0
    failures: int = 0
    """Calls that got no answer."""
    latency: float | None = None
    """Of calls, the latest counting most."""
    protocol_version: str = ""
    server: str = ""
    """Its name and version, as it gave them."""
    tools: int | None = None
    """How many it has, where they have been listed."""
    error: str = ""
    """The class of the last error."""
    error_text: str = ""
    error_at: datetime | None = None

    def row(self) -> dict[str, Any]:
        """What is written of it."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "alias"}


class Board:
    """The health of all servers that this process uses. There is one for a process; it may be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, Health] = {}

    def get(self, alias: str) -> Health:
        """The health of a server; a new one where nothing is known."""
        with self._lock:
            return self._found.setdefault(alias, Health(alias=alias))

    def all(self) -> list[Health]:
        """Those of all servers that were used."""
        with self._lock:
            return list(self._found.values())

    def connected(self, alias: str, *, protocol_version: str, server: str) -> None:
        """A connection was made."""
        health = self.get(alias)
        with self._lock:
            if health.connections == 0:
                health.since = timezone.now()
            health.connections += 1
            health.reached = timezone.now()
            health.protocol_version, health.server = protocol_version[:32], legible(server)[:200]

    def disconnected(self, alias: str) -> None:
        """A connection ended, by whatever hand."""
        health = self.get(alias)
        with self._lock:
            health.connections = max(0, health.connections - 1)
            if health.connections == 0:
                health.since = None

    def called(self, alias: str, seconds: float) -> None:
        """A call was answered after so long."""
        health = self.get(alias)
        with self._lock:
            health.calls += 1
            before = health.latency
            health.latency = seconds if before is None else before + WEIGHT * (seconds - before)

    def failed(self, settings: ClientSettings, error: BaseException, *, call: bool) -> None:
        """A call got no answer, or there is no connection."""
        health = self.get(settings.alias)
        said = described(error, settings)
        with self._lock:
            health.calls += call
            health.failures += call
            health.error, health.error_text, health.error_at = type(error).__name__[:100], said, timezone.now()

    def checked(self, alias: str, *, protocol_version: str, server: str, tools: int) -> None:
        """A connection was made to see whether the server is there, and has ended."""
        health = self.get(alias)
        with self._lock:
            health.reached, health.tools = timezone.now(), tools
            health.protocol_version, health.server = protocol_version[:32], legible(server)[:200]

    def forget(self) -> None:
        """Forget everything: what was counted is not this process's. Called in a child, whose lock may be held."""
        self._lock, self._found = threading.Lock(), {}


BOARD: Final = Board()


def process_name() -> str:
    """What this process is called among others."""
    return f"{socket.gethostname()[:80]}:{os.getpid()}"


def described(error: BaseException, settings: ClientSettings | None) -> str:
    """One line about an error that may be shown to operators, without what the setting keeps secret.

    A server's own text is left out where it answered with an error: it is meant for the caller, and may hold anything.
    """
    if isinstance(error, CallError):
        return f"The server answered with error {error.code}"
    if not isinstance(error, ClientError | OSError | TimeoutError):
        return "Unexpected; the log has more"
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
    """What one loop writes of the health of servers. `apart`: it has a thread of its own for the database, because no
    request is served on the loop.
    """

    def __init__(self, *, apart: bool) -> None:
        self._apart = apart
        self._changed: set[str] = set()
        self._at = -EVERY
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def changed(self, alias: str) -> None:
        """Write it when it is time. Called on the loop."""
        self._changed.add(alias)
        loop = asyncio.get_running_loop()
        due = max(loop.time(), self._at + EVERY)
        if self._timer is not None and self._timer.when() <= due:
            return
        self.stop()
        self._timer = loop.call_at(due, self._start, loop)

    def stop(self) -> None:
        """Write no more."""
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
            # No table, no database, a lock: the servers are used all the same, and the admin says what it knows.
            logger.debug("The health of servers could not be written (%s)", type(problem).__name__)
        busy = [alias for alias, row in rows if row["connections"]]
        if busy and self._timer is None:
            self._changed.update(busy)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(loop.time() + BEAT, self._start, loop)


class _Writer:
    """The thread that writes where no request is served."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(1, "mcp-client-health")

    def forked(self) -> None:
        """In a child: the thread is not there."""
        self.threads = ThreadPoolExecutor(1, "mcp-client-health")
        BOARD.forget()


_WRITER: Final = _Writer()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_WRITER.forked)


def _write(rows: list[tuple[str, dict[str, Any]]]) -> None:
    for alias, row in rows:
        ClientHealth.objects.tell(process_name(), alias, row)


def _write_beside(rows: list[tuple[str, dict[str, Any]]]) -> None:
    """In a thread that serves requests as well, whose connections may be in use."""
    _close_old()
    try:
        _write(rows)
    finally:
        _close_old()


def _close_old() -> None:
    """As Django does around requests, but for connections that are within a transaction, as those of tests are."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def _write_apart(rows: list[tuple[str, dict[str, Any]]]) -> None:
    try:
        _write(rows)
    finally:
        connections.close_all()
