"""Proxy: a remote server as a provider of its primitives."""

import asyncio
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from mcp_django.contrib.proxies.authorization import build_connect_tool, build_unavailable_tool
from mcp_django.contrib.proxies.catalog.components import (
    REMOTE_NAME_KEY,
    ComponentFactory,
    ComponentOptions,
    remove_local_pages,
)
from mcp_django.contrib.proxies.catalog.lists import AFFECTED_LISTS
from mcp_django.contrib.proxies.catalog.remote_skills import REMOTE_FILE_KEY, find_file
from mcp_django.contrib.proxies.connections.credentials import CallerCredentials
from mcp_django.contrib.proxies.connections.sessions import get_caller_capabilities
from mcp_django.contrib.proxies.connections.targets import RemoteSource, resolve_source
from mcp_django.contrib.proxies.loop_state import LoopState
from mcp_django.contrib.proxies.options import ProxyOptions
from mcp_django.contrib.proxies.remote_caller import RemoteCaller
from mcp_django.contrib.proxies.remote_catalogs import Catalog, RemoteCatalogs
from mcp_django.extensions.calls import Context
from mcp_django.extensions.event_loop import LoopLocal
from mcp_django.extensions.primitives import Completion, Prompt, Provider, Resource, ResourceTemplate, Tool
from mcp_django.providers.prefixes import NamePrefixes
from mcp_django.signals import clients_used


