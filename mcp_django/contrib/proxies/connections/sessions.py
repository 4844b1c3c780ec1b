"""Connections to one remote that serve one call, or one list, at a time.

Over most transports a question, or a log message, does not say which call it belongs to. So a call that may be asked,
or wants to hear the log, has a session of its own while it runs. Afterwards the session waits for the next call of the
same caller with the same credential and the same capabilities, and for nobody else's.
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
"""Seconds after which a session that nobody uses is closed."""
PATIENCE = 5.0
"""Seconds that a call waits for a session when there are as many as there may be."""


class Askable(NamedTuple):
    """What the remote may ask a caller."""

    asks: frozenset[str]
    """What the remote is told that it may ask."""
    tools: bool
    """May a sample use tools?"""


NOTHING_ASKED = Askable(frozenset(), False)


def askable_by(ctx: Context, kinds: Iterable[str]) -> Askable:
    """Which of these kinds of questions the caller can be asked."""
    if not lasts(ctx):
        return NOTHING_ASKED
    asks = frozenset(kind for kind in kinds if supports(ctx, {kind: {}}))
    return Askable(asks, "sampling" in asks and supports(ctx, {"sampling": {"tools": {}}}))


class Kind(NamedTuple):
    """What sessions are kept apart by."""

    credential: tuple[str, str]
    asks: frozenset[str]
    """What the remote is told that it may ask."""
    tools: bool
    """May a sample use tools?"""


Make = Callable[[Answering, bool], Client]
"""Makes a client that has these answerers, and may be asked for samples with tools."""


class Running(Protocol):
    """The call that has a session."""

    listener: Context | None
    """The call of ours that hears of progress and logs."""

    async def ask(self, asked: Asked) -> dict[str, Any]:
        """The answer to a question of the remote's. Raises CallError when it gets none."""


Heard = Callable[[Running, Any], Awaitable[None] | None]


class Session:
    """One connection, and the call that has it."""

    def __init__(self, kind: Kind, make: Make, heard: Heard) -> None:
        self.kind = kind
        self.call: Running | None = None
        self.level: str | None = None
        """The level of log messages that the remote was told."""
        self.client = make(answering(self._ask, kind.asks), kind.tools)
        self.client.on_log(lambda message: None if self.call is None else heard(self.call, message))

    async def _ask(self, method: str, params: dict[str, Any] | None) -> dict[str, Any]:
        if self.call is None:
            raise ToolError("There is no call that this question could belong to")
        return await self.call.ask(Asked(method, params))


class Sessions:
    """The sessions with one remote on one event loop."""

    def __init__(self, name: str, most: int, heard: Heard, *, make_room: Callable[[], None] = lambda: None) -> None:
        """`make_room` is called when somebody has to wait: a call that nobody waits for should give its session up."""
        self._name, self._most, self._heard, self._make_room = name, most, heard, make_room
        self._count = 0
        self._idle: dict[Session, float] = {}
        """Since when; the one that is idle longest first."""
        self._alarm: asyncio.TimerHandle | None = None
        self._freed = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return self._count

    @property
    def are_taken(self) -> bool:
        """Would a call have to wait for one?"""
        return self._count >= self._most and not self._idle

    async def take(self, kind: Kind, make: Make) -> Session:
        """A session of this kind, for one call. Raises ToolError when there are too many for too long."""
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
        """The call is over."""
        session.call = None
        if broken:
            self._end(session)
        else:
            self._idle[session] = monotonic()
            if self._alarm is None:
                self._set_alarm(IDLE)
        self._freed.set()

    def forget(self, credential: tuple[str, str] | None = None) -> None:
        """Close the idle sessions of a credential, or all."""
        for session in [one for one in self._idle if credential in (None, one.kind.credential)]:
            self._drop(session)

    async def close(self) -> None:
        """Close what is idle, and wait for what is being closed."""
        self.forget()
        if self._alarm is not None:
            self._alarm.cancel()
        if self._closing:
            await asyncio.wait(self._closing)

    def _set_alarm(self, seconds: float) -> None:
        self._alarm = asyncio.get_running_loop().call_later(seconds, self._look, context=contextvars.Context())

    def _look(self) -> None:
        """Close what nobody has used for long."""
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
    """May the server log? In the stateless era none has to declare that it does, since each request asks for it."""
    revision = REVISIONS.get(client.protocol_version or "")
    stateless = revision is not None and revision.era is Era.STATELESS
    return stateless or getattr(client.capabilities, "logging", None) is not None
