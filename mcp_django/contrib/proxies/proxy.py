"""Proxy: a remote server as a provider of its primitives."""

import asyncio
import logging
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from hashlib import blake2b
from typing import Any

from mcp_django.aio.clock import monotonic
from mcp_django.client import Client
from mcp_django.client.errors import AuthorizationNeeded, ClientError
from mcp_django.client.session.passthrough import Answering
from mcp_django.contrib.proxies.authorization import absent_tool, connect_tool, connected
from mcp_django.contrib.proxies.catalog.catalog_cache import Fetched, Nothing, Shelf
from mcp_django.contrib.proxies.catalog.components import REMOTE, Entries, RemoteTool, Terms
from mcp_django.contrib.proxies.catalog.lists import CHANGED, LISTED, fetch
from mcp_django.contrib.proxies.connections.credentials import Credential, credential_of
from mcp_django.contrib.proxies.connections.sessions import NOTHING_ASKED, Askable, Kind, Session, askable_by, logs
from mcp_django.contrib.proxies.connections.targets import Source, source_of
from mcp_django.contrib.proxies.forwarding import results
from mcp_django.contrib.proxies.forwarding.failures import told, unknown
from mcp_django.contrib.proxies.forwarding.forwarding import Manner, Request
from mcp_django.contrib.proxies.loop_state import Here
from mcp_django.contrib.proxies.options import ProxyOptions
from mcp_django.protocol.errors import ToolError
from mcp_django.providers.prefixes import Naming
from mcp_django.server.composition.provider import Provider
from mcp_django.server.context.context import Context
from mcp_django.server.context.forwarding import lasts, wanted_level
from mcp_django.server.primitives.base import Completion, Prompt, Resource, ResourceTemplate, Tool
from mcp_django.server.primitives.results import Relayed
from mcp_django.signals import clients_used

logger = logging.getLogger("mcp_django.client")

SHELVES = 1000
"""Maximum number of catalogs on one event loop, each for one credential."""
FORGOTTEN = 900.0
"""Seconds without use after which a catalog stops being checked for changes."""


