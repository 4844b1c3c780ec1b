"""Targets: addresses of MCP servers, with the options to connect to them.

A target is a value. It connects only in `open()`, can be opened repeatedly, and hides secrets in its `repr`. The result
of `open()` is a transport of the official SDK, accepted by `Client` and `ClientSession` of `mcp`.
"""

import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import httpx2

from mcp_django.client.transports.addresses import redact_url, validate_headers, validate_url
from mcp_django.client.transports.http import open_streamable_http
from mcp_django.client.transports.sse import open_sse
from mcp_django.client.transports.stdio import open_stdio
from mcp_django.client.transports.streams import Streams
from mcp_django.client.transports.websocket import open_websocket

DEFAULT_MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""Default maximum size of a server's message, in bytes."""
TicketFunction = Callable[[], Awaitable[str]]
"""Function that returns a ticket for one handshake."""


class _Target:
    """Base class of all targets, which hides secrets."""

    @property
    def display_name(self) -> str:
        """The target without its secrets, for display and logs."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.display_name!r})"


@dataclass(frozen=True, repr=False)
class _URLTarget(_Target):
    _schemes: ClassVar[tuple[str, ...]] = ("http", "https")

    url: str = field(repr=False)
    _: KW_ONLY
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        validate_url(self.url, *self._schemes)
        object.__setattr__(self, "headers", validate_headers(self.headers))

    @property
    def display_name(self) -> str:
        """The URL without user, password, query and fragment, for display and logs."""
        return redact_url(self.url)


@dataclass(frozen=True, repr=False)
class _HTTPTarget(_URLTarget):
    """Common options of the two HTTP transports."""

    _: KW_ONLY
    auth: httpx2.Auth | None = field(default=None, repr=False)
    connect_timeout: float = 10.0
    read_timeout: float = 300.0
    max_message_size: int = DEFAULT_MAX_MESSAGE_BYTES
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    environment_proxies: bool = True
    transport: httpx2.AsyncBaseTransport | None = field(default=None, repr=False)


@dataclass(frozen=True, repr=False)
class StreamableHTTP(_HTTPTarget):
    """A Streamable HTTP endpoint.

    `headers` are sent with every request to the endpoint, and `auth` is applied to each (an OAuth flow, for example).
    `connect_timeout` and `read_timeout` are in seconds; the latter applies between two chunks of a response. A server's
    message may have at most `max_message_size` bytes. Certificates are verified by the system's authorities, or by
    `ssl_context`. With `environment_proxies`, `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` apply.
    `transport` replaces the network in tests. Raises ValueError for an invalid URL (not `http` or `https`) or header.
    """

    kind: ClassVar[str] = "http"

    def open(self) -> AbstractAsyncContextManager[Streams]:
        """Return the message streams.

        Raises ClientConnectionError when entered, or when left after the connection broke.
        """
        return open_streamable_http(self)


@dataclass(frozen=True, repr=False)
class SSE(_HTTPTarget):
    """An endpoint with HTTP+SSE, the transport of the first revision.

    `url` is the URL of the event stream. The other options are those of `StreamableHTTP`.
    """

    kind: ClassVar[str] = "sse"

    def open(self) -> AbstractAsyncContextManager[Streams]:
        """Return the message streams. Raises ClientConnectionError when entered."""
        return open_sse(self)


@dataclass(frozen=True, repr=False)
class WebSocket(_URLTarget):
    """A WebSocket endpoint with one JSON-RPC message in each text frame.

    `subprotocol` is offered, and the server must select it. `headers` are sent with the handshake. `ticket` is called
    before each handshake; its result is added to the query as `ticket`. `open_timeout` limits the handshake.
    `ping_interval` is the time between pings, and `ping_timeout` limits the wait for a pong. All three are in seconds.
    The other options are those of `StreamableHTTP`. Raises ValueError for an invalid URL (not `ws` or `wss`) or header.
    """

    kind: ClassVar[str] = "websocket"
    _schemes: ClassVar[tuple[str, ...]] = ("ws", "wss")

    _: KW_ONLY
    subprotocol: str = "mcp"
    ticket: TicketFunction | None = field(default=None, repr=False)
    open_timeout: float = 10.0
    ping_interval: float = 20.0
    ping_timeout: float = 20.0
    max_message_size: int = DEFAULT_MAX_MESSAGE_BYTES
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    environment_proxies: bool = True

    def open(self) -> AbstractAsyncContextManager[Streams]:
        """Return the message streams.

        Raises ClientConnectionError when entered, or when left after the connection broke.
        """
        return open_websocket(self)


@dataclass(frozen=True, repr=False)
class Stdio(_Target):
    """A command that serves on its standard input and output.

    The command is started without a shell, in `cwd`, in its own session. Its environment consists of the variables that
    the SDK considers safe (`PATH`, `HOME` and the like) and of `env`. Its standard error is logged to
    `mcp_django.client.stderr`, and the last `stderr_tail` bytes are part of the error when it ends. On closing, its
    input is closed. After `stop_timeout` seconds SIGTERM is sent, and after as many again the process group is killed.
    Raises ValueError for an invalid command, argument or variable.
    """

    kind: ClassVar[str] = "stdio"

    command: str
    args: Sequence[str] = field(default=(), repr=False)
    _: KW_ONLY
    env: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    cwd: str | Path | None = None
    max_message_size: int = DEFAULT_MAX_MESSAGE_BYTES
    stderr_tail: int = 8 * 1024
    stop_timeout: float = 2.0

    def __post_init__(self) -> None:
        if isinstance(self.args, str):
            raise ValueError(f"args must be a list; write [{self.args!r}]")
        object.__setattr__(self, "args", tuple(self.args))
        object.__setattr__(self, "env", dict(self.env))
        if not self.command:
            raise ValueError("the command is empty")
        if not all(map(_is_text, (self.command, *self.args))):
            raise ValueError("a command and its arguments must be strings without NUL")
        if not all(name and _is_text(name) and "=" not in name and _is_text(value) for name, value in self.env.items()):
            raise ValueError("environment variables must be strings without NUL, with a name without '='")

    @property
    def display_name(self) -> str:
        """The command without its arguments, which may contain secrets."""
        return self.command

    def open(self) -> AbstractAsyncContextManager[Streams]:
        """Start the process and return its message streams.

        Raises ClientConnectionError when entered, or when left after the process ended.
        """
        return open_stdio(self)


Target = StreamableHTTP | SSE | WebSocket | Stdio


def _is_text(word: Any) -> bool:
    return isinstance(word, str) and "\0" not in word
