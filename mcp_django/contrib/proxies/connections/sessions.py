"""Sessions with a remote server that serve one call, or one list, at a time.

On most transports, requests and log messages of the server do not identify their call. So a call that accepts requests
or log messages has its own session while it runs. Afterwards the session is kept for the next call of the same caller
with the same credential and capabilities.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, Protocol

from mcp_django.aio.clock import monotonic
from mcp_django.client import Client
from mcp_django.client.session.passthrough import Answering, answering
from mcp_django.contrib.proxies.connections.questions import Asked
from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.revisions import REVISIONS, Era
from mcp_django.server.context.context import Context
from mcp_django.server.context.forwarding import lasts, supports

IDLE = 120.0
"""Seconds without use after which a session is closed."""
PATIENCE = 5.0
"""Seconds that a call waits for a session at the limit."""


class Askable(NamedTuple):
    """Requests of the remote server that a caller supports."""

    asks: frozenset[str]
    """Capabilities that are declared to the remote server."""
    tools: bool
    """True if sampling requests may contain tools."""


NOTHING_ASKED = Askable(frozenset(), False)


def askable_by(ctx: Context, kinds: Iterable[str]) -> Askable:
    """Return the supported ones of these kinds of requests."""
    if not lasts(ctx):
        return NOTHING_ASKED
    asks = frozenset(kind for kind in kinds if supports(ctx, {kind: {}}))
    return Askable(asks, "sampling" in asks and supports(ctx, {"sampling": {"tools": {}}}))


class Kind(NamedTuple):
    """Key of interchangeable sessions."""

    credential: tuple[str, str]
    asks: frozenset[str]
    """Capabilities that are declared to the remote server."""
    tools: bool
    """True if sampling requests may contain tools."""


Make = Callable[[Answering, bool], Client]
"""Function that creates a client with request callbacks and sampling tools."""


class Running(Protocol):
    """The call that uses a session."""

    listener: Context | None
    """Context of the local call that receives progress and log messages."""

    async def ask(self, asked: Asked) -> dict[str, Any]:
        """Return the response to a request of the remote server. Raises CallError."""


Heard = Callable[[Running, Any], Awaitable[None] | None]


class Session:
    """A connection to a remote server, with the call that uses it."""

    def __init__(self, kind: Kind, make: Make, heard: Heard) -> None:
        self.kind = kind
        self.call: Running | None = None
        self.level: str | None = None
        """Log level that was sent to the remote server."""
        self.client = make(answering(self._ask, kind.asks), kind.tools)
        self.client.on_log(lambda message: None if self.call is None else heard(self.call, message))

    async def _ask(self, method: str, params: dict[str, Any] | None) -> dict[str, Any]:
        if self.call is None:
            raise ToolError("No call is running that this request could belong to")
        return await self.call.ask(Asked(method, params))


class Sessions:
    """Pool of sessions with one remote server on one event loop."""

    def __init__(self, name: str, most: int, heard: Heard, *, make_room: Callable[[], None] = lambda: None) -> None:
        """Create an empty pool.

        `make_room` is called when a call has to wait, to release the session of a suspended call.
        """
        self._name, self._most, self._heard, self._make_room = name, most, heard, make_room
        self._count = 0
        self._idle: dict[Session, float] = {}
        """Idle sessions with the start of their idle time, the longest idle first."""
        self._alarm: asyncio.TimerHandle | None = None
        self._freed = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return self._count

    @property
    def are_taken(self) -> bool:
        """True if a new call would have to wait."""
        return self._count >= self._most and not self._idle

    async def take(self, kind: Kind, make: Make) -> Session:
        """Return a session with this key for one call.

        Raises ToolError if no session becomes free in time.
        """
        until = asyncio.get_running_loop().time() + PATIENCE
        while True:
            session = next((one for one in reversed(self._idle) if one.kind == kind), None)
            if session is not None:
                del self._idle[session]
                return session

            if self._count >= self._most and self._idle:
                self._drop(next(iter(self._idle)))
            if self._count < self._most:
                self._count += 1
                return Session(kind, make, self._heard)

            self._freed.clear()
            self._make_room()
            try:
                async with asyncio.timeout_at(until):
                    await self._freed.wait()
            except TimeoutError:
                raise ToolError(f"Too many calls use the server {self._name!r} now; try again later") from None

    def give_back(self, session: Session, *, broken: bool) -> None:
        """Return a session to the pool after its call; close it if it is broken."""
        session.call = None
        if broken:
            self._end(session)
        else:
            self._idle[session] = monotonic()
            if self._alarm is None:
                self._set_alarm(IDLE)
        self._freed.set()

    def forget(self, credential: tuple[str, str] | None = None) -> None:
        """Close the idle sessions of a credential, or all idle sessions."""
        for session in [one for one in self._idle if credential in (None, one.kind.credential)]:
            self._drop(session)

    async def close(self) -> None:
        """Close all idle sessions, and wait until all closing sessions are closed."""
        self.forget()
        if self._alarm is not None:
            self._alarm.cancel()
        if self._closing:
            await asyncio.wait(self._closing)

    def _set_alarm(self, seconds: float) -> None:
        self._alarm = asyncio.get_running_loop().call_later(seconds, self._look, context=contextvars.Context())

    def _look(self) -> None:
        """Close the sessions whose idle time has expired."""
        self._alarm, now = None, monotonic()
        for session in [one for one, since in self._idle.items() if now >= since + IDLE]:
            self._drop(session)
        if self._idle:
            self._set_alarm(max(0.1, next(iter(self._idle.values())) + IDLE - now))

    def _drop(self, session: Session) -> None:
        del self._idle[session]
        self._end(session)

    def _end(self, session: Session) -> None:
        self._count -= 1
        task = asyncio.get_running_loop().create_task(session.client.close(), context=contextvars.Context())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def logs(client: Client) -> bool:
    """Return True if the server may send log messages.

    Servers of the stateless era need not declare logging, since each request carries a log level.
    """
    revision = REVISIONS.get(client.protocol_version or "")
    stateless = revision is not None and revision.era is Era.STATELESS
    return stateless or getattr(client.capabilities, "logging", None) is not None
