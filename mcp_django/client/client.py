"""The client of another MCP server."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2
import mcp_types as types

from mcp_django.client.blocking import BlockingClient
from mcp_django.client.options import Openable, Options
from mcp_django.client.session.callbacks import Answerers, Elicitation, Roots, Sampling
from mcp_django.client.session.calls import Calls
from mcp_django.client.session.connection_manager import Keeper
from mcp_django.client.session.handlers import Listeners
from mcp_django.client.session.operations import Operations
from mcp_django.client.session.requests import Rounds
from mcp_django.client.session.timing import Deadlines
from mcp_django.client.transports.targets import SSE, Stdio, StreamableHTTP, WebSocket

CLIENT_INFO = types.Implementation(name="mcp-django-channels", version="0.1.0")
TIMEOUT, STARTUP_TIMEOUT, MAX_RETRIES = 60.0, 30.0, 3


class Client(Operations):
    """Another MCP server, as this project uses it.

        async with Client(StreamableHTTP("https://api.example.com/mcp")) as client:
            result = await client.call_tool("add", {"a": 1, "b": 2})

    It connects when it is entered, by `connect()`, or at its first call; a connection that breaks is made anew, at most
    `max_retries` times in a row, with growing pauses. Calls of many tasks of one event loop run side by side; from
    elsewhere use `blocking()`. All methods that talk to the server raise ClientError.

    `timeout` is in seconds and for each round of a call; the time in which one of the functions given here answers the
    server does not count. None is no limit. `startup_timeout` is for each attempt to connect.
    """

    def __init__(
        self,
        target: Openable,
        *,
        protocol_version: str | None = None,
        client_info: types.Implementation | None = None,
        max_retries: int = MAX_RETRIES,
        startup_timeout: float = STARTUP_TIMEOUT,
        timeout: float | None = TIMEOUT,
        roots: Roots | None = None,
        sampling: Sampling | None = None,
        elicitation: Elicitation | None = None,
        log_level: types.LoggingLevel | None = None,
        sampling_tools: bool = False,
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
        alias: str | None = None,
    ) -> None:
        """
        Args:
            target: Where the server is: StreamableHTTP, Stdio, SSE, WebSocket, or what has an `open()` like theirs.
            protocol_version: A revision, `"handshake"` or `"stateless"`; None finds out what the server speaks.
            client_info: What this client tells of itself.
            max_retries: Repetitions of an attempt to connect, and of what may be repeated when a connection breaks:
                lists, reads, prompts, completions and pings. A tool is never called twice.
            roots: Directories that the server may work in, or a function that returns them.
            sampling: Asks a model for the server; with `sampling_tools` it knows tools, too.
            elicitation: Asks a person for the server.
            log_level: Wants log messages of this level and above.
            extensions: Extensions that the client declares: their identifiers, with settings.
            alias: What the project calls the server, for logs and errors.

        Raises:
            TypeError: for a target that cannot be opened.
            ValueError: for an option that makes no sense.
        """
        if not callable(getattr(target, "open", None)):
            raise TypeError("The target of a client says where a server is: StreamableHTTP(url), Stdio(command), …")
        self._options = options = Options(
            protocol_version=protocol_version,
            client_info=client_info or CLIENT_INFO,
            max_retries=max_retries,
            startup_timeout=startup_timeout,
            timeout=timeout,
            sampling_tools=sampling_tools,
            extensions=extensions,
            alias=alias,
        )
        self.target = target
        deadlines = Deadlines()
        self._listeners = Listeners()
        self._answerers = Answerers(sampling, elicitation, roots, deadlines.paused)
        self._keeper = Keeper(target, options, self._answerers, self._listeners)
        self._keeper.log_level = log_level
        self._rounds = Rounds(self._keeper, options, self._listeners, deadlines)
        self._calls = Calls(self._keeper, self._rounds, options, self._answerers)
        self._blocking: BlockingClient | None = None

    def __repr__(self) -> str:
        state = "connected" if self.is_connected else "not connected"
        return f"<{type(self).__name__} {self.alias or self.target!r}, {state}>"

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def blocking(self) -> "BlockingClient":
        """This client with methods that block: for views, threads, shells and tasks without an event loop."""
        if self._blocking is None:
            self._blocking = BlockingClient(self)
        return self._blocking

    @classmethod
    def streamable_http(
        cls, url: str, *, headers: Mapping[str, str] | None = None, auth: httpx2.Auth | None = None, **options: Any
    ) -> Self:
        """A client of `StreamableHTTP(url, headers=headers, auth=auth)`; the options are those of a client."""
        return cls(StreamableHTTP(url, headers=headers or {}, auth=auth), **options)

    @classmethod
    def sse(
        cls, url: str, *, headers: Mapping[str, str] | None = None, auth: httpx2.Auth | None = None, **options: Any
    ) -> Self:
        """A client of `SSE(url, headers=headers, auth=auth)`; the options are those of a client."""
        return cls(SSE(url, headers=headers or {}, auth=auth), **options)

    @classmethod
    def websocket(cls, url: str, *, headers: Mapping[str, str] | None = None, **options: Any) -> Self:
        """A client of `WebSocket(url, headers=headers)`; the options are those of a client."""
        return cls(WebSocket(url, headers=headers or {}), **options)

    @classmethod
    def stdio(
        cls,
        command: str,
        *args: str,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        **options: Any,
    ) -> Self:
        """A client of `Stdio(command, args, env=env, cwd=cwd)`; the options are those of a client."""
        return cls(Stdio(command, args, env=env or {}, cwd=cwd), **options)
