"""Mounts: serve another server, or a toolset, within a server under a prefix."""

from collections.abc import Sequence
from typing import Any

from mcp_django.protocol.types import Implementation
from mcp_django.providers.prefixes import Naming
from mcp_django.schema import DeclarationError
from mcp_django.server.composition.mounting import Part
from mcp_django.server.injection.handler import source_of
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
        what: Server | Toolset | type[Toolset],
        *,
        prefix: str,
        uri_prefix: str | None = None,
        permission: Permission | None = None,
        scopes: Sequence[str] = (),
    ) -> None:
        if isinstance(scopes, str):
            raise DeclarationError(f"scopes is a list; write scopes=[{scopes!r}]")
        self.what, self.naming = what, Naming(prefix, uri_prefix)
        self._permission, self._scopes = permission, tuple(scopes)
        given: Any = what
        if not (isinstance(given, Server | Toolset) or (isinstance(given, type) and issubclass(given, Toolset))):
            raise DeclarationError(f"a server or a toolset can be mounted as {prefix!r}, unlike {what!r}")

    def __repr__(self) -> str:
        return f"<Mount {self.naming.prefix!r}: {self.what!r}>"

    @property
    def label(self) -> str:
        """Description of the mount, for messages."""
        return f"mounted as {self.naming.prefix!r}" if self.naming.prefix else "mounted without a prefix"

    def part(self, host: Server) -> Part:
        """Create the mounted server within `host`. Raises DeclarationError."""
        server = self.what if isinstance(self.what, Server) else server_of(self.what, alias=host.alias, info=host.info)
        if server is host:
            raise DeclarationError(f"{host!r} cannot be mounted in itself")
        return Part(server, self.naming, label=self.label, permission=self._permission, scopes=self._scopes)


def server_of(
    what: Toolset | type[Toolset], *, alias: str, info: str | Implementation = "", is_told: bool = False
) -> Server:
    """Build a server that has only a toolset.

    `publishes_changes` makes the registry publish its changes under `alias`. Raises DeclarationError.
    """
    registry = Registry(alias)
    registry.is_told = is_told
    toolset = what() if isinstance(what, type) else what
    add_toolset(registry, toolset)
    return Server(info or source_of(type(toolset)), alias=alias, registry=registry)
