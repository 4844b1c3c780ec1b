"""Mounted servers: primitives that a host server offers under its own names.

A host holds copies of the mounted server's primitives, with the host's names, and decides about permissions. Calls run
the original primitive. For this, the call is converted to the view of the mounted server: its names, lifespan, tools,
providers and middleware. The client, the session, the streams and the transports belong to the host.
"""

import copy
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.log_text import get_logger
from mcp_django.schema import DeclarationError
from mcp_django.server.calls.call import Call, chain_middleware
from mcp_django.server.composition.provider import Provider
from mcp_django.server.context.context import Context
from mcp_django.server.injection.handler import Handler
from mcp_django.server.primitives.base import (
    Completer,
    Completion,
    MountNames,
    MountOrigin,
    Permission,
    Primitive,
    Prompt,
    Resource,
    ResourceTemplate,
    Tool,
    combine_permissions,
)

if TYPE_CHECKING:
    from mcp_django.server.server import Server

logger = get_logger("mcp_django.server")
P = TypeVar("P", bound=Primitive)
RunPrimitive = Callable[[Call, Primitive], Awaitable[JSONObject]]
COMPLETE_METHOD = "completion/complete"
_TARGET_PARAMETERS = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "resources/subscribe": "uri",
}
"""Member of `params` that identifies the target, by method."""


class MountedServer:
    """A server mounted in a host.

    `label` identifies it in messages. `permission` and `scopes` are required in addition to those of each primitive.
    """

    def __init__(
        self,
        server: "Server",
        names: MountNames,
        *,
        label: str,
        permission: Permission | None = None,
        scopes: Sequence[str] = (),
    ) -> None:
        self.server = server
        self.names = names
        self.label = label
        self.permission = permission
        self.scopes = tuple(scopes)
        self.copies: Mapping[Primitive | Completer, Primitive | Completer] = {}
        """Registered items of the mounted server, with their copies in the host."""
        self.is_transparent: bool = (
            not (server.middleware or server.around)
            and names.keeps_uris
            and all(part.is_transparent for part in server.parts)
        )
        """True if nothing runs around handlers: no middleware, no context managers, and unchanged URIs."""

    @property
    def rules_alias(self) -> str | None:
        """Alias of the server's own rules; None for a server that is only mounted."""
        return self.server.alias if self.server.is_bound else None

    @property
    def providers(self) -> list[Provider]:
        """Providers of the mounted server, adapted to the host."""
        return [
            MountedProvider(self, mountable)
            for provider in self.server.providers
            if (mountable := provider.for_mounting()) is not None
        ]

    def copy_primitive(self, item: P, *, foreign: bool = False) -> P:
        """Return the copy of a primitive with its host name. Raises DeclarationError."""
        changes: dict[str, Any] = {}
        match item:
            case Resource():
                changes["uri"] = self.names.uri(item.uri)
            case ResourceTemplate():
                changes["template"] = self.names.template(item.template)
            case Tool() if not self.names.keeps_uris:
                changes = item.get_converted_uris(self.names.uri)
                changes["name"] = self.names.name(item.name, foreign=foreign)
            case _:
                changes["name"] = self.names.name(item.name, foreign=foreign)

        stands_for = item.stands_for
        if stands_for is not None:
            stands_for = replace(stands_for, name=self.names.name(stands_for.name, foreign=foreign))

        options = self.server.options
        return replace(
            item,
            **changes,
            mount_origin=MountOrigin(self, item),
            stands_for=stands_for,
            permission=combine_permissions(self.permission, item.permission),
            scopes=tuple(dict.fromkeys((*self.scopes, *item.scopes))),
            timeout=options.timeout if item.timeout is None else item.timeout,
            handler=_with_transaction(item.handler, options.atomic),
            source=f"{item.source} ({self.label})",
        )

    def copy_registered(self, item: Primitive | Completer) -> Primitive | Completer:
        """Return the copy of a registered primitive or completer. Raises DeclarationError."""
        if isinstance(item, Primitive):
            return self.copy_primitive(item)
        # The target is the name of a prompt, or the text of a template, which has a scheme.
        target = self.names.uri(item.target) if ":" in item.target else self.names.name(item.target)
        return replace(item, target=target, source=f"{item.source} ({self.label})")

    def view_call(self, call: Call) -> Call:
        """Return the call with the names and URIs of the mounted server, without its prefixes."""
        message, named, params = call.message, _TARGET_PARAMETERS.get(call.method), call.params
        if named is not None and isinstance(params.get(named), str):
            message = message._replace(params={**params, named: self._to_own(named, params[named])})
        elif call.method == COMPLETE_METHOD:
            ref: JSONObject = params["ref"]
            key = "name" if ref["type"] == "ref/prompt" else "uri"
            message = message._replace(params={**params, "ref": {**ref, key: self._to_own(key, ref[key])}})
        return replace(call, message=message, server=self.server, host_call=call, mount=self)

    def _to_own(self, named: str, host_value: str) -> str:
        own = self.names.own_name(host_value) if named == "name" else self.names.own_uri(host_value)
        return host_value if own is None else own

    def to_host_uris(self, body: JSONObject) -> JSONObject:
        """Return a result with the host's URIs of its resources."""
        if self.names.keeps_uris:
            return body
        changed: JSONObject = {
            name: self._to_host_uris(body[name]) for name in ("contents", "content", "messages") if name in body
        }
        return {**body, **changed} if changed else body

    def _to_host_uris(self, value: object) -> object:
        """Convert resource URIs in contents, blocks and messages to those of the host."""
        if isinstance(value, list):
            return [self._to_host_uris(one) for one in value]
        if not isinstance(value, dict):
            return value
        if isinstance(value.get("uri"), str):
            return {**value, "uri": self.to_host_uri(value["uri"])}
        inner = next((name for name in ("resource", "content") if isinstance(value.get(name), dict | list)), None)
        return value if inner is None else {**value, inner: self._to_host_uris(value[inner])}

    def to_host_uri(self, uri: str) -> str:
        """Return the host URI of a resource; other URIs stay unchanged (web pages)."""
        server, registry = self.server, self.server.registry
        if uri not in registry.resources and registry.match(uri) is None and not server.has_provider_for("resources"):
            return uri
        try:
            return self.names.uri(uri)
        except DeclarationError:
            return uri


