"""The server: an endpoint's identity, its primitives, and its ports."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from mcp_django.protocol.revisions import Era
from mcp_django.protocol.types import Implementation
from mcp_django.schema import DeclarationError
from mcp_django.server.calls.call import Call, Middleware
from mcp_django.server.calls.server_core import Ports, ServerCore
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
from mcp_django.server.primitives.registry import CombinedRegistry, Registry
from mcp_django.server.primitives.toolset import Toolset, add_toolset
from mcp_django.server.subscriptions.listen import ServerSubscriptions

BOTH_ERAS = (Era.HANDSHAKE, Era.STATELESS)


class Mountable(Protocol):
    """An object that can be mounted in a server: `providers.mounts.Mount`."""

    def create_part(self, host: "Server") -> "MountedServer":
        """Create the mounted server for `host`. Raises DeclarationError."""


class Server(ServerCore):
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
        self._host = None
        self.parts: tuple[MountedServer, ...] = ()

        if mounts:
            self._mount(mounts)
        self.lifespan = Lifespans(None if lifespan is None else lambda: lifespan(self), self._inner_lifespans)
        self.has_lifespan = lifespan is not None or bool(self._inner_lifespans())

        self.listings = PrimitiveLists(self)
        self.subscriptions = ServerSubscriptions(self)
        self._offered_cache = (-1, frozenset())

    def __repr__(self) -> str:
        return f"<Server {self.alias!r}: {self.info.name} {self.info.version}>"

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
        owners: dict[int, ServerCore] = {id(toolset): self for toolset in self.registry.toolsets}
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

    def _reset_ports(self) -> None:
        super()._reset_ports()
        self.listings = PrimitiveLists(self)

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
