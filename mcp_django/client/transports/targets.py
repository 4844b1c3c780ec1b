"""Targets: where a server of others is, and how to get there.

A target is a value: it opens nothing until `open()`, may be opened many times, and shows no secret in its `repr`. What
`open()` gives is what the official SDK calls a transport: `Client` and `ClientSession` of `mcp` take it as it is.
"""

import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import httpx2

from mcp_django.client.transports.addresses import checked_headers, checked_url, shown
from mcp_django.client.transports.http import open_streamable_http
from mcp_django.client.transports.sse import open_sse
from mcp_django.client.transports.stdio import open_stdio
from mcp_django.client.transports.streams import Streams
from mcp_django.client.transports.websocket import open_websocket

MAX_MESSAGE_SIZE = 16 * 1024 * 1024
"""Bytes of one message of a server's, unless a target says otherwise."""
Ticket = Callable[[], Awaitable[str]]
"""Gives a ticket that is good for one handshake."""


@dataclass(frozen=True, repr=False)
class _Endpoint:
    """What the two transports of HTTP have in common."""

    url: str = field(repr=False)
    _: KW_ONLY
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    auth: httpx2.Auth | None = field(default=None, repr=False)
    connect_timeout: float = 10.0
    read_timeout: float = 300.0
    max_message_size: int = MAX_MESSAGE_SIZE
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    environment_proxies: bool = True
    transport: httpx2.AsyncBaseTransport | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        checked_url(self.url, "http", "https")
        object.__setattr__(self, "headers", checked_headers(self.headers))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shown!r})"

    @property
    def shown(self) -> str:
        """The URL without user, password, query and fragment: what may be shown and logged."""
        return shown(self.url)


@dataclass(frozen=True, repr=False)
class StreamableHTTP(_Endpoint):
    """An endpoint that speaks Streamable HTTP.

    `headers` go with every request to the endpoint, `auth` is asked for each (an OAuth flow, say). `connect_timeout`
    and `read_timeout` are in seconds, the second between two pieces of an answer. No message of the server's may be
    larger than `max_message_size` bytes. Certificates are verified by the system's authorities, or by `ssl_context`.
    With `environment_proxies`, `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` count. `transport` stands in
    for the network, for tests. Raises ValueError for what is no `http` or `https` URL, or no header.
    """

    kind: ClassVar[str] = "http"

    def open(self) -> AbstractAsyncContextManager[Streams]:
        """The streams of a connection. Raises ClientConnectionError when entered, or left after it broke."""
        return open_streamable_http(self)


@dataclass(frozen=True, repr=False)
class SSE(_Endpoint):
    """An endpoint that speaks HTTP+SSE, the transport of the first revision.

    `url` is that of its stream of events; the rest is as for `StreamableHTTP`.
    """

    kind: ClassVar[str] = "sse"

    def open(self) -> AbstractAsyncContextManager[Streams]:
        """The streams of a connection. Raises ClientConnectionError when entered."""
        return open_sse(self)


@dataclass(frozen=True)
class WebSocket:
    """A socket that speaks one JSON-RPC message in each text frame.

    `subprotocol` is offered, and what the server selects must be that. `headers` go with the handshake. `ticket` is
    asked before each handshake, and what it gives goes into the query as `ticket`. `open_timeout` is for the
    handshake, `ping_interval` for how often the server is asked whether it is there, and `ping_timeout` for how long
    it may take to say so, all in seconds. The rest is as for `StreamableHTTP`. Raises ValueError for what is no `ws`
    or `wss` URL, or no header.
    """

    kind: ClassVar[str] = "websocket"

    url: str = field(repr=False)
    _: KW_ONLY
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    subprotocol: str = "mcp"
    ticket: Ticket | None = field(default=None, repr=False)
    open_timeout: float = 10.0
    ping_interval: float = 20.0
    ping_timeout: float = 20.0
    max_message_size: int = MAX_MESSAGE_SIZE
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    environment_proxies: bool = True

    def __post_init__(self) -> None:
        checked_url(self.url, "ws", "wss")
        object.__setattr__(self, "headers", checked_headers(self.headers))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shown!r})"

    @property
    def shown(self) -> str:
        """The URL without user, password, query and fragment: what may be shown and logged."""
        return shown(self.url)

    def open(self) -> AbstractAsyncContextManager[Streams]:
        """The streams of a connection. Raises ClientConnectionError when entered, or left after it broke."""
        return open_websocket(self)


@dataclass(frozen=True)
class Stdio:
    """A command that serves at its standard input and output.

    It is started without a shell, in `cwd`, in a session of its own. Of this process's environment it gets what the
    SDK calls safe (`PATH`, `HOME` and the like), and `env` besides. What it writes to standard error goes to the log
    `mcp_django.client.stderr`, and the last `stderr_tail` bytes are in the error when it ends. At the end it has
    `stop_timeout` seconds to leave when its input closes, and as many again when it is told to end; then it is
    killed, and what it started with it. Raises ValueError for what no process can be started with.
    """

    kind: ClassVar[str] = "stdio"

    command: str
    args: Sequence[str] = field(default=(), repr=False)
    _: KW_ONLY
    env: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    cwd: str | Path | None = None
    max_message_size: int = MAX_MESSAGE_SIZE
    stderr_tail: int = 8 * 1024
    stop_timeout: float = 2.0

    def __post_init__(self) -> None:
        if isinstance(self.args, str):
            raise ValueError(f"args is a list; write [{self.args!r}]")
        object.__setattr__(self, "args", tuple(self.args))
        object.__setattr__(self, "env", dict(self.env))
        if not self.command:
            raise ValueError("a command has a name")
        if not all(map(_is_text, (self.command, *self.args))):
            raise ValueError("a command and its arguments are text without NUL")
        if not all(name and _is_text(name) and "=" not in name and _is_text(value) for name, value in self.env.items()):
            raise ValueError("variables of the environment have a name without '=', and are text without NUL")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.command!r})"

    @property
    def shown(self) -> str:
        """The command without its arguments, which may hold secrets."""
        return self.command

    def open(self) -> AbstractAsyncContextManager[Streams]:
        """The streams of a process started now. Raises ClientConnectionError when entered, or left after it ended."""
        return open_stdio(self)


Target = StreamableHTTP | SSE | WebSocket | Stdio


def _is_text(word: Any) -> bool:
    return isinstance(word, str) and "\0" not in word
