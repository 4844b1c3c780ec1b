"""Bridge to several servers: one list of tools, and calls routed by name.

The tools are named `alias__tool`. A failing server does not affect the others. Its error is stored in `errors`, and the
connection is retried until it succeeds.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Self, TypeVar

import mcp_types as types

from mcp_django.aio.tasks import start_task
from mcp_django.client import portal
from mcp_django.client.client import Client
from mcp_django.client.errors import ClientConnectionError, ClientError, ToolNotFound
from mcp_django.client.options import ClientTarget
from mcp_django.client.pool.pool import client_settings, get_client, is_pooled
from mcp_django.client.session.handlers import ProgressHandler, Unsubscribe
from mcp_django.client.session.timing import UNLIMITED_RETRIES, Backoff, RefreshThrottle
from mcp_django.client.skills import BlockingClientSkill, ClientSkill
from mcp_django.client.tasks.task_handle import BlockingClientTask, ClientTask
from mcp_django.client.tool_names import check_alias, get_alias, join_name
from mcp_django.conf import get_settings
from mcp_django.protocol.log_text import get_logger

logger = get_logger("mcp_django.client")

ToolFilter = Callable[[types.Tool], bool] | Iterable[str]
"""Tools to include: a predicate on a tool, or names with `*` as a wildcard."""
ToolsHandler = Callable[[str, list[types.Tool], Client], Awaitable[None] | None]
"""Callback with the alias of a server, its tools in the bridge, and its client."""
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _BridgedServer:
    """State of one server of a bridge."""

    alias: str
    create_client: Callable[[], Client]
    filters: tuple[Callable[[types.Tool], bool], ...]
    client: Client | None = None
    is_owned: bool = False
    """True if the bridge closes the client."""
    tools: dict[str, types.Tool] = field(default_factory=dict)
    """The server's own tools, keyed by their names in the bridge."""
    unsubscribe: Unsubscribe | None = None
    refresh_task: asyncio.Task[None] | None = None
    retry_task: asyncio.Task[None] | None = None
    is_stale: bool = False
    throttle: RefreshThrottle = field(default_factory=RefreshThrottle)


