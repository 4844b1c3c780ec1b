"""`OAUTH2_PROVIDER`, the setting of django-oauth-toolkit, as an MCP client needs it and RFC 9700 advises.

Imported by settings modules, so nothing here needs Django's settings or its apps: classes are named by dotted paths,
and what follows from `MCP` is looked up when it is asked for.
"""

from collections.abc import Callable
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

ROOM: Final = "mcp_django.contrib.oauth"
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})

GATES: Final = (
    "IMPLICIT_GRANT",
    "PASSWORD_GRANT",
    "PKCE_METHOD",
    "ACCESS_TOKEN_TRANSPORT",
    "AUTHZ_RESPONSE_ISS",
    "TOKEN_STORAGE",
    "REFRESH_TOKEN",
    "REDIRECT_URI_MATCHING",
    "PKCE_REQUIRED",
)
"""The advice of RFC 9700 that is followed, by the toolkit's names. Not REDIRECT_URI_SCHEME: apps on the user's machine
listen on http://127.0.0.1 (RFC 8252, section 7.3), and what else may be http is refused elsewhere."""
REPLACED: Final = MappingProxyType(
    {
        "OAUTH2_SERVER_CLASS": f"{ROOM}.flows.server.AuthorizationServer",
        "OAUTH2_VALIDATOR_CLASS": f"{ROOM}.flows.validator.Validator",
        "SCOPES_BACKEND_CLASS": f"{ROOM}.tokens.scopes.DeclaredScopes",
        "ACCESS_TOKEN_GENERATOR": f"{ROOM}.tokens.token_format.access_token",
        "REFRESH_TOKEN_GENERATOR": f"{ROOM}.tokens.token_format.refresh_token",
    }
)
"""What of the toolkit is replaced, by its settings. What a project puts there is made of these."""


def oauth2_provider_settings(*, issuer: str, **overrides: Any) -> dict[str, Any]:
    """The whole of `OAUTH2_PROVIDER`. `issuer` is the URL that clients know this server by, "https://host.example".

    `overrides` replace or add entries; system checks report those that make tokens less safe. Lifetimes and the scopes
    are not here: they follow `MCP["OAUTH"]` and `MCP["SCOPES"]`, unless `overrides` has them. Raises ValueError for an
    issuer that is no such URL: https, or http on this machine, without query, fragment and slash at its end (RFC 8414,
    section 2).
    """
    settings: dict[str, Any] = {
        "OIDC_ISS_ENDPOINT": checked_issuer(issuer),
        **REPLACED,
        "PKCE_REQUIRED": True,
        "ROTATE_REFRESH_TOKEN": True,
        "REFRESH_TOKEN_REUSE_PROTECTION": True,
        # With tokens that are stored as hashes there is none to give out twice; `rotation` makes siblings instead.
        "REFRESH_TOKEN_GRACE_PERIOD_SECONDS": 0,
        "ALLOW_URI_WILDCARDS": False,
        "ALLOW_LOCALHOST_LOOPBACK": True,
        "REQUEST_APPROVAL_PROMPT": "force",
        "OIDC_ENABLED": False,
        "OAUTH2_GRANT_TYPES_SUPPORTED": ["authorization_code", "refresh_token"],
        "OAUTH2_RESPONSE_TYPES_SUPPORTED": ["code"],
        "OAUTH2_TOKEN_ENDPOINT_AUTH_METHODS_SUPPORTED": ["none", "client_secret_basic", "client_secret_post"],
        # The views of the toolkit stay closed: registration has one of its own, and documents are fetched by it.
        "DCR_ENABLED": False,
        "CIMD_ENABLED": False,
        **{f"COMPLIANT_BCP_RFC9700_{gate}": True for gate in GATES},
    }
    return _Settings({**settings, **overrides})


def checked_issuer(issuer: str) -> str:
    """`issuer` itself. Raises ValueError; see oauth2_provider_settings."""
    parts = urlsplit(issuer)
    local = parts.scheme == "http" and parts.hostname in LOOPBACK
    odd = parts.query or parts.fragment or parts.username is not None or issuer.endswith(("/", "?", "#"))
    if not (parts.scheme == "https" or local) or not parts.hostname or odd:
        raise ValueError(
            f"The issuer is a URL such as https://host.example, without a slash at its end, not {issuer!r}"
        )
    return issuer


def _options() -> Any:
    return import_module(f"{ROOM}.options").get_settings()


_LAZY: dict[str, Callable[[], Any]] = {
    "AUTHORIZATION_CODE_EXPIRE_SECONDS": lambda: int(_options().code),
    "ACCESS_TOKEN_EXPIRE_SECONDS": lambda: int(_options().access_token),
    "REFRESH_TOKEN_EXPIRE_SECONDS": lambda: int(_options().refresh_token),
    "ALLOWED_REDIRECT_URI_SCHEMES": lambda: ["https", "http", *_options().native_schemes],
}


class _Settings(dict[str, Any]):
    """A dict that looks up in `MCP`, when it is asked, what was not given."""

    def __missing__(self, key: str) -> Any:
        return _LAZY[key]()
