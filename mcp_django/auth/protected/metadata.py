"""What a protected resource says of itself to clients that have no token yet (RFC 9728)."""

from collections.abc import Mapping
from typing import Any, Final

from mcp_django.auth.resource import ProtectedResource

NOT_HERE: Final = frozenset({"offline_access"})
"""Scopes that are between the client and its authorization server (MCP, basic/authorization, refresh tokens)."""


def document(
    resource: ProtectedResource, *, name: str | None = None, extra: Mapping[str, Any] | None = None, slash: bool = False
) -> dict[str, Any]:
    """The metadata of `resource`, which has a URL (RFC 9728, section 2).

    `name` is for people. `extra` adds entries, and replaces others than the resource itself. With `slash` the resource
    is spelt with a slash at its end: clients compare it with the URL they were given, letter by letter.
    """
    found: dict[str, Any] = {
        "authorization_servers": list(resource.authorization_servers),
        "scopes_supported": [scope for scope in resource.scopes if scope not in NOT_HERE],
        "bearer_methods_supported": ["header"],
        "resource_name": name,
        **(extra or {}),
        "resource": f"{resource.uri}/" if slash else resource.uri,
    }
    # An entry without a value is left out (section 3.2).
    return {key: value for key, value in found.items() if value not in (None, [])}