class Proxy(Provider):
    """Provider that serves the primitives of a remote server unchanged.

        Server(providers=[Proxy("github", permission="shop.use_github")])

    `source` is an alias of `MCP["CLIENTS"]`, or a target such as `StreamableHTTP(url)` with a `prefix`. The options are
    those of `MCP["SERVERS"][alias]["PROXIES"]`, in lower case. Raises TypeError for an unknown option, DeclarationError
    for an invalid value.
    """

    follows = True

    def __init__(self, source: Any, **options: Any) -> None:
        self.options = ProxyOptions(**options)
        self.source: RemoteSource = resolve_source(source, self.options.prefix)
        self.name = self.source.name
        prefix = self.name if self.options.prefix is None else self.options.prefix
        self.naming = NamePrefixes(prefix, self.options.uri_prefix)
        self.offers = frozenset(self.options.features)

        self._states = LoopLocal(self._create_state)
        self._credentials = CallerCredentials(self.source, self.options.headers_function)
        self._catalogs = RemoteCatalogs(self.name, self.options, self._credentials, self._states, self._build_component)
        self._caller = RemoteCaller(
            self.name,
            self.naming,
            self.options,
            credentials=self._credentials,
            states=self._states,
            catalogs=self._catalogs,
        )

        component_options = ComponentOptions(
            permission=self.options.effective_permission,
            scopes=tuple(self.options.scopes),
            rate=self.options.parsed_rate,
        )
        self._components = ComponentFactory(
            self.name, self.naming, component_options, self._caller.handlers, follow=self._caller.subscribe_resource
        )
        self._connect_tool = build_connect_tool(self.name, self.naming, component_options, self._caller.check_connected)
        self._unreachable_tool = build_unavailable_tool(self.name, self.naming, component_options, is_starting=False)
        self._starting_tool = build_unavailable_tool(self.name, self.naming, component_options, is_starting=True)

    def __repr__(self) -> str:
        return f"<Proxy {self.name!r}>"

    @property
    def is_personal(self) -> bool:
        """True if its lists depend on the caller."""
        return self._credentials.is_personal

    @property
    def is_remote(self) -> bool:
        return True

    @property
    def version(self) -> Hashable:
        """Digests of the remote lists.

        If the lists depend on the caller, a digest that counts the changes in this process.
        """
        return self._catalogs.version

    def refresh(self) -> None:
        self._catalogs.refresh()

    async def tools(self, ctx: Context) -> Iterable[Tool]:
        if "tools" not in self._catalogs.kinds:
            return ()
        catalog = await self._find_tools(ctx)
        tools = await catalog.items("tools")
        return await remove_local_pages(ctx, tools) if catalog.authorization_needed is None else (self._connect_tool,)

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        return await self._list(ctx, "resources")

    async def templates(self, ctx: Context) -> Iterable[ResourceTemplate]:
        return await self._list(ctx, "templates")

    async def prompts(self, ctx: Context) -> Iterable[Prompt]:
        return await self._list(ctx, "prompts")

    async def tool(self, name: str, ctx: Context) -> Tool | None:
        if self.naming.own_name(name) is None:
            return None
        catalog = await self._find_tools(ctx)
        tool: Tool | None = await self._find_component(catalog, "tools", name)
        if tool is not None or catalog.is_known("tools"):
            return tool
        # A client that received a tool earlier gets the reason for its absence.
        if catalog.authorization_needed is not None:
            return self._connect_tool
        return self._starting_tool if catalog.is_loading("tools") else self._unreachable_tool

    async def prompt(self, name: str, ctx: Context) -> Prompt | None:
        if self.naming.own_name(name) is None:
            return None
        prompt: Prompt | None = await self._find_component(await self._catalogs.find(ctx), "prompts", name)
        return prompt

    async def resource(self, uri: str, ctx: Context) -> Resource | None:
        remote_uri = self.naming.own_uri(uri)
        if remote_uri is None:
            return None
        catalog = await self._catalogs.find(ctx)
        resource: Resource | None = await catalog.find("resources", uri)
        if resource is not None:
            return resource
        file = find_file(await catalog.items("resources"), uri)
        if file is not None:
            return self._components.build_unlisted(uri, file.uri, {REMOTE_FILE_KEY: file})
        templates = await catalog.items("templates")
        if any(template.template.match(uri) is not None for template in templates):
            return self._components.build_unlisted(uri, remote_uri)
        return None

    async def wait_for_resources(self, ctx: Context) -> bool:
        catalog = await self._catalogs.find(ctx)
        kinds = [kind for kind in AFFECTED_LISTS["resources"] if catalog.is_loading(kind)]
        return any([await catalog.wait_until_known(kind, self._connect_timeout) for kind in kinds])

    async def complete(
        self, target: str, argument: str, value: str, arguments: Mapping[str, str], ctx: Context
    ) -> Completion | None:
        catalog = await self._catalogs.find(ctx)
        component = await catalog.find("prompts", target) if self.naming.own_name(target) is not None else None
        reference_type, reference_key = "ref/prompt", "name"
        if component is None:
            component = await catalog.find("templates", target)
            reference_type, reference_key = "ref/resource", "uri"
        if component is None or ctx.metadata.get(REMOTE_NAME_KEY) != component.metadata[REMOTE_NAME_KEY]:
            return None  # the caller means a component of another source with the same name

        params: dict[str, Any] = {
            "ref": {"type": reference_type, reference_key: component.metadata[REMOTE_NAME_KEY]},
            "argument": {"name": argument, "value": value},
        }
        if arguments:
            params["context"] = {"arguments": dict(arguments)}
        return await self._caller.complete(ctx, params)

    @property
    def _connect_timeout(self) -> float:
        """Seconds that a call waits for the first list: connecting, and one request."""
        return self.source.startup_timeout + self.options.list_timeout

    async def _find_tools(self, ctx: Context) -> Catalog:
        """Return the catalog of tools, which depends on the requests that the caller supports."""
        return await self._catalogs.find(ctx, get_caller_capabilities(ctx, self.options.client_features))

    async def _find_component(self, catalog: Catalog, kind: str, key: str) -> Any:
        """Return the primitive with this key for a call, which waits while the server is starting."""
        component = await catalog.find(kind, key)
        if component is None and catalog.is_loading(kind):
            await catalog.wait_until_known(kind, self._connect_timeout)
            component = await catalog.find(kind, key) if catalog.is_known(kind) else None
        return component

    async def _list(self, ctx: Context, kind: str) -> tuple[Any, ...]:
        return await (await self._catalogs.find(ctx)).items(kind) if kind in self._catalogs.kinds else ()

    def _build_component(self, kind: str, entry: Any) -> Any:
        name = entry.get("name") if type(entry) is dict else None
        if kind in ("tools", "prompts") and type(name) is str and not self.options.is_allowed(name):
            return None
        return self._components.build(kind, entry)

    def _create_state(self) -> LoopState:
        state = LoopState(self.source, self.options)
        clients_used.send(sender=Proxy, loop=asyncio.get_running_loop(), close=state.close)
        return state
