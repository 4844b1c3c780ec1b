"""Bridge to several servers: one list of tools, and calls routed by name.

The tools are named `alias__tool`. A failing server does not affect the others. Its error is stored in `errors`, and the
connection is retried until it succeeds.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Self, TypeVar

import mcp_types as types

from mcp_django.client import portal
from mcp_django.client.bridged_server import BridgedServer, ClientFactory, ToolPredicate, ToolsHandler
from mcp_django.client.client import Client
from mcp_django.client.errors import ClientConnectionError, ClientError, ToolNotFound
from mcp_django.client.options import ClientTarget
from mcp_django.client.pool.pool import client_settings, get_client
from mcp_django.client.session.handlers import ProgressHandler, Unsubscribe
from mcp_django.client.skills import BlockingClientSkill, ClientSkill
from mcp_django.client.tasks.task_handle import BlockingClientTask, ClientTask
from mcp_django.client.tool_names import get_alias
from mcp_django.conf import get_settings

ToolFilter = Callable[[types.Tool], bool] | Iterable[str]
"""Tools to include: a predicate on a tool, or names with `*` as a wildcard."""
T = TypeVar("T")


class Bridge:
    """The tools of several servers in one list.

        async with Bridge({"weather": Client(...), "github": get_client("github")}, tools=["*__get_*"]) as bridge:
            tools = await bridge.list_tools()
            result = await bridge.call("weather__forecast", {"city": "Zürich"})

    `servers` maps aliases to clients, to targets, or to functions that return a client at its first use. An alias
    consists of lowercase letters, digits, "-" and single "_". `tools` selects tools for all servers: a predicate, or
    the servers' own tool names with `*` as a wildcard. It may also be a dict of such filters by alias; servers without
    an entry contribute all tools. A bridge belongs to one event loop.

    A tool is named `alias__tool`. Names that model APIs would reject are changed: see docs/use-servers/bridge.md.
    """

    def __init__(
        self,
        servers: Mapping[str, Client | ClientTarget | ClientFactory],
        *,
        tools: ToolFilter | Mapping[str, ToolFilter] | None = None,
    ) -> None:
        filters = _get_filters(servers, tools)
        unknown_aliases = [alias for alias in filters if alias not in servers]
        if unknown_aliases:
            raise ValueError(
                f"tools contains {', '.join(map(repr, unknown_aliases))}, unknown to this bridge; use the aliases "
                "of servers"
            )
        self._tools_handlers: dict[object, ToolsHandler] = {}
        self._servers = {
            alias: BridgedServer(
                alias,
                _get_factory(server, alias),
                _compile_filter(filters.get(alias)),
                lambda: list(self._tools_handlers.values()),
            )
            for alias, server in servers.items()
        }

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
        factories = {alias: partial(get_client, alias, user=user, owner=owner) for alias in chosen}
        filters = _get_filters(factories, tools)
        allowed = {
            alias: partial(_is_allowed_by_settings, alias, _compile_filter(filters.get(alias))) for alias in chosen
        }
        return cls(factories, tools={**filters, **allowed})

    async def __aenter__(self) -> Self:
        await self.connect_all()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    @property
    def aliases(self) -> list[str]:
        """The aliases of all servers, in the given order."""
        return list(self._servers)

    @property
    def errors(self) -> dict[str, Exception]:
        """The latest error of each failing server, by alias."""
        return {alias: server.error for alias, server in self._servers.items() if server.error is not None}

    def client(self, alias: str) -> Client:
        """Return the client of a server, connected or not.

        Raises KeyError for an unknown alias.
        """
        return self._servers[alias].client

    async def connect_all(self) -> dict[str, Exception]:
        """Connect to all servers concurrently and list their tools.

        Returns `errors`. Failed servers are retried in the background until they are connected.
        """
        await asyncio.gather(*(server.connect() for server in self._servers.values()))
        return self.errors

    async def close(self) -> None:
        """Disconnect from all servers.

        Clients that were connected before, and clients of `get_client`, stay open.
        """
        await asyncio.gather(*(server.close() for server in self._servers.values()))

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
        return [tool for server in self._servers.values() for tool in server.prefixed_tools]

    async def list_skills(self) -> dict[str, list[ClientSkill]]:
        """Return the skills of each connected server, by alias.

        A skill reads from its own server only. The server whose request fails is left out, with its error in `errors`.
        """
        connected = [server for server in self._servers.values() if server.is_connected]

        async def list_one(server: BridgedServer) -> list[ClientSkill] | None:
            try:
                return await server.run_call(server.client.list_skills())
            except ClientError as error:
                server.error = error
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
        call = server.client.call_tool(tool, dict(arguments or {}), timeout=timeout, on_progress=on_progress, meta=meta)
        return await server.run_call(call)

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
        call = server.client.call_tool_task(
            tool, dict(arguments or {}), ttl=ttl, timeout=timeout, on_progress=on_progress, meta=meta
        )
        return await server.run_call(call)

    def blocking(self) -> "BlockingBridge":
        """Return a blocking version of this bridge, for code without an event loop."""
        return BlockingBridge(self)

    def _find_tool(self, name: str) -> tuple[BridgedServer, str]:
        server = self._servers.get(get_alias(name) or "")
        if server is not None and name in server.tools:
            return server, server.tools[name].name
        if server is not None and not server.tools and server.error is not None:
            raise ClientConnectionError(f"The server {server.alias!r} is not connected: {server.error}")
        raise ToolNotFound(message=f"Unknown tool {name[:100]!r}")


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
        return self._bridge.errors

    @property
    def aliases(self) -> list[str]:
        """The aliases of all servers, in the given order."""
        return self._bridge.aliases

    def connect_all(self) -> dict[str, Exception]:
        """Connect to all servers, like `Bridge.connect_all`."""
        return self._run(self._bridge.connect_all())

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


def _get_factory(server: Client | ClientTarget | ClientFactory, alias: str) -> ClientFactory:
    if isinstance(server, Client):
        return lambda: server
    if callable(server):
        return server
    return lambda: Client(server, alias=alias)


def _get_filters(
    aliases: Iterable[str], tools: ToolFilter | Mapping[str, ToolFilter] | None
) -> Mapping[str, ToolFilter]:
    """Return the filters by alias."""
    if tools is None:
        return {}
    return tools if isinstance(tools, Mapping) else dict.fromkeys(aliases, tools)


def _compile_filter(tool_filter: ToolFilter | None) -> ToolPredicate:
    if tool_filter is None:
        return lambda tool: True
    if callable(tool_filter):
        return tool_filter
    if isinstance(tool_filter, str):
        raise ValueError(f"tools must be a list of names; write [{tool_filter!r}]")
    patterns = tuple(tool_filter)
    return lambda tool: any(fnmatchcase(tool.name, pattern) for pattern in patterns)


def _is_allowed_by_settings(alias: str, accepts: ToolPredicate, tool: types.Tool) -> bool:
    settings = get_settings().clients.get(alias)
    is_allowed = settings is not None and any(fnmatchcase(tool.name, pattern) for pattern in settings.tools)
    return is_allowed and accepts(tool)
