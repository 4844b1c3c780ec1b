"""Builds `OAUTH2_PROVIDER`, the setting of django-oauth-toolkit.

The values follow the needs of MCP clients and RFC 9700. Settings modules import this module, so it must not access
Django's settings or apps. Classes are given as dotted paths, and values derived from `MCP` are computed on access.
"""

from collections.abc import Callable
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

PACKAGE: Final = "mcp_django.contrib.oauth"
LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})

RFC9700_GATES: Final = (
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
"""Recommendations of RFC 9700 that are enabled, by the toolkit's names.

REDIRECT_URI_SCHEME is not included: apps on the user's machine listen on http://127.0.0.1 (RFC 8252, section 7.3).
Other http redirects are rejected elsewhere.
"""
REPLACED_CLASSES: Final = MappingProxyType(
    {
        "OAUTH2_SERVER_CLASS": f"{PACKAGE}.flows.server.AuthorizationServer",
        "OAUTH2_VALIDATOR_CLASS": f"{PACKAGE}.flows.validator.Validator",
        "SCOPES_BACKEND_CLASS": f"{PACKAGE}.tokens.scopes.DeclaredScopes",
        "ACCESS_TOKEN_GENERATOR": f"{PACKAGE}.tokens.token_format.access_token",
        "REFRESH_TOKEN_GENERATOR": f"{PACKAGE}.tokens.token_format.refresh_token",
    }
)
"""Replaced classes and functions of the toolkit, by setting.

Replacements by a project must be derived from these.
"""


def oauth2_provider_settings(*, issuer: str, **overrides: Any) -> dict[str, Any]:
    """Return the complete `OAUTH2_PROVIDER` setting.

    `issuer` is the public URL of this server, such as "https://host.example". `overrides` replace or add entries;
    system checks report those that weaken security. Lifetimes and scopes follow `MCP["OAUTH"]` and `MCP["SCOPES"]`
    unless overridden.

    Raises:
        ValueError: an invalid issuer. It must be an https URL, or http on this machine, without query, fragment and
            trailing slash (RFC 8414, section 2).
    """
    settings: dict[str, Any] = {
        "OIDC_ISS_ENDPOINT": validate_issuer(issuer),
        **REPLACED_CLASSES,
        "PKCE_REQUIRED": True,
        "ROTATE_REFRESH_TOKEN": True,
        "REFRESH_TOKEN_REUSE_PROTECTION": True,
        # Tokens are stored as hashes, so none can be returned twice. `refresh_rotation` issues siblings instead.
        "REFRESH_TOKEN_GRACE_PERIOD_SECONDS": 0,
        "ALLOW_URI_WILDCARDS": False,
        "ALLOW_LOCALHOST_LOOPBACK": True,
        "REQUEST_APPROVAL_PROMPT": "force",
        "OIDC_ENABLED": False,
        "OAUTH2_GRANT_TYPES_SUPPORTED": ["authorization_code", "refresh_token"],
        "OAUTH2_RESPONSE_TYPES_SUPPORTED": ["code"],
        "OAUTH2_TOKEN_ENDPOINT_AUTH_METHODS_SUPPORTED": ["none", "client_secret_basic", "client_secret_post"],
        # The toolkit's views stay closed: this app has its own registration view, and the toolkit's would fetch
        # documents.
        "DCR_ENABLED": False,
        "CIMD_ENABLED": False,
        **{f"COMPLIANT_BCP_RFC9700_{gate}": True for gate in RFC9700_GATES},
    }
    return _ProviderSettings({**settings, **overrides})


def validate_issuer(issuer: str) -> str:
    """Return `issuer` if it is valid.

    Raises:
        ValueError: an invalid issuer; see `oauth2_provider_settings`.
    """
    parts = urlsplit(issuer)
    is_local = parts.scheme == "http" and parts.hostname in LOOPBACK_HOSTS
    has_extra_parts = parts.query or parts.fragment or parts.username is not None or issuer.endswith(("/", "?", "#"))
    if not (parts.scheme == "https" or is_local) or not parts.hostname or has_extra_parts:
        raise ValueError(f"Invalid issuer {issuer!r}: use a URL such as https://host.example, without a trailing slash")
    return issuer


def _get_options() -> Any:
    return import_module(f"{PACKAGE}.options").get_settings()


_LAZY_SETTINGS: dict[str, Callable[[], Any]] = {
    "AUTHORIZATION_CODE_EXPIRE_SECONDS": lambda: int(_get_options().code),
    "ACCESS_TOKEN_EXPIRE_SECONDS": lambda: int(_get_options().access_token),
    "REFRESH_TOKEN_EXPIRE_SECONDS": lambda: int(_get_options().refresh_token),
    "ALLOWED_REDIRECT_URI_SCHEMES": lambda: ["https", "http", *_get_options().native_schemes],
}


class _ProviderSettings(dict[str, Any]):
    """Dict that computes missing values from `MCP` on access."""

    def __missing__(self, key: str) -> Any:
        return _LAZY_SETTINGS[key]()
