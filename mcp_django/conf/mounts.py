"""Settings of `MOUNTS` of a server: mounted servers and toolsets, by prefix.

They are in `MCP["SERVERS"][alias]["MOUNTS"]`. Each field of `MountSettings` is a key of an entry, in capitals.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Annotated, Any, Protocol

from mcp_django.conf.readers import ALIAS, DOTTED, SCHEME, WrongValue, closest, optional, scope_names, several, word

WHAT = "an alias of SERVERS, or the dotted path of a server or toolset"


@dataclass(frozen=True, slots=True, kw_only=True)
class MountSettings:
    """An entry of `MOUNTS`. A string instead of an entry is its WHAT."""

    what: str
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


def mounts(raw: Any) -> Mapping[str, MountSettings]:
    if not isinstance(raw, Mapping) or not all(isinstance(prefix, str) for prefix in raw):
        raise WrongValue(f"must be a dict from prefixes to {WHAT}, or to dicts with it")
    return MappingProxyType({prefix: _mount(prefix, entry) for prefix, entry in raw.items()})


def _mount(prefix: str, entry: Any) -> MountSettings:
    given = entry if isinstance(entry, Mapping) else {"WHAT": entry}
    known = {field.name.upper(): field.name for field in fields(MountSettings)}
    for key in given:
        if key not in known:
            raise WrongValue(f"has the unknown option {key!r} under {prefix!r}", closest(key, known))
    if "WHAT" not in given:
        raise WrongValue(f"needs a WHAT under {prefix!r}: {WHAT}")
    try:
        return MountSettings(**{known[key]: _READERS[key](value) for key, value in given.items()})
    except WrongValue as problem:
        raise WrongValue(f"{problem.message} under {prefix!r}", problem.suggestion) from None


def _what(raw: Any) -> str:
    if not isinstance(raw, str) or not (re.fullmatch(ALIAS, raw) or re.fullmatch(DOTTED, raw)):
        raise WrongValue(f"must name {WHAT}")
    return raw


def _uri_prefix(raw: Any) -> str:
    if not isinstance(raw, str) or not re.fullmatch(SCHEME, raw):
        raise WrongValue("must have a valid URI_PREFIX: a letter, then letters, digits, - and .")
    return raw


def _permission(raw: Any) -> tuple[str, ...]:
    found: tuple[str, ...] = several(word)([raw] if isinstance(raw, str) else raw)
    return found


_READERS = {"WHAT": _what, "URI_PREFIX": optional(_uri_prefix), "PERMISSION": _permission, "SCOPES": scope_names}
Mounts = Annotated[Mapping[str, MountSettings], mounts]


class Mounting(Protocol):
    """The part of `ServerSettings` that concerns mounts."""

    @property
    def mounts(self) -> Mapping[str, MountSettings]: ...


def reach(servers: Mapping[str, Mounting], alias: str) -> Iterator[tuple[str, str]]:
    """Yield the servers that serve the primitives of `alias`, with the URI prefixes.

    The server itself comes first. Mounts without an alias of their own are included with their URI prefixes.
    """
    own = servers.get(alias)
    mine = () if own is None else own.mounts.values()
    for begins in ("", *(_begins(mount) for mount in mine if mount.what not in servers and mount.uri_prefix)):
        for host, before in _hosts(servers, alias, ()):
            yield host, f"{before}{begins}"


def _hosts(servers: Mapping[str, Mounting], alias: str, within: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if alias in within:
        return  # a cycle, which the checks report
    yield alias, ""
    for host, settings in servers.items():
        for mount in settings.mounts.values():
            if mount.what == alias:
                for outer, before in _hosts(servers, host, (*within, alias)):
                    yield outer, f"{before}{_begins(mount)}"


def _begins(mount: MountSettings) -> str:
    return "" if mount.uri_prefix is None else f"{mount.uri_prefix}+"
