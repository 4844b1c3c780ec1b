"""Metadata of a protected resource, for clients without a token (RFC 9728)."""

from collections.abc import Mapping
from typing import Any, Final

from mcp_django.auth.resource import ProtectedResource

NOT_HERE: Final = frozenset({"offline_access"})
"""Scopes between the client and its authorization server.

See MCP, basic/authorization, refresh tokens.
"""


def document(
    resource: ProtectedResource, *, name: str | None = None, extra: Mapping[str, Any] | None = None, slash: bool = False
) -> dict[str, Any]:
    """Build the metadata of `resource`, which must have a URL (RFC 9728, section 2).

    `name` is for people. `extra` adds or replaces entries, except "resource". With `trailing_slash` the URL ends with a
    slash, because clients compare it character by character with the URL they were given.
    """
    found: dict[str, Any] = {
        "authorization_servers": list(resource.authorization_servers),
        "scopes_supported": [scope for scope in resource.scopes if scope not in NOT_HERE],
        "bearer_methods_supported": ["header"],
        "resource_name": name,
        **(extra or {}),
        "resource": f"{resource.uri}/" if slash else resource.uri,
    }
    # Entries without a value are omitted (section 3.2).
    return {key: value for key, value in found.items() if value not in (None, [])}
