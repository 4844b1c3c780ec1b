"""Proxy: a remote server as a provider of its primitives."""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from hashlib import blake2b
from typing import Any

from mcp_django.aio.clock import monotonic
from mcp_django.aio.loop_local import LoopLocal
from mcp_django.client import Client
from mcp_django.client.errors import AuthorizationNeeded, ClientError
from mcp_django.contrib.proxies.authorization import build_connect_tool, build_unavailable_tool, request_authorization
from mcp_django.contrib.proxies.catalog.catalog_cache import CatalogCache, EmptyCatalog, FetchedList
from mcp_django.contrib.proxies.catalog.components import (
    REMOTE_NAME_KEY,
    ComponentFactory,
    ComponentOptions,
    RemoteTool,
    remove_local_pages,
)
from mcp_django.contrib.proxies.catalog.lists import AFFECTED_LISTS, LIST_METHODS, fetch_list, keep_listed_pages
from mcp_django.contrib.proxies.catalog.remote_skills import (
    REMOTE_FILE_KEY,
    RemoteFile,
    fetch_skills,
    find_file,
    join_skills,
    verify_file,
)
from mcp_django.contrib.proxies.connections.credentials import RemoteCredential, get_credential
from mcp_django.contrib.proxies.connections.sessions import (
    NO_CAPABILITIES,
    CallerCapabilities,
    RemoteSession,
    SessionKey,
    can_log,
    get_caller_capabilities,
    omit_unused,
)
from mcp_django.contrib.proxies.connections.targets import RemoteSource, resolve_source
from mcp_django.contrib.proxies.forwarding import results
from mcp_django.contrib.proxies.forwarding.failures import build_unknown_error, translate_error
from mcp_django.contrib.proxies.forwarding.forwarding import ForwardedRequest, ForwardingOptions
from mcp_django.contrib.proxies.forwarding.uris import convert_uris
from mcp_django.contrib.proxies.loop_state import LoopState
from mcp_django.contrib.proxies.options import ProxyOptions
from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.log_text import get_logger
from mcp_django.providers.prefixes import NamePrefixes
from mcp_django.server.composition.provider import Provider
from mcp_django.server.context.context import Context
from mcp_django.server.context.forwarding import get_effective_log_level, supports_streaming
from mcp_django.server.primitives.base import Completion, Prompt, Resource, ResourceTemplate, Tool
from mcp_django.server.primitives.results import RelayedResult
from mcp_django.signals import clients_used

logger = get_logger("mcp_django.client")

