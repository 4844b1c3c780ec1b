"""The server: an endpoint's identity, its primitives, and its ports."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, Self, Unpack

from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.revisions import Era, Revision
from mcp_django.protocol.types import Implementation
from mcp_django.schema import DeclarationError
from mcp_django.server.calls.call import Call, Middleware
from mcp_django.server.calls.server_ports import Ports
from mcp_django.server.capabilities import (
    NotifiedChanges,
    add_change_notifications,
    find_notified_changes,
    merge_capabilities,
    remove_notifications,
)
from mcp_django.server.composition.extension import Extension
from mcp_django.server.composition.extension_registry import ExtensionRegistry
from mcp_django.server.composition.mounting import MountedServer
from mcp_django.server.composition.provider import Provider, sort_providers
from mcp_django.server.context.around import Around
from mcp_django.server.context.sampling import OfferedTool
from mcp_django.server.execution.lists import PrimitiveLists
from mcp_django.server.execution.sampling_tools import Toolbox
from mcp_django.server.lifespan import Lifespans
from mcp_django.server.options import ServerOptions
from mcp_django.server.ports import Lifespan
from mcp_django.server.primitives.decorators import (
    PrimitiveOptions,
    ResourceOptions,
    ToolOptions,
    register_completer,
    register_prompt,
    register_resource,
    register_tool,
)
from mcp_django.server.primitives.registry import CombinedRegistry, Kind, Registry
from mcp_django.server.primitives.toolset import Toolset, add_toolset
from mcp_django.server.subscriptions.listen import ServerSubscriptions

BOTH_ERAS = (Era.HANDSHAKE, Era.STATELESS)


class Mountable(Protocol):
    """An object that can be mounted in a server: `providers.mounts.Mount`."""

    def create_part(self, host: "Server") -> "MountedServer":
        """Create the mounted server for `host`. Raises DeclarationError."""


class Server:
    """An MCP endpoint.

    `MCP["SERVERS"]` describes servers by alias. Tests and scripts may create their own. Its decorators (`@server.tool`)
    register on it alone and raise DeclarationError at once.
    """

    def __init__(
        self,
        name: str | Implementation,
        version: str = "0",
        *,
        alias: str = "default",
        instructions: str | None = None,
        eras: Sequence[Era] = BOTH_ERAS,
        registry: Registry | None = None,
        providers: Sequence[Provider] = (),
        toolsets: Sequence[Toolset] = (),
        middleware: Sequence[Middleware] = (),
        mounts: Sequence[Mountable] = (),
        extensions: Sequence[Extension] = (),
        lifespan: Lifespan | None = None,
        options: ServerOptions | None = None,
        ports: Ports | None = None,
    ) -> None:

        self.info = name if isinstance(name, Implementation) else Implementation(name, version)
        self.alias = alias
        self.instructions = instructions
        self.eras = tuple(eras)
        self.registry = registry if registry is not None else Registry(alias)
        self.middleware = tuple(middleware)
        self.extensions = ExtensionRegistry([extension.bind(self) for extension in extensions])
        offered = [each for extension in self.extensions.extensions for each in extension.get_providers()]
        self.providers = sort_providers((*providers, *offered))
        self.options = options or ServerOptions()
        self.around = tuple(map(Around, self.options.around))
        self._ports = ports

        for toolset in toolsets:
            add_toolset(self.registry, toolset)
        self.registry.run_deferred()
        self._host: Server | None = None
        self.parts: tuple[MountedServer, ...] = ()

        if mounts:
            self._mount(mounts)
        self.lifespan = Lifespans(None if lifespan is None else lambda: lifespan(self), self._inner_lifespans)
        self.has_lifespan = lifespan is not None or bool(self._inner_lifespans())

        self.listings = PrimitiveLists(self)
        self.subscriptions = ServerSubscriptions(self)
        self._offered_cache: tuple[int, frozenset[str]] = (-1, frozenset())

    def __repr__(self) -> str:
        return f"<Server {self.alias!r}: {self.info.name} {self.info.version}>"

    def tool(self, fn: Any = None, *, name: str | None = None, **options: Unpack[ToolOptions]) -> Any:
        """Register a tool on this server only, like `mcp_django.tool`."""
        return register_tool(self.registry, fn, name, options)

    def resource(self, uri: str, *name_and_description: str, **options: Unpack[ResourceOptions]) -> Any:
        """Register a resource on this server only, like `mcp_django.resource`."""
        return register_resource(self.registry, uri, options, *name_and_description)

    def prompt(self, fn: Any = None, *, name: str | None = None, **options: Unpack[PrimitiveOptions]) -> Any:
        """Register a prompt on this server only, like `mcp_django.prompt`."""
        return register_prompt(self.registry, fn, name, options)

    def completion(
        self, target: str, argument: str, *, atomic: bool | str | Sequence[str] | None = None
    ) -> Callable[[Any], Any]:
        """Register a completion on this server only, like `mcp_django.completion`."""
        decorator: Callable[[Any], Any] = register_completer(self.registry, target, argument, atomic)
        return decorator

    def remove(self, kind: Kind, key: str) -> bool:
        """Remove a registered primitive and its completions.

        Returns False if it is unknown. `key` is the name of a tool or prompt, the URI of a resource, or the text of a
        template. Listening clients are notified of the list change. Like registration, removal concerns this process
        only. Use a Provider for lists that all workers must share.
        """
        return self.registry.remove(kind, key)

    def has_provider_for(self, capability: str) -> bool:
        """Return True if a provider offers the capability."""
        return any(capability in provider.offers for provider in self.providers)

    @cached_property
    def ports(self) -> Ports:
        """Ports of the server, or of the host that mounts it."""
        if self._ports is not None:
            return self._ports
        if self._host is not None:
            return self._host.ports
        raise RuntimeError(f"{self!r} has no ports; mount it in another server, or create it with ports=")

    @property
    def is_bound(self) -> bool:
        """True if the server has ports of its own."""
        return self._ports is not None

    def set_host(self, host: "Server") -> None:
        """Set the host server. Its ports are used unless this server has its own."""
        self._host = self._host or host

    def bind(self, ports: Ports) -> Self:
        """Replace the server's ports."""
        self._ports = ports
        self._reset_ports()
        return self

    def _reset_ports(self) -> None:
        vars(self).pop("ports", None)
        self.listings = PrimitiveLists(self)
        for part in self.parts:
            if not part.server.is_bound:
                part.server._reset_ports()

    @property
    def offered_capabilities(self) -> frozenset[str]:
        """Names of the capabilities that the server has primitives for, as on the wire."""
        version, known = self._offered_cache
        registry = self.registry
        if version == registry.version:
            return known

        offered = {name for provider in self.providers for name in provider.offers} | {"logging"}

        if len(registry.tools):
            offered.add("tools")
        if len(registry.resources) or len(registry.templates):
            offered.add("resources")
        if len(registry.prompts):
            offered.add("prompts")
        if registry.completers:
            offered.add("completions")

        added = self.options.capabilities
        known = frozenset(offered.union(added) - {name for name, value in added.items() if value is None})
        self._offered_cache = registry.version, known
        return known

    def capabilities(self, revision: Revision, *, streams: bool = True) -> JSONObject:
        """Return the capabilities declared to a client of `revision`.

        Without `streams`, the transport carries only responses, so capabilities that need notifications are left out.
        """
        declared: JSONObject = {name: {} for name in sorted(self.offered_capabilities)}
        # Sessions receive list changes on their own GET streams only.
        if self.ports.change_feed is not None and (revision.era is Era.STATELESS or self.options.enable_get):
            add_change_notifications(declared)
        merge_capabilities(declared, (*self.extensions.get_capabilities(revision), self.options.capabilities))
        return revision.shape_capabilities(declared if streams else remove_notifications(declared))

    def get_notified_changes(self, revision: Revision, *, streams: bool = True) -> NotifiedChanges:
        """Return the changes that clients of `revision` are notified of.

        They are the declared ones, and none without `streams`.
        """
        has_feed = self.ports.change_feed is not None
        return find_notified_changes(self.capabilities(revision, streams=streams) if has_feed else {})

    def _mount(self, mounts: Sequence[Mountable]) -> None:
        """Add the registered and provided primitives of the mounted servers.

        Raises DeclarationError.
        """
        self.parts = tuple(mount.create_part(self) for mount in mounts)
        self._check_toolsets_unique()
        combined = self.registry = CombinedRegistry(self.registry)
        for part in self.parts:
            part.server.set_host(self)
            part.copies = combined.link(part.server.registry, part.copy_registered).copies
        combined.mark_complete()
        self.providers = sort_providers(
            (*self.providers, *(provider for part in self.parts for provider in part.providers))
        )

    def _check_toolsets_unique(self) -> None:
        """Check that each toolset instance belongs to one server only.

        Raises DeclarationError. An instance holds the values that its lifespan opened, and a lifespan must be entered
        once.
        """
        owners: dict[int, Server] = {id(toolset): self for toolset in self.registry.toolsets}
        for part in self.parts:
            for toolset in part.server.registry.toolsets:
                if owners.setdefault(id(toolset), part.server) is not part.server:
                    text = (
                        "is a toolset instance that this server already has; mount its class, or a server that has it"
                    )
                    raise DeclarationError(f"{type(toolset).__qualname__}, {part.label}, {text}")

    def _inner_lifespans(self) -> list[Any]:
        mounted = [part.server.lifespan.enter_shared for part in self.parts if part.server.has_lifespan]
        return mounted + [t.lifespan for t in self.registry.toolsets if type(t).lifespan is not Toolset.lifespan]

    async def build_toolbox(self, call: Call, tools: Sequence[OfferedTool]) -> Toolbox:
        """Build the set of `tools` that the client's model may use in a sampling request."""
        return await Toolbox.build(call, tools)

    def copy_with_options(self, **changes: Any) -> "Server":
        """Return a copy of the server with other options, but the same registry and ports."""
        other = copy.copy(self)
        return other.set_options(**changes)

    def set_options(self, **changes: Any) -> "Server":
        """Change options in place. For tests and scripts."""
        self.options = replace(self.options, **changes)
        self.around = tuple(map(Around, self.options.around))
        self.listings = PrimitiveLists(self)
        self._offered_cache = (-1, frozenset())
        return self