def _with_transaction(handler: Handler, atomic: tuple[str, ...]) -> Handler:
    """Return the handler with its transaction, where `atomic` is the server's default."""
    if handler.atomic == () or not atomic:
        return handler
    copied = copy.copy(handler)
    copied.atomic = handler.get_databases(atomic)
    return copied


async def run_mounted(call: Call, primitive: Primitive, run: RunPrimitive) -> JSONObject:
    """Run a primitive in the view and middleware of its own server."""
    mounted = primitive.mount_origin
    if mounted is None:
        return await run(call, primitive)
    mount, own = mounted
    view = mount.view_call(call)
    handle = chain_middleware(mount.server.middleware, lambda inner: run_mounted(inner, own, run))
    return mount.to_host_uris(await handle(view))


def get_client_name(ctx: Context, name: str) -> str:
    """Return the client's name for a tool or prompt of `ctx.server`."""
    call = ctx.call
    while call.host_call is not None and (mount := call.mount) is not None:
        call, name = call.host_call, mount.names.name(name, foreign=True)
    return name


def resolve_innermost(call: Call, primitive: P) -> tuple[Call, P]:
    """Return call and primitive in the view of the server that declares it."""
    while primitive.mount_origin is not None:
        mount, own = primitive.mount_origin
        call, primitive = mount.view_call(call), own  # type: ignore[assignment]  # a copy has the kind of its original
    return call, primitive


class MountedProvider(Provider):
    """A provider of a mounted server, adapted to its host."""

    def __init__(self, mount: MountedServer, own: Provider) -> None:
        self._mount = mount
        self._own = own
        self.offers = own.offers
        self.follows = own.follows
        self._copies: dict[str, tuple[Iterable[Primitive], tuple[Primitive, ...]]] = {}
        self._refused: set[str] = set()

    @property
    def version(self) -> Hashable:
        return self._own.version

    def refresh(self) -> None:
        self._own.refresh()

    @property
    def has_version(self) -> bool:
        return self._own.has_version

    @property
    def is_remote(self) -> bool:
        return self._own.is_remote

    def get_permission_dependent(self) -> frozenset[str]:
        return self.offers if self._mount.permission is not None else self._own.get_permission_dependent()

    def for_mounting(self) -> "MountedProvider | None":
        return self

    async def tools(self, ctx: Context) -> Iterable[Tool]:
        return self._copy_all("tools", await self._own.tools(self._view_context(ctx)))

    async def tool(self, name: str, ctx: Context) -> Tool | None:
        own = self._mount.names.own_name(name)
        return None if own is None else self._copy(await self._own.tool(own, self._view_context(ctx)))

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        return self._copy_all("resources", await self._own.resources(self._view_context(ctx)))

    async def templates(self, ctx: Context) -> Iterable[ResourceTemplate]:
        return self._copy_all("templates", await self._own.templates(self._view_context(ctx)))

    async def resource(self, uri: str, ctx: Context) -> Resource | None:
        own = self._mount.names.own_uri(uri)
        return None if own is None else self._copy(await self._own.resource(own, self._view_context(ctx)))

    async def wait_for_resources(self, ctx: Context) -> bool:
        return await self._own.wait_for_resources(self._view_context(ctx))

    async def prompts(self, ctx: Context) -> Iterable[Prompt]:
        return self._copy_all("prompts", await self._own.prompts(self._view_context(ctx)))

    async def prompt(self, name: str, ctx: Context) -> Prompt | None:
        own = self._mount.names.own_name(name)
        return None if own is None else self._copy(await self._own.prompt(own, self._view_context(ctx)))

    async def complete(
        self, target: str, argument: str, value: str, arguments: Mapping[str, str], ctx: Context
    ) -> Completion | Sequence[str] | None:
        # Completions of listed primitives go through `run_mounted`. This serves URIs known only to the providers.
        own = self._mount.names.own_uri(target) if ctx.primitive is None else None
        return (
            None if own is None else await self._own.complete(own, argument, value, arguments, self._view_context(ctx))
        )

    def _view_context(self, ctx: Context) -> Context:
        return Context(self._mount.view_call(ctx.call))

    def _copy_all(self, kind: str, primitives: Iterable[P]) -> tuple[P, ...]:
        """Return the copies, in the same tuple as long as the provider's is the same."""
        known = self._copies.get(kind)
        if known is None or known[0] is not primitives or type(primitives) is not tuple:
            copies = tuple(copied for item in primitives if (copied := self._copy(item)) is not None)
            known = self._copies[kind] = (primitives, copies)
        return known[1]  # type: ignore[return-value]  # cached by kind

    def _copy(self, item: P | None) -> P | None:
        if item is None:
            return None
        try:
            return self._mount.copy_primitive(item, foreign=True)
        except DeclarationError as problem:
            if item.key not in self._refused and len(self._refused) < 1000:
                self._refused.add(item.key)
                logger.warning("%s: skipped the %s of %s: %s", self._mount.label, item.kind, item.source, problem)
            return None