MAX_CATALOGS = 1000
"""Maximum number of catalogs on one event loop, each for one credential."""
CATALOG_IDLE_SECONDS = 900.0
"""Seconds without use after which a catalog stops being checked for changes."""


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

        terms = ComponentOptions(
            permission=self.options.effective_permission,
            scopes=tuple(self.options.scopes),
            rate=self.options.parsed_rate,
        )
        handlers: Mapping[str, Any] = {"tool": self._call, "resource": self._read, "prompt": self._get}
        self._components = ComponentFactory(self.name, self.naming, terms, handlers, follow=self._subscribe_resource)
        self._connect_tool = build_connect_tool(self.name, self.naming, terms, self._check_connected)
        self._unreachable_tool = build_unavailable_tool(self.name, self.naming, terms, is_starting=False)
        self._starting_tool = build_unavailable_tool(self.name, self.naming, terms, is_starting=True)

        self._headers = self.options.headers_function
        self._states = LoopLocal(self._create_state)
        self._change_mark = ""
        self._rename = None if self.options.uri_prefix is None else self.naming.uri

    def __repr__(self) -> str:
        return f"<Proxy {self.name!r}>"

    @property
    def is_personal(self) -> bool:
        """True if its lists depend on the caller."""
        return self._headers is not None or self.source.per_user

    @property
    def is_remote(self) -> bool:
        return True

    @property
    def version(self) -> Hashable:
        """Digests of the remote lists.

        If the lists depend on the caller, a digest that counts the changes in this process.
        """
        if self.is_personal:
            return self._change_mark
        catalogs = [item for _, state in self._states.items() for item in list(state.catalogs.items())]
        shared_catalogs = [shelf for (_, askable), shelf in catalogs if askable == NO_CAPABILITIES]
        return next(
            (digests for shelf in shared_catalogs if (digests := shelf.get_digests(self._collections)) is not None),
            None,
        )

    def refresh(self) -> None:
        state = self._states.get()
        if not self.is_personal:
            self._get_catalog(state, RemoteCredential("", "", "")).refresh_expired(self._collections)
        oldest_use = monotonic() - CATALOG_IDLE_SECONDS
        for (_, askable), shelf in list(state.catalogs.items()):
            if self.is_personal and shelf.used_at > oldest_use:
                shelf.refresh_expired(self._collections if askable == NO_CAPABILITIES else ["tools"])

    @property
    def _collections(self) -> list[str]:
        return [kind for kind, (_, _, capability) in LIST_METHODS.items() if capability in self.offers]

    async def tools(self, ctx: Context) -> Iterable[Tool]:
        return await self._list(ctx, "tools")

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        return await self._list(ctx, "resources")

    async def templates(self, ctx: Context) -> Iterable[ResourceTemplate]:
        return await self._list(ctx, "templates")

    async def prompts(self, ctx: Context) -> Iterable[Prompt]:
        return await self._list(ctx, "prompts")

    async def tool(self, name: str, ctx: Context) -> Tool | None:
        if self.naming.own_name(name) is None:
            return None
        catalog = await self._find_catalog(ctx, get_caller_capabilities(ctx, self.options.client_features))
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
        prompt: Prompt | None = await self._find_component(await self._find_catalog(ctx), "prompts", name)
        return prompt

    async def resource(self, uri: str, ctx: Context) -> Resource | None:
        own = self.naming.own_uri(uri)
        if own is None:
            return None
        catalog = await self._find_catalog(ctx)
        resource: Resource | None = await catalog.find("resources", uri)
        if resource is not None:
            return resource
        file = find_file(await catalog.items("resources"), uri)
        if file is not None:
            return self._components.build_unlisted(uri, file.uri, {REMOTE_FILE_KEY: file})
        return self._components.build_unlisted(uri, own) if await self._matches_template(catalog, uri) else None

    async def wait_for_resources(self, ctx: Context) -> bool:
        catalog = await self._find_catalog(ctx)
        kinds = [kind for kind in AFFECTED_LISTS["resources"] if catalog.is_loading(kind)]
        return any([await catalog.wait_until_known(kind, self._connect_timeout) for kind in kinds])

    async def complete(
        self, target: str, argument: str, value: str, arguments: Mapping[str, str], ctx: Context
    ) -> Completion | None:
        catalog = await self._find_catalog(ctx)
        component = await catalog.find("prompts", target) if self.naming.own_name(target) is not None else None
        kind = "ref/prompt", "name"
        if component is None:
            component, kind = await catalog.find("templates", target), ("ref/resource", "uri")
        if component is None or ctx.metadata.get(REMOTE_NAME_KEY) != component.metadata[REMOTE_NAME_KEY]:
            return None  # the caller means a component of another source with the same name

        params: dict[str, Any] = {
            "ref": {"type": kind[0], kind[1]: component.metadata[REMOTE_NAME_KEY]},
            "argument": {"name": argument, "value": value},
        }
        if arguments:
            params["context"] = {"arguments": dict(arguments)}

        try:
            client = self._get_client(self._states.get(), await self._get_credential(ctx))
            request = ForwardedRequest("completion/complete", params, True)
            return results.parse_completion(await self._states.get().forwarder.exchange(client, request, None))
        except (ClientError, results.MalformedResult, ToolError):
            return Completion(())

    @property
    def _connect_timeout(self) -> float:
        """Seconds that a call waits for the first list: connecting, and one request."""
        return self.source.startup_timeout + self.options.list_timeout

    async def _find_component(self, catalog: CatalogCache | EmptyCatalog, kind: str, key: str) -> Any:
        """Return the primitive with this key for a call, which waits while the server is starting."""
        component = await catalog.find(kind, key)
        if component is None and catalog.is_loading(kind):
            await catalog.wait_until_known(kind, self._connect_timeout)
            component = await catalog.find(kind, key) if catalog.is_known(kind) else None
        return component

    async def _matches_template(self, catalog: CatalogCache | EmptyCatalog, uri: str) -> bool:
        return any(one.template.match(uri) is not None for one in await catalog.items("templates"))

    async def _list(self, ctx: Context, kind: str) -> tuple[Any, ...]:
        if kind not in self._collections:
            return ()
        if kind != "tools":
            return await (await self._find_catalog(ctx, NO_CAPABILITIES)).items(kind)
        catalog = await self._find_catalog(ctx, get_caller_capabilities(ctx, self.options.client_features))
        tools = await catalog.items(kind)
        return await remove_local_pages(ctx, tools) if catalog.authorization_needed is None else (self._connect_tool,)

    async def _get_credential(self, ctx: Context) -> RemoteCredential:
        """Return the caller's credential. Raises ClientError if it has none."""
        return await get_credential(ctx, self.name, per_user=self.source.per_user, headers=self._headers)

    async def _find_credential(self, ctx: Context) -> RemoteCredential | None:
        try:
            return await self._get_credential(ctx)
        except ClientError:
            return None

    def _discard_credential(self, credential: RemoteCredential | None) -> None:
        """Close the idle sessions and invalidate the lists of a rejected credential."""
        state = self._states.get()
        if credential is not None:
            state.sessions.close_idle(credential.session_key)
            self._invalidate(state, credential, self._collections)

    def _invalidate(self, state: LoopState, credential: RemoteCredential, kinds: Iterable[str]) -> None:
        """Invalidate these lists for all callers who share the credential."""
        for (lists, _), catalog in list(state.catalogs.items()):
            if lists == credential.list_key:
                catalog.invalidate(kinds)

    async def _find_catalog(
        self, ctx: Context, capabilities: CallerCapabilities = NO_CAPABILITIES
    ) -> CatalogCache | EmptyCatalog:
        """Return the lists that the caller sees.

        Many servers list tools that send requests only to clients that support these requests.
        """
        try:
            return self._get_catalog(self._states.get(), await self._get_credential(ctx), capabilities)
        except ClientError as problem:
            return EmptyCatalog(problem if isinstance(problem, AuthorizationNeeded) else None)

    def _create_state(self) -> LoopState:
        state = LoopState(self.source, self.options)
        clients_used.send(sender=Proxy, loop=asyncio.get_running_loop(), close=state.close)
        return state

    def _get_catalog(
        self, state: LoopState, credential: RemoteCredential, capabilities: CallerCapabilities = NO_CAPABILITIES
    ) -> CatalogCache:
        catalog = state.catalogs.get((credential.list_key, capabilities))
        if catalog is None:
            if len(state.catalogs) >= MAX_CATALOGS:
                state.catalogs.pop(min(state.catalogs, key=lambda key: state.catalogs[key].used_at)).close()
            catalog = state.catalogs[credential.list_key, capabilities] = CatalogCache(
                self.name,
                partial(self._fetch, state, credential, capabilities),
                self._build_component,
                timeout=self.options.list_timeout,
                stale_ttl=self.options.stale_ttl,
                on_change=partial(self._record_change, state, credential, capabilities),
            )
        return catalog

    def _build_component(self, kind: str, entry: Any) -> Any:
        named = entry.get("name") if type(entry) is dict else None
        if kind in ("tools", "prompts") and type(named) is str and not self.options.is_allowed(named):
            return None
        return self._components.build(kind, entry)

    def _record_change(self, state: LoopState, credential: RemoteCredential, capabilities: CallerCapabilities) -> None:
        if capabilities == NO_CAPABILITIES:
            # Clients are notified of changes in the common lists. A list requested then must not be older.
            for (lists, catalog_capabilities), catalog in list(state.catalogs.items()):
                if lists == credential.list_key and catalog_capabilities != capabilities:
                    catalog.invalidate(["tools"])
        self._change_mark = blake2b(self._change_mark.encode(), digest_size=8, key=b"changed").hexdigest()

    async def _fetch(
        self, state: LoopState, credential: RemoteCredential, capabilities: CallerCapabilities, kind: str
    ) -> FetchedList:
        client = self._get_client(state, credential)
        await client.connect()
        self._watch_lists(state, credential, client)
        capabilities = omit_unused(capabilities, client)
        timeout = self.options.list_timeout * 2
        session = (
            await self._acquire_spare_session(state, SessionKey(credential.session_key, capabilities), credential)
            if capabilities.requests
            else None
        )

        if session is None:
            fetched = await self._fetch_list(client, kind, timeout)
            if kind == "resources":
                fetched = fetched._replace(entries=join_skills(fetched.entries, await fetch_skills(client, timeout)))
            # Prefer a list without the tools that send requests, for a moment, to an empty one.
            return fetched._replace(ttl=0.0) if capabilities.requests else fetched

        broken = True
        try:
            fetched = await self._fetch_list(session.client, kind, timeout)
            broken = False
            return fetched
        finally:
            state.sessions.release(session, broken=broken)

    async def _fetch_list(self, client: Client, kind: str, timeout: float) -> FetchedList:
        fetched = await fetch_list(client, kind, timeout)
        return await keep_listed_pages(client, fetched, timeout) if kind == "tools" else fetched

    async def _acquire_spare_session(
        self, state: LoopState, kind: SessionKey, credential: RemoteCredential
    ) -> RemoteSession | None:
        """Return a session without waiting for one; None if all are in use."""
        if state.sessions.is_exhausted:
            return None
        try:
            return await self._acquire_session(state, credential, kind)
        except (ClientError, ToolError):
            return None

    def _get_client(self, state: LoopState, credential: RemoteCredential) -> Client:
        """Return the shared connection for requests without a session of their own."""
        if credential.headers is None:
            return self.source.get_shared_client(credential.user)
        return state.get_client(credential)

    def _watch_lists(self, state: LoopState, credential: RemoteCredential, client: Client) -> None:
        """Invalidate lists when the remote server reports their change."""
        if client not in state.watched_clients:
            state.watched_clients.add(client)
            client.on_list_changed(lambda kind: self._invalidate(state, credential, AFFECTED_LISTS.get(kind, ())))

    async def _subscribe_resource(self, ctx: Context, callback: Callable[[], None]) -> Callable[[], None]:
        """Subscribe to the remote resource of `ctx` as its caller. See `Resource.follow`."""
        state, credential = self._states.get(), await self._get_credential(ctx)
        upstream = state.get_upstream(credential, partial(self._get_client, state, credential))
        if upstream is None:
            logger.warning("Too many credentials with subscriptions to the server %r; one more was refused", self.name)
            return _do_nothing
        return await upstream.subscribe(ctx.metadata[REMOTE_NAME_KEY], credential.owner, callback)

    async def _call(self, ctx: Context, arguments: dict[str, Any]) -> RelayedResult:
        tool = ctx.tool
        assert isinstance(tool, RemoteTool)
        params = {"name": tool.metadata[REMOTE_NAME_KEY], "arguments": arguments}
        request = ForwardedRequest("tools/call", params, tool.is_repeatable, tool.requires_task)
        parse = partial(
            results.parse_tool_result,
            output=tool.output,
            origin=self.naming.tool_prefix,
            is_for_pages=tool.is_for_pages,
        )
        return await self._relay(ctx, request, tool.name, parse)

    async def _get(self, ctx: Context, arguments: dict[str, str]) -> RelayedResult:
        params = {"name": ctx.metadata[REMOTE_NAME_KEY], "arguments": arguments}
        request = ForwardedRequest("prompts/get", params, True)
        return await self._relay(ctx, request, ctx.name or "", results.parse_prompt_result)

    async def _read(self, ctx: Context) -> RelayedResult:
        own = ctx.metadata[REMOTE_NAME_KEY]
        request = ForwardedRequest("resources/read", {"uri": own}, True)
        file: RemoteFile | None = ctx.metadata.get(REMOTE_FILE_KEY)
        if file is None:
            return await self._relay(ctx, request, self.naming.uri(own), results.parse_read_result)
        raw = await self._send(ctx, request, self.naming.uri(own))
        await verify_file(file, raw, partial(self._refresh_skills, ctx), self.options.list_timeout)
        return await self._convert(ctx, raw, results.parse_read_result)

    async def _refresh_skills(self, ctx: Context) -> Client:
        """Invalidate the resources, and return the client that fetches the entry of a skill again."""
        state, credential = self._states.get(), await self._get_credential(ctx)
        self._invalidate(state, credential, ["resources"])
        return self._get_client(state, credential)

    async def _relay(
        self, ctx: Context, request: ForwardedRequest, local_name: str, parse: Callable[..., RelayedResult]
    ) -> RelayedResult:
        return await self._convert(ctx, await self._send(ctx, request, local_name), parse)

    async def _convert(self, ctx: Context, raw: dict[str, Any], parse: Callable[..., RelayedResult]) -> RelayedResult:
        """Return a result with local URIs. Raises ToolError for a malformed one."""
        try:
            body = parse(raw)
        except results.MalformedResult as problem:
            raise ToolError(f"The server {self.name!r} sent an invalid response: {problem}") from None
        return await convert_uris(ctx, body, self._rename, self.name)

    async def _send(self, ctx: Context, request: ForwardedRequest, local_name: str) -> dict[str, Any]:
        """Send one request to the remote server; translate its errors for the client."""
        try:
            return await self._forward(ctx, request)
        except AuthorizationNeeded as problem:
            self._discard_credential(await self._find_credential(ctx))
            await request_authorization(ctx, self.name, problem)
            try:
                return await self._forward(ctx, request, 1)
            except ClientError as again:
                raise translate_error(again, self.name, request.method, local_name, ctx) from None
        except ClientError as problem:
            failure = translate_error(problem, self.name, request.method, local_name, ctx)
            if type(failure) is type(build_unknown_error(request.method, local_name)):
                credential = await self._find_credential(ctx)
                if credential is not None:
                    self._invalidate(self._states.get(), credential, self._collections)
            raise failure from None

    async def _forward(self, ctx: Context, request: ForwardedRequest, attempt: int = 0) -> dict[str, Any]:
        state, credential = self._states.get(), await self._get_credential(ctx)
        client = self._get_client(state, credential)
        capabilities = get_caller_capabilities(ctx, self.options.client_features)
        level = get_effective_log_level(ctx) if self.options.logs and supports_streaming(ctx) else None
        if not client.is_connected and (capabilities.requests or level):
            await client.connect()
        if client.is_connected:
            capabilities = omit_unused(capabilities, client)
        if level is not None and not can_log(client):
            level = None
        if not capabilities.requests and (level is None or state.sessions.is_exhausted):
            # The caller supports no requests, and a log alone does not justify waiting for a session.
            return await state.forwarder.exchange(client, request, ctx)
        kind = SessionKey(credential.session_key, capabilities)
        options = ForwardingOptions(
            credential.owner, level, partial(self._acquire_session, state, credential, kind), attempt
        )
        return await state.forwarder.converse(ctx, request, options)

    async def _acquire_session(self, state: LoopState, credential: RemoteCredential, kind: SessionKey) -> RemoteSession:
        """Return a connected session for one call.

        Raises ClientError, or ToolError if too many calls use the server.
        """
        create_client = partial(self.source.create_client, credential.user, credential.headers)
        session = await state.sessions.acquire(kind, create_client)
        try:
            await session.client.connect()
        except BaseException:
            state.sessions.release(session, broken=True)
            raise
        return session

    async def _check_connected(self, ctx: Context) -> str:
        """Handle the tool that is listed while the caller has not authorized the server."""
        try:
            try:
                credential = await self._connect(ctx)
            except AuthorizationNeeded as problem:
                await request_authorization(ctx, self.name, problem)
                credential = await self._connect(ctx)
        except ClientError as problem:
            raise translate_error(problem, self.name, "tools/call", self.name, ctx) from None
        self._invalidate(self._states.get(), credential, self._collections)
        return f"{self.name} is connected. List the tools again"

    async def _connect(self, ctx: Context) -> RemoteCredential:
        """Connect with the caller's credential, and return it. Raises ClientError."""
        credential = await self._get_credential(ctx)
        await self._get_client(self._states.get(), credential).connect()
        return credential


def _do_nothing() -> None:
    pass
