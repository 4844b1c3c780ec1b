"""Sessions with a remote server that serve one call, or one list, at a time.

On most transports, requests and log messages of the server do not identify their call. So a call that accepts requests
or log messages has its own session while it runs. Afterwards the session is kept for the next call of the same caller
with the same credential and capabilities.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, Protocol

from mcp_django.client import Client
from mcp_django.client.session.passthrough import CallbackOptions, create_callbacks
from mcp_django.contrib.proxies.connections.questions import RemoteInputRequest
from mcp_django.extensions.calls import REVISIONS, Context, Era
from mcp_django.extensions.errors import ToolError
from mcp_django.extensions.event_loop import BackgroundTasks, monotonic, start_timer

IDLE_TIMEOUT_SECONDS = 120.0
"""Seconds without use after which a session is closed."""
ACQUIRE_TIMEOUT_SECONDS = 5.0
"""Seconds that a call waits for a session at the limit."""


APPS = "apps"
APPS_EXTENSION = "io.modelcontextprotocol/ui"
APPS_SETTINGS = {"mimeTypes": ["text/html;profile=mcp-app"]}
"""Settings of the extension for a caller that shows apps."""


class CallerCapabilities(NamedTuple):
    """Features of a caller that the remote server may use."""

    requests: frozenset[str]
    """Capabilities that are declared to the remote server, and "apps" for the extension."""
    sampling_tools: bool
    """True if sampling requests may contain tools."""


NO_CAPABILITIES = CallerCapabilities(frozenset(), False)


def get_caller_capabilities(ctx: Context, kinds: Iterable[str]) -> CallerCapabilities:
    """Return the supported ones of these kinds of requests."""
    if not ctx.call.connection.supports_streaming:
        return NO_CAPABILITIES
    requests = frozenset(kind for kind in kinds if _supports(ctx, kind))
    return CallerCapabilities(requests, "sampling" in requests and ctx.call.supports({"sampling": {"tools": {}}}))


def _supports(ctx: Context, kind: str) -> bool:
    if kind != APPS:
        return ctx.call.supports({kind: {}})
    extensions = ctx.call.capabilities.get("extensions")
    declared = extensions.get(APPS_EXTENSION) if isinstance(extensions, dict) else None
    mime_types = declared.get("mimeTypes") if isinstance(declared, dict) else None
    return isinstance(mime_types, list) and set(APPS_SETTINGS["mimeTypes"]) <= {str(name) for name in mime_types}


def omit_unused(capabilities: CallerCapabilities, client: Client) -> CallerCapabilities:
    """Return the capabilities without apps if the remote server has none, so that calls need no session."""
    if APPS not in capabilities.requests or APPS_EXTENSION in (client.capabilities.extensions or {}):
        return capabilities
    return capabilities._replace(requests=capabilities.requests - {APPS})


class SessionKey(NamedTuple):
    """Key of interchangeable sessions."""

    credential: tuple[str, str]
    capabilities: CallerCapabilities


CreateClient = Callable[[CallbackOptions, bool], Client]
"""Function that creates a client with request callbacks and sampling tools."""


class RunningCall(Protocol):
    """The call that uses a session."""

    listener: Context | None
    """Context of the local call that receives progress and log messages."""

    async def request_input(self, request: RemoteInputRequest) -> dict[str, Any]:
        """Return the response to a request of the remote server. Raises CallError."""


LogHandler = Callable[[RunningCall, Any], Awaitable[None] | None]


class RemoteSession:
    """A connection to a remote server, with the call that uses it."""

    def __init__(self, key: SessionKey, create_client: CreateClient, on_log: LogHandler) -> None:
        self.key = key
        self.call: RunningCall | None = None
        self.log_level: str | None = None
        """Log level that was sent to the remote server."""
        requests, sampling_tools = key.capabilities
        options = create_callbacks(self._on_request, requests)
        if APPS in requests:
            options["extensions"] = {APPS_EXTENSION: APPS_SETTINGS}
        self.client = create_client(options, sampling_tools)
        self.client.on_log(lambda message: None if self.call is None else on_log(self.call, message))

    async def _on_request(self, method: str, params: dict[str, Any] | None) -> dict[str, Any]:
        if self.call is None:
            raise ToolError("No call is running that this request could belong to")
        return await self.call.request_input(RemoteInputRequest(method, params))


class RemoteSessionPool:
    """Pool of sessions with one remote server on one event loop."""

    def __init__(
        self, name: str, max_sessions: int, on_log: LogHandler, *, make_room: Callable[[], None] = lambda: None
    ) -> None:
        """Create an empty pool.

        `make_room` is called when a call has to wait, to release the session of a suspended call.
        """
        self._name = name
        self._max_sessions = max_sessions
        self._on_log = on_log
        self._make_room = make_room
        self._count = 0
        self._idle: dict[RemoteSession, float] = {}
        """Idle sessions with the start of their idle time, the longest idle first."""
        self._timer: asyncio.TimerHandle | None = None
        self._freed = asyncio.Event()
        self._closing = BackgroundTasks()

    def __len__(self) -> int:
        return self._count

    @property
    def is_exhausted(self) -> bool:
        """True if a new call would have to wait."""
        return self._count >= self._max_sessions and not self._idle

    async def acquire(self, key: SessionKey, create_client: CreateClient) -> RemoteSession:
        """Return a session with this key for one call.

        Raises ToolError if no session becomes free in time.
        """
        deadline = asyncio.get_running_loop().time() + ACQUIRE_TIMEOUT_SECONDS
        while True:
            session = next((one for one in reversed(self._idle) if one.key == key), None)
            if session is not None:
                del self._idle[session]
                return session

            if self._count >= self._max_sessions and self._idle:
                self._close_idle_session(next(iter(self._idle)))
            if self._count < self._max_sessions:
                self._count += 1
                return RemoteSession(key, create_client, self._on_log)

            self._freed.clear()
            self._make_room()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._freed.wait()
            except TimeoutError:
                raise ToolError(f"Too many calls use the server {self._name!r} now; try again later") from None

    def release(self, session: RemoteSession, *, broken: bool) -> None:
        """Return a session to the pool after its call; close it if it is broken."""
        session.call = None
        if broken:
            self._close_session(session)
        else:
            self._idle[session] = monotonic()
            if self._timer is None:
                self._start_timer(IDLE_TIMEOUT_SECONDS)
        self._freed.set()

    def close_idle(self, credential: tuple[str, str] | None = None) -> None:
        """Close the idle sessions of a credential, or all idle sessions."""
        for session in [one for one in self._idle if credential in (None, one.key.credential)]:
            self._close_idle_session(session)

    async def close(self) -> None:
        """Close all idle sessions, and wait until all closing sessions are closed."""
        self.close_idle()
        if self._timer is not None:
            self._timer.cancel()
        await self._closing.wait()

    def _start_timer(self, seconds: float) -> None:
        self._timer = start_timer(seconds, self._close_expired)

    def _close_expired(self) -> None:
        """Close the sessions whose idle time has expired."""
        self._timer = None
        now = monotonic()
        for session in [one for one, since in self._idle.items() if now >= since + IDLE_TIMEOUT_SECONDS]:
            self._close_idle_session(session)
        if self._idle:
            self._start_timer(max(0.1, next(iter(self._idle.values())) + IDLE_TIMEOUT_SECONDS - now))

    def _close_idle_session(self, session: RemoteSession) -> None:
        del self._idle[session]
        self._close_session(session)

    def _close_session(self, session: RemoteSession) -> None:
        self._count -= 1
        self._closing.spawn(session.client.close())


def can_log(client: Client) -> bool:
    """Return True if the server may send log messages.

    Servers of the stateless era need not declare logging, since each request carries a log level.
    """
    revision = REVISIONS.get(client.protocol_version or "")
    stateless = revision is not None and revision.era is Era.STATELESS
    return stateless or getattr(client.capabilities, "logging", None) is not None
