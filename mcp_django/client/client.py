"""The client of one MCP server."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import httpx2
import mcp_types as types

from mcp_django.client.blocking import BlockingClient
from mcp_django.client.operations import Operations
from mcp_django.client.options import ClientOptions, ClientTarget
from mcp_django.client.session.callbacks import (
    ElicitationCallback,
    RootsSource,
    SamplingCallback,
    ServerRequestCallbacks,
)
from mcp_django.client.session.connection_manager import ConnectionManager
from mcp_django.client.session.handlers import NotificationHandlers
from mcp_django.client.session.requests import RequestSender
from mcp_django.client.session.timing import PausableTimeouts
from mcp_django.client.session.validation import OutputValidator
from mcp_django.client.skills import SkillReader
from mcp_django.client.tasks.tool_caller import ToolCaller
from mcp_django.client.transports.targets import SSE, Stdio, StreamableHTTP, WebSocket
from mcp_django.conf.project import DISTRIBUTION, read_version

CLIENT_INFO = types.Implementation(name=DISTRIBUTION, version=read_version())
DEFAULT_TIMEOUT_SECONDS, DEFAULT_STARTUP_TIMEOUT_SECONDS, DEFAULT_MAX_RETRIES = 60.0, 30.0, 3


class Client(Operations):
    """A client of another MCP server.

        async with Client(StreamableHTTP("https://api.example.com/mcp")) as client:
            result = await client.call_tool("add", {"a": 1, "b": 2})

    The client connects on entering the context, by `connect()`, or at the first call. A broken connection is reopened,
    at most `max_retries` times in a row, with growing delays. Tasks of one event loop may call concurrently. Code
    outside that loop uses `blocking()`. All methods that send requests to the server raise ClientError.

    `timeout` is the limit in seconds for each round of a call, None for no limit. Time spent in the callbacks given
    here is not counted. `startup_timeout` limits each attempt to connect.
    """

    def __init__(
        self,
        target: ClientTarget,
        *,
        protocol_version: str | None = None,
        client_info: types.Implementation | None = None,
        max_retries: int = DEFAULT_MAX_RETRIES,
        startup_timeout: float = DEFAULT_STARTUP_TIMEOUT_SECONDS,
        timeout: float | None = DEFAULT_TIMEOUT_SECONDS,
        roots: RootsSource | None = None,
        sampling: SamplingCallback | None = None,
        elicitation: ElicitationCallback | None = None,
        log_level: types.LoggingLevel | None = None,
        sampling_tools: bool = False,
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
        alias: str | None = None,
    ) -> None:
        """Store the options; nothing is connected yet.

        Args:
            target: The server: StreamableHTTP, Stdio, SSE, WebSocket, or an object with an `open()` like theirs.
            protocol_version: A revision, `"handshake"` or `"stateless"`; None negotiates the revision.
            client_info: Name and version of this client, sent to the server.
            max_retries: Maximum retries of an attempt to connect, and of requests that are safe to repeat on a broken
                connection: lists, reads, prompts, completions and pings. Tool calls are never repeated.
            roots: Directories that the server may work in, or a function that returns them.
            sampling: Callback that samples a model for the server; `sampling_tools` declares that it supports tools.
            elicitation: Callback that requests input from a person for the server.
            log_level: Minimum level of the log messages to receive.
            extensions: Extensions to declare in addition to tasks: identifiers, with their settings.
            alias: The project's name of the server, for logs and errors.

        Raises:
            TypeError: The target has no `open()`.
            ValueError: An option is invalid.
        """
        if not callable(getattr(target, "open", None)):
            raise TypeError("A client needs a target with open(): StreamableHTTP(url), Stdio(command), …")
        self._options = options = ClientOptions(
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
        timeouts = PausableTimeouts()
        self._handlers = NotificationHandlers()
        self._callbacks = ServerRequestCallbacks(sampling, elicitation, roots, timeouts.pause)
        self._manager = ConnectionManager(target, options, self._callbacks, self._handlers)
        self._manager.log_level = log_level
        self._sender = RequestSender(self._manager, options, self._handlers, self._callbacks, timeouts)
        self.tool_caller = ToolCaller(self._sender, self._manager, OutputValidator())
        self._skill_reader = SkillReader(self._sender, lambda: self.capabilities)
        self._blocking: BlockingClient | None = None

    def __repr__(self) -> str:
        state = "connected" if self.is_connected else "not connected"
        return f"<{type(self).__name__} {self.alias or self.target!r}, {state}>"

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def blocking(self) -> "BlockingClient":
        """Return a blocking version of this client, for code without an event loop."""
        if self._blocking is None:
            self._blocking = BlockingClient(self)
        return self._blocking

    @classmethod
    def streamable_http(
        cls, url: str, *, headers: Mapping[str, str] | None = None, auth: httpx2.Auth | None = None, **options: Any
    ) -> Self:
        """Create a client of a `StreamableHTTP` target with the given client options."""
        return cls(StreamableHTTP(url, headers=headers or {}, auth=auth), **options)

    @classmethod
    def sse(
        cls, url: str, *, headers: Mapping[str, str] | None = None, auth: httpx2.Auth | None = None, **options: Any
    ) -> Self:
        """Create a client of an `SSE` target with the given client options."""
        return cls(SSE(url, headers=headers or {}, auth=auth), **options)

    @classmethod
    def websocket(cls, url: str, *, headers: Mapping[str, str] | None = None, **options: Any) -> Self:
        """Create a client of a `WebSocket` target with the given client options."""
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
        """Create a client of a `Stdio` target with the given client options."""
        return cls(Stdio(command, args, env=env or {}, cwd=cwd), **options)
