"""Callers under `MCP["AUTH"]` "tests.servers.site.people.anyone": every token is a name.

The site's own setting, "none", wants to see a loopback address; some servers have none for a client that was gone
before they looked.
"""

from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.auth.resource import ProtectedResource


async def anyone(token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
    """The principal that the token names."""
    return DjangoPrincipal(issuer="tests", subject=token)
