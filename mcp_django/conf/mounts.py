"""Settings of `MOUNTS` of a server: mounted servers and toolsets, by prefix.

They are in `MCP["SERVERS"][alias]["MOUNTS"]`. Each field of `MountSettings` is a key of an entry, in capitals.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Annotated, Any, Protocol

from mcp_django.conf import readers

TARGET_DESCRIPTION = "an alias of SERVERS, or the dotted path of a server or toolset"


@dataclass(frozen=True, slots=True, kw_only=True)
class MountSettings:
    """An entry of `MOUNTS`. A string instead of an entry is its SERVER."""

    server: str
    """Alias of SERVERS, or a dotted path.

    The path names a Server, a Toolset class, or an instance of one.
    """
    uri_prefix: str | None = None
    """Prefix of its resource URIs.

    `city://zurich` becomes `<uri_prefix>+city://zurich`. None: unchanged.
    """
    permission: tuple[str, ...] = ()
    """Django permissions required for all its primitives, in addition to their own."""
    scopes: tuple[str, ...] = ()
    """Scopes required for all its primitives, in addition to their own."""


def read_mounts(raw: Any) -> Mapping[str, MountSettings]:
    if not isinstance(raw, Mapping) or not all(isinstance(prefix, str) for prefix in raw):
        raise readers.WrongValue(f"must be a dict from prefixes to {TARGET_DESCRIPTION}, or to dicts with it")
    return MappingProxyType({prefix: _read_mount(prefix, entry) for prefix, entry in raw.items()})


def _read_mount(prefix: str, entry: Any) -> MountSettings:
    given = entry if isinstance(entry, Mapping) else {"SERVER": entry}
    known = {field.name.upper(): field.name for field in fields(MountSettings)}
    for key in given:
        if key not in known:
            raise readers.WrongValue(
                f"has the unknown option {key!r} under {prefix!r}", readers.find_closest(key, known)
            )
    if "SERVER" not in given:
        raise readers.WrongValue(f"needs a WHAT under {prefix!r}: {TARGET_DESCRIPTION}")
    try:
        return MountSettings(**{known[key]: _READERS[key](value) for key, value in given.items()})
    except readers.WrongValue as problem:
        raise readers.WrongValue(f"{problem.message} under {prefix!r}", problem.suggestion) from None


def _read_target(raw: Any) -> str:
    if not isinstance(raw, str) or not (
        re.fullmatch(readers.ALIAS_PATTERN, raw) or re.fullmatch(readers.DOTTED_PATH_PATTERN, raw)
    ):
        raise readers.WrongValue(f"must name {TARGET_DESCRIPTION}")
    return raw


def _read_uri_prefix(raw: Any) -> str:
    if not isinstance(raw, str) or not re.fullmatch(readers.SCHEME_PREFIX_PATTERN, raw):
        raise readers.WrongValue("must have a valid URI_PREFIX: a letter, then letters, digits, - and .")
    return raw


_READERS = {
    "SERVER": _read_target,
    "URI_PREFIX": readers.optional(_read_uri_prefix),
    "PERMISSION": readers.one_or_more(readers.word),
    "SCOPES": readers.scope_names,
}
Mounts = Annotated[Mapping[str, MountSettings], read_mounts]


class HasMounts(Protocol):
    """The part of `ServerSettings` that concerns mounts."""

    @property
    def mounts(self) -> Mapping[str, MountSettings]: ...


def iter_hosts(servers: Mapping[str, HasMounts], alias: str) -> Iterator[tuple[str, str]]:
    """Yield the servers that serve the primitives of `alias`, with the URI prefixes.

    The server itself comes first. Mounts without an alias of their own are included with their URI prefixes.
    """
    own = servers.get(alias)
    own_mounts = () if own is None else own.mounts.values()
    for inner_prefix in (
        "",
        *(_format_uri_prefix(mount) for mount in own_mounts if mount.server not in servers and mount.uri_prefix),
    ):
        for host, outer_prefix in _iter_hosts(servers, alias, ()):
            yield host, f"{outer_prefix}{inner_prefix}"


def _iter_hosts(servers: Mapping[str, HasMounts], alias: str, visited: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if alias in visited:
        return  # a cycle, which the checks report
    yield alias, ""
    for host, settings in servers.items():
        for mount in settings.mounts.values():
            if mount.server == alias:
                for outer, outer_prefix in _iter_hosts(servers, host, (*visited, alias)):
                    yield outer, f"{outer_prefix}{_format_uri_prefix(mount)}"


def _format_uri_prefix(mount: MountSettings) -> str:
    return "" if mount.uri_prefix is None else f"{mount.uri_prefix}+"
