"""`MCP["SERVERS"][alias]["PROXIES"]`: the servers in `MCP["CLIENTS"]` that a server passes on. Each field of
`ProxySettings` is a key of an entry, in capitals.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from mcp_django.conf.readers import (
    DOTTED,
    PREFIX,
    SCHEME,
    Count,
    Flag,
    OptionalDotted,
    OptionalRate,
    OptionalSeconds,
    Scopes,
    Seconds,
    SecondsOrZero,
    WrongValue,
    one_of,
    optional,
    several,
    word,
)

OFFERS: Final = ("tools", "resources", "prompts", "completions")
ASKS: Final = ("elicitation", "sampling", "roots")
ANYBODY: Final = "any"
"""The permission that whoever may use the server has."""


def permitted(raw: Any) -> str:
    if raw != ANYBODY and not (isinstance(raw, str) and re.fullmatch(DOTTED, raw)):
        raise WrongValue("must be a permission ('app.codename'), the dotted path of a function, or 'any'")
    return str(raw)


def prefixed(raw: Any) -> str:
    if not isinstance(raw, str) or not re.fullmatch(PREFIX, raw):
        raise WrongValue("must have letters, digits, '-' and '.', with single '_' between them")
    return raw


def scheme(raw: Any) -> str:
    if not isinstance(raw, str) or not re.fullmatch(SCHEME, raw):
        raise WrongValue("must be a letter, then letters, digits, '-' and '.'")
    return raw


Globs = Annotated[tuple[str, ...], several(word)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """One entry: how a server in `MCP["CLIENTS"]` is passed on."""

    prefix: Annotated[str | None, optional(prefixed)] = None
    """Tools and prompts are called "<prefix>__<name>" here. None: the alias."""
    uri_prefix: Annotated[str | None, optional(scheme)] = None
    """URIs are "<uri_prefix>+<uri>" here. None: they stay as they are."""
    permission: Annotated[str | None, optional(permitted)] = None
    """Who may use it: a Django permission ("app.codename"), the dotted path of a function of the principal (two dots at
    least), or "any" for whoever may use the server. None: nobody but the local principal, unless SCOPES say who."""
    scopes: Scopes = ()
    """OAuth scopes that it takes."""
    allow: Globs = ("*",)
    """Tools and prompts that are passed on, by their names at the remote; * stands for anything."""
    deny: Globs = ()
    """Those of them that are not."""
    offers: Annotated[tuple[str, ...], several(one_of(OFFERS))] = OFFERS
    """What is passed on: "tools", "resources", "prompts", "completions"."""
    asks: Annotated[tuple[str, ...], several(one_of(ASKS))] = ASKS
    """What the remote may ask callers: "elicitation", "sampling", "roots". Nothing, (): it is told that nobody answers,
    and calls share one connection."""
    logs: Flag = True
    """Are its log messages passed on to callers who want any?"""
    rate: OptionalRate = None
    """How often one caller may call one of its tools."""
    timeout: OptionalSeconds = None
    """Seconds that the remote has for an answer. None: those of the entry in CLIENTS."""
    list_timeout: Seconds = 5.0
    """Seconds that a list of this server waits for one of the remote."""
    stale: SecondsOrZero = 300.0
    """Seconds that the last known lists stand in for those of a remote that cannot be reached."""
    credentials: OptionalDotted = None
    """Dotted path of a function of the Context that returns the headers which the remote is sent for this caller, or
    None where the caller has no credential there. Never pass on the caller's own token."""
    sessions: Count = 32
    """Calls of one process that may be asked something, or hear the log, at the same time: each has a connection."""
    parked: Count = 100
    """Calls of one process that may wait for callers to come back with answers."""
    parked_seconds: Seconds = 300.0
    """Seconds that each of them waits."""

    def options(self) -> Mapping[str, Any]:
        """As `Proxy` takes them."""
        return {name: getattr(self, name) for name in self.__slots__}
