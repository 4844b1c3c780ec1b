"""Cursors: sealed list positions, opaque to clients (server/utilities/pagination)."""

from mcp_django.protocol.errors import InvalidParams
from mcp_django.server.calls.call import Call

CURSOR_TTL_SECONDS = 10 * 365 * 86400.0
"""Lifetime of cursors in seconds.

They hold a name, which stays valid, so they practically never expire.
"""


def read_cursor(call: Call, kind: str, owner: str) -> str | None:
    """Return the key that precedes the requested page, or None for the first page.

    `owner` is the key of the list's owner, or "" for a list shared by all callers. Raises InvalidParams.
    """
    params = call.params
    if "cursor" not in params:
        return None
    after = call.server.cursor_sealer.unseal(params["cursor"], _binding(call, kind, owner)).get("after")
    if not isinstance(after, str):
        raise InvalidParams("Invalid cursor")
    return after


def create_cursor(call: Call, kind: str, owner: str, last_key: str) -> str:
    """Create the cursor of the page that follows `last_key` in the list of `owner`."""
    return call.server.cursor_sealer.seal({"after": last_key}, _binding(call, kind, owner), ttl=CURSOR_TTL_SECONDS)


def _binding(call: Call, kind: str, owner: str) -> bytes:
    return f"{call.server.alias}\0{kind}\0{owner}".encode()
