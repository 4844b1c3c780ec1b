"""What authentication looks at of a request, whichever way it came in."""

from collections.abc import Mapping
from http.cookies import CookieError
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from django.http.cookie import parse_cookie

from mcp_django.protocol.headers import Headers

LONGEST_QUERY = 8192
"""Bytes of a query string that are looked through for a ticket."""
TICKET = "ticket"
"""The parameter of a socket's URL that brings one."""


class AuthRequest(NamedTuple):
    """A request as far as it says who sends it, and to which resource."""

    headers: Headers
    peer: str | None = None
    """The client's address; None when the server does not say."""
    method: str = "GET"
    """The HTTP method; what opens a socket or stands for a pipe is a GET."""
    kwargs: Mapping[str, Any] | None = None
    """What the path of the endpoint captured."""
    scheme: str = "http"
    """"http" or "https", as the server says; the project's SECURE_PROXY_SSL_HEADER is not applied yet."""
    query: bytes = b""
    """The query string of a socket's handshake, which may bring a ticket; empty for everything else."""
    is_socket: bool = False
    """Is it a handshake? Browsers send cookies with those of any page, so that none counts there."""

    @property
    def cookies(self) -> dict[str, str]:
        """By name, read when they are asked for. Several headers are one (RFC 9113, section 8.2.3)."""
        raw = self.headers.get(b"cookie")
        if raw is None:
            return {}
        try:
            return parse_cookie(raw.decode("latin-1"))
        except CookieError:
            return {}

    @property
    def ticket(self) -> str | None:
        """The ticket in the query; None without one. A query with two has none that could be trusted, so it is ""."""
        if not self.query:
            return None
        found = [value for name, value in self.parameters() if name == TICKET]
        return None if not found else found[0] if len(found) == 1 else ""

    def parameters(self) -> list[tuple[str, str]]:
        """The names and values of the query, as far as it is looked at."""
        text = self.query[:LONGEST_QUERY].decode("latin-1")
        try:
            return parse_qsl(text, keep_blank_values=True, max_num_fields=100)
        except ValueError:
            return []