class Proxy(Provider):
    """Provider that serves the primitives of a remote server unchanged.

        Server(proxies=[Proxy("github", permission="shop.use_github")])

    `source` is an alias of `MCP["CLIENTS"]`, or a target such as `StreamableHTTP(url)` with a `prefix`. The options are
    those of `MCP["SERVERS"][alias]["PROXIES"]`, in lower case. Raises TypeError for an unknown option, DeclarationError
    for an invalid value.
    """

    follows = True

    def __init__(self, source: Any, **options: Any) -> None:
        self.options = ProxyOptions(**options)
        self.source: Source = source_of(source, self.options.prefix)
        self.name = self.source.name
        prefix = self.name if self.options.prefix is None else self.options.prefix
        self.naming = Naming(prefix, self.options.uri_prefix)
        self.offers = frozenset(self.options.offers)

        terms = Terms(
            permission=self.options.granted,
            scopes=tuple(self.options.scopes),
            rate=self.options.frequency,
            timeout=None,
        )
        handlers: Mapping[str, Any] = {"tool": self._call, "resource": self._read, "prompt": self._get}
        self._entries = Entries(self.name, self.naming, terms, handlers, follow=self._follow_resource)
        self._connect = connect_tool(self.name, self.naming, terms, self._check_connected)
        self._absent = absent_tool(self.name, self.naming, terms)

        self._headers = self.options.headers
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Here] = weakref.WeakKeyDictionary()
        self._mark = ""
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
            return self._mark
        kept = [item for here in list(self._loops.values()) for item in list(here.shelves.items())]
        shelves = [shelf for (_, askable), shelf in kept if askable == NOTHING_ASKED]
        return next((found for shelf in shelves if (found := shelf.digests(self._collections)) is not None), None)

    def look(self) -> None:
        here = self._here()
        if not self.is_personal:
            self._shelf(here, Credential("", "", "")).look(self._collections)
        since = monotonic() - FORGOTTEN
        for (_, askable), shelf in list(here.shelves.items()):
            if self.is_personal and shelf.used > since:
                shelf.look(self._collections if askable == NOTHING_ASKED else ["tools"])

    @property
    def _collections(self) -> list[str]:
        return [kind for kind, (_, _, capability) in LISTED.items() if capability in self.offers]

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
        shelf = await self._shelf_of(ctx, askable_by(ctx, self.options.asks))
        found: Tool | None = await shelf.find("tools", name)
        if found is not None or shelf.is_known("tools"):
            return found
        # A client that received a tool earlier gets the reason for its absence.
        return self._connect if shelf.needs is not None else self._absent

    async def prompt(self, name: str, ctx: Context) -> Prompt | None:
        if self.naming.own_name(name) is None:
            return None
        found: Prompt | None = await (await self._shelf_of(ctx)).find("prompts", name)
        return found

    async def resource(self, uri: str, ctx: Context) -> Resource | None:
        own = self.naming.own_uri(uri)
        if own is None:
            return None
        shelf = await self._shelf_of(ctx)
        found: Resource | None = await shelf.find("resources", uri)
        if found is None and await self._fits(shelf, uri):
            found = self._entries.at(uri, own)
        return found

    async def complete(
        self, target: str, argument: str, value: str, arguments: Mapping[str, str], ctx: Context
    ) -> Completion | None:
        shelf = await self._shelf_of(ctx)
        found = await shelf.find("prompts", target) if self.naming.own_name(target) is not None else None
        kind = "ref/prompt", "name"
        if found is None:
            found, kind = await shelf.find("templates", target), ("ref/resource", "uri")
        if found is None or ctx.metadata.get(REMOTE) != found.metadata[REMOTE]:
            return None  # the caller means a component of another source with the same name

        params: dict[str, Any] = {
            "ref": {"type": kind[0], kind[1]: found.metadata[REMOTE]},
            "argument": {"name": argument, "value": value},
        }
        if arguments:
            params["context"] = {"arguments": dict(arguments)}

        try:
            client = self._client(self._here(), await self._who(ctx))
            request = Request("completion/complete", params, True)
            return results.completion(await self._here().relay.once(client, request, None))
        except (ClientError, results.Malformed, ToolError):
            return Completion(())

    async def _fits(self, shelf: Shelf | Nothing, uri: str) -> bool:
        templates: Iterable[ResourceTemplate] = await shelf.items("templates")
        return any(one.template.match(uri) is not None for one in templates)

    async def _list(self, ctx: Context, kind: str) -> tuple[Any, ...]:
        if kind not in self._collections:
            return ()
        shelf = await self._shelf_of(ctx, askable_by(ctx, self.options.asks) if kind == "tools" else NOTHING_ASKED)
        found = await shelf.items(kind)
        return found if shelf.needs is None or kind != "tools" else (self._connect,)

    async def _who(self, ctx: Context) -> Credential:
        """Return the caller's credential. Raises ClientError if it has none."""
        return await credential_of(ctx, self.name, per_user=self.source.per_user, headers=self._headers)

    async def _key(self, ctx: Context) -> Credential | None:
        try:
            return await self._who(ctx)
        except ClientError:
            return None

    def _withdraw(self, who: Credential | None) -> None:
        """Close the idle sessions and invalidate the lists of a rejected credential."""
        here = self._here()
        if who is not None:
            here.sessions.forget(who.sessions)
            self._forget(here, who, self._collections)

    def _forget(self, here: Here, who: Credential, kinds: Iterable[str]) -> None:
        """Invalidate these lists for all callers who share the credential."""
        for (lists, _), shelf in list(here.shelves.items()):
            if lists == who.lists:
                shelf.forget(kinds)

    async def _shelf_of(self, ctx: Context, askable: Askable = NOTHING_ASKED) -> Shelf | Nothing:
        """Return the lists that the caller sees.

        Many servers list tools that send requests only to clients that support these requests.
        """
        try:
            return self._shelf(self._here(), await self._who(ctx), askable)
        except ClientError as problem:
            return Nothing(problem if isinstance(problem, AuthorizationNeeded) else None)

    def _here(self) -> Here:
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            found = self._loops[loop] = Here(self.source, self.options)
            clients_used.send(sender=Proxy, loop=loop, close=found.close)
        return found

    def _shelf(self, here: Here, who: Credential, askable: Askable = NOTHING_ASKED) -> Shelf:
        found = here.shelves.get((who.lists, askable))
        if found is None:
            if len(here.shelves) >= SHELVES:
                here.shelves.pop(min(here.shelves, key=lambda key: here.shelves[key].used)).close()
            found = here.shelves[who.lists, askable] = Shelf(
                self.name,
                partial(self._fetch, here, who, askable),
                self._make,
                wait=self.options.list_timeout,
                stale=self.options.stale,
                changed=partial(self._note_change, here, who, askable),
            )
        return found

    def _make(self, kind: str, entry: Any) -> Any:
        named = entry.get("name") if type(entry) is dict else None
        if kind in ("tools", "prompts") and type(named) is str and not self.options.lets_through(named):
            return None
        return self._entries.make(kind, entry)

    def _note_change(self, here: Here, who: Credential, askable: Askable) -> None:
        if askable == NOTHING_ASKED:
            # Clients are notified of changes in the common lists. A list requested then must not be older.
            for (lists, others), shelf in list(here.shelves.items()):
                if lists == who.lists and others != askable:
                    shelf.forget(["tools"])
        self._mark = blake2b(self._mark.encode(), digest_size=8, key=b"changed").hexdigest()

    async def _fetch(self, here: Here, who: Credential, askable: Askable, kind: str) -> Fetched:
        client = self._client(here, who)
        await client.connect()
        self._follow(here, who, client)
        wait = self.options.list_timeout * 2
        session = await self._spare(here, Kind(who.sessions, *askable), who) if askable.asks else None

        if session is None:
            found = await fetch(client, kind, wait)
            # Prefer a list without the tools that send requests, for a moment, to an empty one.
            return found._replace(ttl=0.0) if askable.asks else found

        broken = True
        try:
            found = await fetch(session.client, kind, wait)
            broken = False
            return found
        finally:
            here.sessions.give_back(session, broken=broken)

    async def _spare(self, here: Here, kind: Kind, who: Credential) -> Session | None:
        """Return a session without waiting for one; None if all are in use."""
        if here.sessions.are_taken:
            return None
        try:
            return await self._session(here, who, kind)
        except (ClientError, ToolError):
            return None

    def _client(self, here: Here, who: Credential) -> Client:
        """Return the shared connection for requests without a session of their own."""
        if who.headers is None:
            return self.source.shared(who.user)
        return here.client(who)

    def _follow(self, here: Here, who: Credential, client: Client) -> None:
        """Invalidate lists when the remote server reports their change."""
        if client not in here.followed:
            here.followed.add(client)
            client.on_list_changed(lambda kind: self._forget(here, who, CHANGED.get(kind, ())))

    async def _follow_resource(self, ctx: Context, tell: Callable[[], None]) -> Callable[[], None]:
        """Subscribe to the remote resource of `ctx` as its caller. See `Resource.follow`."""
        here, who = self._here(), await self._who(ctx)
        upstream = here.upstream(who, partial(self._client, here, who))
        if upstream is None:
            logger.warning("Too many credentials with subscriptions to the server %r; one more was refused", self.name)
            return _nothing
        return await upstream.follow(ctx.metadata[REMOTE], who.owner, tell)

    async def _call(self, ctx: Context, arguments: dict[str, Any]) -> Relayed:
        tool = ctx.tool
        assert isinstance(tool, RemoteTool)
        params = {"name": tool.metadata[REMOTE], "arguments": arguments}
        raw = await self._send(ctx, Request("tools/call", params, tool.repeats), tool.name)
        try:
            return results.tool_result(raw, tool.output, self._rename)
        except results.Malformed as problem:
            raise self._malformed(problem) from None

    async def _get(self, ctx: Context, arguments: dict[str, str]) -> Relayed:
        params = {"name": ctx.metadata[REMOTE], "arguments": arguments}
        raw = await self._send(ctx, Request("prompts/get", params, True), ctx.name or "")
        try:
            return results.prompt_result(raw, self._rename)
        except results.Malformed as problem:
            raise self._malformed(problem) from None

    async def _read(self, ctx: Context) -> Relayed:
        own = ctx.metadata[REMOTE]
        raw = await self._send(ctx, Request("resources/read", {"uri": own}, True), self.naming.uri(own))
        try:
            return results.read_result(raw, self._rename)
        except results.Malformed as problem:
            raise self._malformed(problem) from None

    def _malformed(self, problem: results.Malformed) -> ToolError:
        return ToolError(f"The server {self.name!r} sent an invalid response: {problem}")

    async def _send(self, ctx: Context, request: Request, here_called: str) -> dict[str, Any]:
        """Send one request to the remote server; translate its errors for the client."""
        try:
            return await self._pass_on(ctx, request)
        except AuthorizationNeeded as problem:
            self._withdraw(await self._key(ctx))
            await connected(ctx, self.name, problem)
            try:
                return await self._pass_on(ctx, request, 1)
            except ClientError as again:
                raise told(again, self.name, request.method, here_called, ctx) from None
        except ClientError as problem:
            failure = told(problem, self.name, request.method, here_called, ctx)
            if type(failure) is type(unknown(request.method, here_called)):
                who = await self._key(ctx)
                if who is not None:
                    self._forget(self._here(), who, self._collections)
            raise failure from None

    async def _pass_on(self, ctx: Context, request: Request, attempt: int = 0) -> dict[str, Any]:
        here, who = self._here(), await self._who(ctx)
        client = self._client(here, who)
        askable = askable_by(ctx, self.options.asks)
        level = wanted_level(ctx) if self.options.logs and lasts(ctx) else None
        if not client.is_connected and (askable.asks or level):
            await client.connect()
        if level is not None and not logs(client):
            level = None
        if not askable.asks and (level is None or here.sessions.are_taken):
            # The caller supports no requests, and a log alone does not justify waiting for a session.
            return await here.relay.once(client, request, ctx)
        kind = Kind(who.sessions, *askable)
        manner = Manner(who.owner, level, partial(self._session, here, who, kind), attempt)
        return await here.relay.talk(ctx, request, manner)

    async def _session(self, here: Here, who: Credential, kind: Kind) -> Session:
        """Return a connected session for one call.

        Raises ClientError, or ToolError if too many calls use the server.
        """

        def make(answering: Answering, tools: bool) -> Client:
            return self.source.own(who.user, who.headers, answering, tools)

        session = await here.sessions.take(kind, make)
        try:
            await session.client.connect()
        except BaseException:
            here.sessions.give_back(session, broken=True)
            raise
        return session

    async def _check_connected(self, ctx: Context) -> str:
        """Handle the tool that is listed while the caller has not authorized the server."""
        try:
            who = await self._who(ctx)
            await self._client(self._here(), who).connect()
        except AuthorizationNeeded as problem:
            await connected(ctx, self.name, problem)
            who = await self._who_now(ctx)
        except ClientError as problem:
            raise told(problem, self.name, "tools/call", self.name, ctx) from None
        self._forget(self._here(), who, self._collections)
        return f"{self.name} is connected. List the tools again"

    async def _who_now(self, ctx: Context) -> Credential:
        try:
            who = await self._who(ctx)
            await self._client(self._here(), who).connect()
        except ClientError as problem:
            raise told(problem, self.name, "tools/call", self.name, ctx) from None
        return who


def _nothing() -> None:
    pass
