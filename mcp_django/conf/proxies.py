"""Settings of `PROXIES` of a server: proxied entries of `MCP["CLIENTS"]`.

They are in `MCP["SERVERS"][alias]["PROXIES"]`. Each field of `ProxySettings` is a key of an entry, in capitals.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from mcp_django.conf import readers

FEATURES: Final = ("tools", "resources", "prompts", "completions")
CLIENT_FEATURES: Final = ("elicitation", "sampling", "roots", "apps")
ANY_CALLER: Final = "any"
"""Permission of every caller who may use the server."""


def permission_or_any(raw: Any) -> str:
    if raw != ANY_CALLER and not (isinstance(raw, str) and re.fullmatch(readers.DOTTED_PATH_PATTERN, raw)):
        raise readers.WrongValue("must be a permission ('app.codename'), the dotted path of a function, or 'any'")
    return str(raw)


def name_prefix(raw: Any) -> str:
    if not isinstance(raw, str) or not re.fullmatch(readers.NAME_PREFIX_PATTERN, raw):
        raise readers.WrongValue("must have letters, digits, '-' and '.', with single '_' between them")
    return raw


scheme = readers.matching(readers.SCHEME_PREFIX_PATTERN, "a letter, then letters, digits, '-' and '.'")
Globs = Annotated[tuple[str, ...], readers.tuple_of(readers.word)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """An entry of `PROXIES`: options for proxying a server in `MCP["CLIENTS"]`."""

    prefix: Annotated[str | None, readers.optional(name_prefix)] = None
    """Prefix of tools and prompts: "<prefix>__<name>". None: the alias."""
    uri_prefix: Annotated[str | None, readers.optional(scheme)] = None
    """Prefix of URIs: "<uri_prefix>+<uri>". None: unchanged."""
    permission: Annotated[str | None, readers.optional(permission_or_any)] = None
    """Required permission.

    A Django permission ("app.codename"), the dotted path of a function, or "any". The function takes the principal; its
    path has at least two dots. "any" allows every caller who may use the server. None: only the local principal, unless
    SCOPES are set.
    """
    scopes: readers.Scopes = ()
    """Required OAuth scopes."""
    allow: Globs = ("*",)
    """Names of the proxied tools and prompts at the remote server; * matches anything."""
    deny: Globs = ()
    """Names excluded from ALLOW."""
    features: Annotated[tuple[str, ...], readers.tuple_of(readers.one_of(FEATURES))] = FEATURES
    """Proxied features: "tools", "resources", "prompts", "completions"."""
    client_features: Annotated[tuple[str, ...], readers.tuple_of(readers.one_of(CLIENT_FEATURES))] = CLIENT_FEATURES
    """Features of callers that the remote server may use: requests to them, and their apps.

    Allowed are "elicitation", "sampling", "roots" and "apps". Empty: the remote server gets no such capabilities, and
    calls share one connection.
    """
    logs: readers.Flag = True
    """Forward log messages of the remote server to callers that request them."""
    rate: readers.OptionalRate = None
    """Rate limit for each caller and tool."""
    timeout: readers.OptionalSeconds = None
    """Timeout of the remote server in seconds. None: that of the entry in CLIENTS."""
    list_timeout: readers.Seconds = 5.0
    """Seconds that a list of this server waits for one of the remote server."""
    stale_ttl: readers.SecondsOrZero = 300.0
    """Seconds for which cached lists are served during an outage of the remote server."""
    credentials: readers.OptionalDotted = None
    """Dotted path of a function of the Context that returns headers to send.

    It returns None where the caller has no credential there. Never forward the caller's own token.
    """
    sessions: readers.Count = 32
    """Maximum number of concurrent calls of one process with a dedicated connection.

    Calls that may receive requests or log messages need one.
    """
    suspended_calls: readers.Count = 100
    """Maximum number of suspended calls of one process.

    They wait for callers to return with responses.
    """
    suspended_call_ttl: readers.Seconds = 300.0
    """Maximum wait of a suspended call in seconds."""

    def options(self) -> Mapping[str, Any]:
        """Return the options as keyword arguments of `Proxy`."""
        return {name: getattr(self, name) for name in self.__slots__}
