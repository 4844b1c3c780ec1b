"""Cursors: where a list goes on, sealed, so that a client can only hand them back (server/utilities/pagination)."""

from mcp_django.protocol.errors import InvalidParams
from mcp_django.server.calls.call import Call

FOREVER = 10 * 365 * 86400.0
"""Cursors do not expire: they hold a name, which stays true."""


def position(call: Call, kind: str, owner: str) -> str | None:
    """The key after which the page that the client asks for begins; None for the first page. `owner` is whose list it
    is, "" for one that is everybody's. Raises InvalidParams.
    """
    params = call.params
    if "cursor" not in params:
        return None
    after = call.server.cursor_sealer.open(params["cursor"], _binding(call, kind, owner)).get("after")
    if not isinstance(after, str):
        raise InvalidParams("Invalid cursor")
    return after


def cursor(call: Call, kind: str, owner: str, last: str) -> str:
    """The cursor of the page that follows the key `last` in the list of `owner`."""
    return call.server.cursor_sealer.seal({"after": last}, _binding(call, kind, owner), ttl=FOREVER)


def _binding(call: Call, kind: str, owner: str) -> bytes:
    return f"{call.server.alias}\0{kind}\0{owner}".encode()
