"""Transport-independent view of a request, as authentication needs it."""

from collections.abc import Mapping
from http.cookies import CookieError
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from django.http.cookie import parse_cookie

from mcp_django.protocol.headers import Headers

MAX_QUERY_BYTES = 8192
"""Maximum number of query string bytes that are searched for a ticket."""
TICKET_PARAMETER = "ticket"
"""Name of the query parameter that carries a ticket."""


class AuthRequest(NamedTuple):
    """The parts of a request that identify its sender and its target."""

    headers: Headers
    peer: str | None = None
    """Address of the client; None when the server reports none."""
    method: str = "GET"
    """HTTP method; GET for the handshake of a socket and for a pipe."""
    kwargs: Mapping[str, Any] | None = None
    """Values captured by the path of the endpoint."""
    scheme: str = "http"
    """"http" or "https", as the server reports it.

    SECURE_PROXY_SSL_HEADER of the project is not applied yet.
    """
    query: bytes = b""
    """Query string of a socket's handshake, which may carry a ticket.

    Empty for other requests.
    """
    is_socket: bool = False
    """True for a WebSocket handshake.

    Browsers send cookies with handshakes of any page, so cookies are ignored there.
    """

    @property
    def cookies(self) -> dict[str, str]:
        """Cookies by name, parsed on access.

        Several Cookie headers are one (RFC 9113, section 8.2.3).
        """
        raw = self.headers.get(b"cookie")
        if raw is None:
            return {}
        try:
            return parse_cookie(raw.decode("latin-1"))
        except CookieError:
            return {}

    @property
    def ticket(self) -> str | None:
        """Ticket in the query; None without one.

        "" with more than one, because none of them can be trusted.
        """
        if not self.query:
            return None
        tickets = [value for name, value in self.parse_query() if name == TICKET_PARAMETER]
        return None if not tickets else tickets[0] if len(tickets) == 1 else ""

    def parse_query(self) -> list[tuple[str, str]]:
        """Return names and values of the query, within `MAX_QUERY_BYTES`."""
        text = self.query[:MAX_QUERY_BYTES].decode("latin-1")
        try:
            return parse_qsl(text, keep_blank_values=True, max_num_fields=100)
        except ValueError:
            return []
