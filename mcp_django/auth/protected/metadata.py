"""Metadata of a protected resource, for clients without a token (RFC 9728)."""

from collections.abc import Mapping
from typing import Any, Final

from mcp_django.auth.resource import ProtectedResource

AUTHORIZATION_SERVER_SCOPES: Final = frozenset({"offline_access"})
"""Scopes between the client and its authorization server.

See MCP, basic/authorization, refresh tokens.
"""


def build_metadata(
    resource: ProtectedResource,
    *,
    name: str | None = None,
    extra: Mapping[str, Any] | None = None,
    trailing_slash: bool = False,
) -> dict[str, Any]:
    """Build the metadata of `resource`, which must have a URL (RFC 9728, section 2).

    `name` is for people. `extra` adds or replaces entries, except "resource". With `trailing_slash` the URL ends with a
    slash, because clients compare it character by character with the URL they were given.
    """
    metadata: dict[str, Any] = {
        "authorization_servers": list(resource.authorization_servers),
        "scopes_supported": [scope for scope in resource.scopes if scope not in AUTHORIZATION_SERVER_SCOPES],
        "bearer_methods_supported": ["header"],
        "resource_name": name,
        **(extra or {}),
        "resource": f"{resource.uri}/" if trailing_slash else resource.uri,
    }
    # Entries without a value are omitted (section 3.2).
    return {key: value for key, value in metadata.items() if value not in (None, [])}
