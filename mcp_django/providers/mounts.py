"""Mounts: serve another server, or a toolset, within a server under a prefix."""

from collections.abc import Sequence
from typing import Any

from mcp_django.protocol.types import Implementation
from mcp_django.providers.prefixes import NamePrefixes
from mcp_django.schema import DeclarationError
from mcp_django.server.composition.mounting import MountedServer
from mcp_django.server.injection.handler import describe_source
from mcp_django.server.primitives.base import Permission
from mcp_django.server.primitives.registry import Registry
from mcp_django.server.primitives.toolset import Toolset, add_toolset
from mcp_django.server.server import Server


class Mount:
    """A server, or a toolset (class or instance), as part of another server.

    Its tools and prompts are named `<prefix>__<name>` there; an empty prefix keeps their names. Its resources keep
    their URIs unless `uri_prefix` is given. Then `city://zurich` becomes `<uri_prefix>+city://zurich`, also in results.
    `permission` and `scopes` are required in addition to those of its declarations.

    Raises DeclarationError for a target that cannot be mounted, and for an invalid prefix. The host server rejects
    names that are already in use.
    """

    def __init__(
        self,
        target: Server | Toolset | type[Toolset],
        *,
        prefix: str,
        uri_prefix: str | None = None,
        permission: Permission | None = None,
        scopes: Sequence[str] = (),
    ) -> None:
        if isinstance(scopes, str):
            raise DeclarationError(f"scopes is a list; write scopes=[{scopes!r}]")
        self.target = target
        self.naming = NamePrefixes(prefix, uri_prefix)
        self._permission = permission
        self._scopes = tuple(scopes)
        untyped_target: Any = target
        if not (
            isinstance(untyped_target, Server | Toolset)
            or (isinstance(untyped_target, type) and issubclass(untyped_target, Toolset))
        ):
            raise DeclarationError(f"a server or a toolset can be mounted as {prefix!r}, unlike {target!r}")

    def __repr__(self) -> str:
        return f"<Mount {self.naming.prefix!r}: {self.target!r}>"

    @property
    def label(self) -> str:
        """Description of the mount, for messages."""
        return f"mounted as {self.naming.prefix!r}" if self.naming.prefix else "mounted without a prefix"

    def create_part(self, host: Server) -> MountedServer:
        """Create the mounted server within `host`. Raises DeclarationError."""
        server = (
            self.target
            if isinstance(self.target, Server)
            else build_toolset_server(self.target, alias=host.alias, info=host.info)
        )
        if server is host:
            raise DeclarationError(f"{host!r} cannot be mounted in itself")
        return MountedServer(server, self.naming, label=self.label, permission=self._permission, scopes=self._scopes)


def build_toolset_server(
    toolset_or_class: Toolset | type[Toolset],
    *,
    alias: str,
    info: str | Implementation = "",
    publishes_changes: bool = False,
) -> Server:
    """Build a server that has only a toolset.

    `publishes_changes` makes the registry publish its changes under `alias`. Raises DeclarationError.
    """
    registry = Registry(alias)
    registry.publishes_changes = publishes_changes
    toolset = toolset_or_class() if isinstance(toolset_or_class, type) else toolset_or_class
    add_toolset(registry, toolset)
    return Server(info or describe_source(type(toolset)), alias=alias, registry=registry)