class Bridge:
    """The tools of several servers in one list.

        async with Bridge({"weather": Client(...), "github": get_client("github")}, tools=["*__get_*"]) as bridge:
            tools = await bridge.list_tools()
            result = await bridge.call("weather__forecast", {"city": "Zürich"})

    `servers` maps aliases to clients or targets. An alias consists of lowercase letters, digits, "-" and single "_".
    `tools` selects tools for all servers: a predicate, or the servers' own tool names with `*` as a wildcard. It may
    also be a dict of such filters by alias; servers without an entry contribute all tools. A bridge belongs to one
    event loop.

    A tool is named `alias__tool`. Names that model APIs would reject are changed: see docs/use-servers/bridge.md.
    """

    def __init__(
        self,
        servers: Mapping[str, Client | ClientTarget],
        *,
        tools: ToolFilter | Mapping[str, ToolFilter] | None = None,
    ) -> None:
        makers = {alias: partial(_create_client, server, alias) for alias, server in servers.items()}
        self._build(makers, tools)

    @classmethod
    def from_settings(
        cls,
        aliases: Iterable[str] | None = None,
        *,
        user: Any = None,
        owner: str | None = None,
        tools: ToolFilter | Mapping[str, ToolFilter] | None = None,
    ) -> Self:
        """Create a bridge to servers of `MCP["CLIENTS"]`, by default to all of them.

        `user` is the owner of per-user credentials. The setting `TOOLS` of each server limits its tools. Raises
        ImproperlyConfigured for an unknown alias.
        """
        known = get_settings().clients
        chosen = list(known) if aliases is None else list(aliases)
        for alias in chosen:
            client_settings(alias)
        bridge = cls.__new__(cls)
        bridge._build({alias: partial(get_client, alias, user=user, owner=owner) for alias in chosen}, tools)
        for alias in chosen:
            server = bridge._servers[alias]
            server.filters = (*server.filters, partial(_allowed_by_settings, alias))
        return bridge

    def _build(
        self, factories: Mapping[str, Callable[[], Client]], tools: ToolFilter | Mapping[str, ToolFilter] | None
    ) -> None:
        filters = tools if isinstance(tools, Mapping) else dict.fromkeys(factories, tools)
        unknown_aliases = [alias for alias in filters if alias not in factories]
        if unknown_aliases:
            raise ValueError(
                f"tools contains {', '.join(map(repr, unknown_aliases))}, unknown to this bridge; use the aliases "
                "of servers"
            )

        self._servers: dict[str, _BridgedServer] = {}
        for alias, make in factories.items():
            tool_filter = filters.get(alias)
            tool_filters = () if tool_filter is None else (_compile_filter(tool_filter),)
            self._servers[check_alias(alias)] = _BridgedServer(alias, make, tool_filters)
        self.errors: dict[str, Exception] = {}
        """The latest error of each failing server, by alias."""
        self._tools_handlers: dict[object, ToolsHandler] = {}
        self._is_open = False

    async def __aenter__(self) -> Self:
        await self.connect_all()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    @property
    def aliases(self) -> list[str]:
        """The aliases of all servers, in the given order."""
        return list(self._servers)

    def client(self, alias: str) -> Client:
        """Return the client of a server, connected or not.

        Raises KeyError for an unknown alias.
        """
        return self._get_client(self._servers[alias])

    async def connect_all(self) -> dict[str, Exception]:
        """Connect to all servers concurrently and list their tools.

        Returns `errors`. Failed servers are retried in the background until they are connected.
        """
        self._is_open = True
        unconnected = [server for server in self._servers.values() if server.unsubscribe is None]
        await asyncio.gather(*(self._connect_server(server) for server in unconnected))
        return self.errors

    async def close(self) -> None:
        """Disconnect from all servers.

        Clients that were connected before, and clients of `get_client`, stay open.
        """
        self._is_open = False
        tasks = []
        for server in self._servers.values():
            tasks += [task for task in (server.retry_task, server.refresh_task) if task is not None]
            server.retry_task = server.refresh_task = None
            if server.unsubscribe is not None:
                server.unsubscribe()
                server.unsubscribe = None
            server.tools = {}

        for task in tasks:
            task.cancel()
        owned = [server for server in self._servers.values() if server.is_owned and server.client is not None]
        await asyncio.gather(*tasks, *(_close_client(server) for server in owned), return_exceptions=True)

    def on_registry(self, handler: ToolsHandler) -> Unsubscribe:
        """Register a callback for connected servers and changed tool lists.

        The callback receives the server's alias, its tools and its client. It is not called for the current tools.
        Returns a function that removes the callback.
        """
        key = object()
        self._tools_handlers[key] = handler
        return lambda: self._tools_handlers.pop(key, None) and None

    async def list_tools(self) -> list[types.Tool]:
        """Return the tools of all connected servers, under their names in the bridge."""
        return [tool for server in self._servers.values() for tool in _get_prefixed_tools(server)]

    async def list_skills(self) -> dict[str, list[ClientSkill]]:
        """Return the skills of each connected server, by alias.

        A skill reads from its own server only. The server whose request fails is left out, with its error in `errors`.
        """
        connected = [server for server in self._servers.values() if server.client and server.client.is_connected]

        async def list_one(server: _BridgedServer) -> list[ClientSkill] | None:
            client = self._get_client(server)
            try:
                return await self._run_call(server, client, client.list_skills())
            except ClientError as error:
                self.errors[server.alias] = error
                return None

        lists = await asyncio.gather(*map(list_one, connected))
        return {server.alias: skills for server, skills in zip(connected, lists, strict=True) if skills is not None}

    def tool_names(self) -> list[str]:
        """Return the names of all tools in the bridge."""
        return [name for server in self._servers.values() for name in server.tools]

    def tool_schemas(self) -> list[dict[str, Any]]:
        """Return the tools for a model, as dicts of `name`, `description` and `input_schema`.

        This is the content that APIs of models expect; only the spelling of keys differs. Tools that a server offers to
        its apps alone are left out.
        """
        return [
            {"name": name, "description": tool.description or tool.title or "", "input_schema": dict(tool.input_schema)}
            for server in self._servers.values()
            for name, tool in server.tools.items()
            if _is_for_model(tool)
        ]

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> types.CallToolResult:
        """Call a tool by its name in the bridge.

        Other parameters are those of `Client.call_tool`.

        Raises:
            ToolNotFound: The tool is unknown or filtered out.
            ClientConnectionError: Its server is not connected.
            ClientError: The server's call failed.
        """
        server, tool = self._find_tool(name)
        client = self._get_client(server)
        call = client.call_tool(tool, dict(arguments or {}), timeout=timeout, on_progress=on_progress, meta=meta)
        return await self._run_call(server, client, call)

    async def call_task(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ClientTask:
        """Call a tool by its name in the bridge, like `Client.call_tool_task`.

        To restore the task from its id, use `client(alias).get_task(id)`. Raises the errors of `call`.
        """
        server, tool = self._find_tool(name)
        client = self._get_client(server)
        call = client.call_tool_task(
            tool, dict(arguments or {}), ttl=ttl, timeout=timeout, on_progress=on_progress, meta=meta
        )
        return await self._run_call(server, client, call)

    async def _run_call(self, server: _BridgedServer, client: Client, call: Awaitable[T]) -> T:
        """Await a call; if the connection is lost, start retrying."""
        try:
            return await call
        except ClientConnectionError as error:
            if not client.is_connected:
                self._on_server_lost(server, error)
            raise

    def blocking(self) -> "BlockingBridge":
        """Return a blocking version of this bridge, for code without an event loop."""
        return BlockingBridge(self)

    def _find_tool(self, name: str) -> tuple[_BridgedServer, str]:
        alias = get_alias(name)
        server = self._servers.get(alias or "")
        if server is not None and name in server.tools:
            return server, server.tools[name].name
        if server is not None and not server.tools and server.alias in self.errors:
            raise ClientConnectionError(f"The server {server.alias!r} is not connected: {self.errors[server.alias]}")
        raise ToolNotFound(message=f"Unknown tool {name[:100]!r}")

    def _get_client(self, server: _BridgedServer) -> Client:
        if server.client is None:
            server.client = server.create_client()
        return server.client

    async def _connect_server(self, server: _BridgedServer) -> None:
        """Connect to a server and list its tools.

        On failure store the error and schedule a retry.
        """
        try:
            client = self._get_client(server)
            server.is_owned = server.is_owned or not (client.is_connected or is_pooled(client))
            await client.connect()
            await self._load_tools(server)
        except Exception as error:
            if not isinstance(error, ClientError):
                logger.exception("Unexpected error of bridge server %r", server.alias)
            self._on_server_lost(server, error)
            return
        if server.unsubscribe is None:
            server.unsubscribe = client.on_list_changed(partial(self._on_list_changed, server))

    async def _load_tools(self, server: _BridgedServer) -> None:
        """Reload a server's tools and call the registered callbacks."""
        client = self._get_client(server)
        tools: dict[str, types.Tool] = {}
        for tool in await client.list_tools():
            if not all(takes(tool) for takes in server.filters):
                continue
            name = join_name(server.alias, tool.name)
            if name in tools:
                logger.warning("Duplicate tool name on bridge server %r: %r; using the first", server.alias, name)
                continue
            tools[name] = tool

        self.errors.pop(server.alias, None)
        server.tools = tools
        for handler in list(self._tools_handlers.values()):
            try:
                result = handler(server.alias, _get_prefixed_tools(server), client)
                if inspect.isawaitable(result):
                    await result
            except Exception:
                logger.exception("Tool list callback failed for bridge server %r", server.alias)

    def _on_list_changed(self, server: _BridgedServer, kind: str) -> None:
        """Schedule a reload after the server announced a changed list."""
        if kind != "tools" or not self._is_open:
            return
        server.is_stale = True
        if server.refresh_task is None or server.refresh_task.done():
            server.refresh_task = start_task(self._refresh(server))

    async def _refresh(self, server: _BridgedServer) -> None:
        while server.is_stale:
            await server.throttle.wait()
            server.is_stale = False
            try:
                await self._load_tools(server)
            except Exception as error:
                if not isinstance(error, ClientError):
                    logger.exception("Listing the tools of bridge server %r failed", server.alias)
                self._on_server_lost(server, error)

    def _on_server_lost(self, server: _BridgedServer, error: Exception) -> None:
        """Store the error of a failing server and start retrying.

        Its tools stay listed, so that a short outage does not change the list.
        """
        self.errors[server.alias] = error
        if self._is_open and (server.retry_task is None or server.retry_task.done()):
            server.retry_task = start_task(self._retry(server))

    async def _retry(self, server: _BridgedServer) -> None:
        backoff = Backoff(UNLIMITED_RETRIES)
        while server.alias in self.errors:
            await asyncio.sleep(backoff.next_delay() or 0)
            await self._connect_server(server)


class BlockingBridge:
    """A bridge for code without an event loop.

    It runs on the loop of the blocking clients.

    with Bridge.from_settings(["weather"]).blocking() as bridge:
        bridge.call("weather__forecast", {"city": "Zürich"})
    """

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    def __enter__(self) -> Self:
        self.connect_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def errors(self) -> dict[str, Exception]:
        """The latest error of each failing server, by alias."""
        return dict(self._bridge.errors)

    @property
    def aliases(self) -> list[str]:
        """The aliases of all servers, in the given order."""
        return self._bridge.aliases

    def connect_all(self) -> dict[str, Exception]:
        """Connect to all servers, like `Bridge.connect_all`."""
        return dict(self._run(self._bridge.connect_all()))

    def close(self) -> None:
        """Disconnect from all servers, like `Bridge.close`."""
        self._run(self._bridge.close())

    def list_tools(self) -> list[types.Tool]:
        """Return all tools, like `Bridge.list_tools`."""
        return self._run(self._bridge.list_tools())

    def list_skills(self) -> dict[str, list[BlockingClientSkill]]:
        """Return the skills of each server, like `Bridge.list_skills`."""
        found = self._run(self._bridge.list_skills())
        return {alias: [BlockingClientSkill(skill, self._run) for skill in skills] for alias, skills in found.items()}

    def tool_names(self) -> list[str]:
        """Return the names of all tools, like `Bridge.tool_names`."""
        return self._bridge.tool_names()

    def tool_schemas(self) -> list[dict[str, Any]]:
        """Return all tools as dicts, like `Bridge.tool_schemas`."""
        return self._bridge.tool_schemas()

    def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> types.CallToolResult:
        """Call a tool, like `Bridge.call`."""
        return self._run(self._bridge.call(name, arguments, timeout=timeout))

    def call_task(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
    ) -> BlockingClientTask:
        """Call a tool, like `Bridge.call_task`."""
        return BlockingClientTask(
            self._run(self._bridge.call_task(name, arguments, ttl=ttl, timeout=timeout)), self._run
        )

    def on_registry(self, handler: ToolsHandler) -> Unsubscribe:
        """Register a callback like `Bridge.on_registry`.

        It is called on the loop of the blocking clients.
        """
        return self._bridge.on_registry(handler)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return portal.run_for_client(coroutine, self._bridge)


def _is_for_model(tool: types.Tool) -> bool:
    """Return True unless the visibility of the tool (MCP Apps) leaves out the model."""
    ui = (tool.meta or {}).get("ui")
    visibility = ui.get("visibility") if isinstance(ui, dict) else None
    return not isinstance(visibility, list) or "model" in visibility


def _create_client(server: Client | ClientTarget, alias: str) -> Client:
    return server if isinstance(server, Client) else Client(server, alias=alias)


def _compile_filter(tool_filter: ToolFilter) -> Callable[[types.Tool], bool]:
    if callable(tool_filter):
        return tool_filter
    if isinstance(tool_filter, str):
        raise ValueError(f"tools must be a list of names; write [{tool_filter!r}]")
    patterns = tuple(tool_filter)
    return lambda tool: any(fnmatchcase(tool.name, pattern) for pattern in patterns)


def _allowed_by_settings(alias: str, tool: types.Tool) -> bool:
    settings = get_settings().clients.get(alias)
    return settings is not None and any(fnmatchcase(tool.name, pattern) for pattern in settings.tools)


def _get_prefixed_tools(server: _BridgedServer) -> list[types.Tool]:
    return [tool.model_copy(update={"name": name}) for name, tool in server.tools.items()]


async def _close_client(server: _BridgedServer) -> None:
    if server.client is not None:
        await server.client.close()
    server.is_owned = False
