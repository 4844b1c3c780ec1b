"""Transport-independent view of a request, as authentication needs it, and the address of its client.

Any client can send `X-Forwarded-For`. Each proxy appends the address of its own peer. With N trusted proxies only the
last N entries are reliable; earlier entries are ignored.
"""

from collections.abc import Iterable, Mapping
from http.cookies import CookieError
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from django.http import HttpRequest
from django.http.cookie import parse_cookie

from mcp_django import conf
from mcp_django.protocol.headers import Headers
from mcp_django.server.calls.call import Connection

MAX_QUERY_BYTES = 8192
"""Maximum number of query string bytes that are searched for a ticket."""
TICKET_PARAMETER = "ticket"
"""Name of the query parameter that carries a ticket."""
UNKNOWN_ADDRESS = "unknown"
"""Address where the server reports none, as on a Unix socket.

Limits treat all such clients as one.
"""
FORWARDED_HEADERS = frozenset({b"x-forwarded-for", b"forwarded", b"x-real-ip", b"via"})
"""Headers that mark a forwarded request."""
_PRIVATE_NETWORKS = [
    ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "100.64.0.0/10", "fc00::/7", "::1/128")
]
_MAX_ADDRESS_CHARS = 64
"""Maximum length of an address with a port, in characters."""


class AuthRequest(NamedTuple):
    """The parts of a request that identify its sender and its target."""

    headers: Headers
    """Headers, by name in any case; empty for a pipe."""
    peer: str | None = None
    """Address of the other side, which may be a proxy; None when the server reports none.

    `client_address` is that of the client.
    """
    method: str = "GET"
    """HTTP method; GET for the handshake of a socket and for a pipe."""
    kwargs: Mapping[str, Any] | None = None
    """Values captured by the path of the endpoint."""
    scheme: str = "http"
    """"http" or "https", as the server reports it.

    SECURE_PROXY_SSL_HEADER of the project is not applied yet.
    """
    query: str = ""
    """Query string of a socket's handshake, which may carry a ticket.

    Empty for other requests.
    """
    is_socket: bool = False
    """True for a WebSocket handshake.

    Browsers send cookies with handshakes of any page, so cookies are ignored there by default.
    """
    accepts_cookie: bool = False
    """True for a handshake whose session cookie counts.

    Its route allows it, and it has an Origin to check.
    """

    def __repr__(self) -> str:
        """Leave out the headers and the query, which carry credentials."""
        return f"<AuthRequest {self.method} from {self.peer}>"

    @classmethod
    def from_connection(cls, connection: Connection) -> "AuthRequest":
        """Return the request that opened a connection, as functions of the project see it later."""
        network = connection.network
        return cls(
            connection.headers or Headers(),
            None if network is None else network.peer,
            kwargs=connection.url_kwargs,
            scheme="http" if network is None else network.scheme,
        )

    @property
    def client_address(self) -> str | None:
        """Address of the client, behind `MCP["RATES"]["NUM_PROXIES"]` proxies; None if it is unknown.

        An IPv6 address is reduced to its /64 network.
        """
        return find_client_address(self.peer, self.headers)

    @property
    def cookies(self) -> dict[str, str]:
        """Cookies by name, parsed on access.

        Several Cookie headers are one (RFC 9113, section 8.2.3).
        """
        raw = self.headers.get("cookie")
        if raw is None:
            return {}
        try:
            return parse_cookie(raw)
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
        if not tickets:
            return None
        return tickets[0] if len(tickets) == 1 else ""

    def parse_query(self) -> list[tuple[str, str]]:
        """Return names and values of the query, within `MAX_QUERY_BYTES`."""
        try:
            return parse_qsl(self.query[:MAX_QUERY_BYTES], keep_blank_values=True, max_num_fields=100)
        except ValueError:
            return []


def select_headers(request: HttpRequest, names: Iterable[bytes]) -> Headers:
    """Return the headers of these names of a Django request."""
    values = ((name, request.META.get(f"HTTP_{name.decode().upper().replace('-', '_')}")) for name in sorted(names))
    return Headers((name, text.encode("latin-1", "replace")) for name, text in values if isinstance(text, str))


def get_client_address(peer: str | None, headers: Headers | None, proxies: int | None = None) -> str:
    """Return the client's address, for limits.

    The address is `peer`, unless `proxies` trusted proxies forward requests to the server. Default of `proxies`:
    `MCP["RATES"]["NUM_PROXIES"]`. An IPv6 address is reduced to its /64 network, because one client usually controls
    all addresses of it. An invalid address is ignored in favour of `peer`, or `UNKNOWN_ADDRESS`.

    With unconfigured proxies the result is `UNKNOWN_ADDRESS`: the peer is private, and a header shows that it forwards.
    A client outside cannot bring this about.
    """
    proxies = conf.get_settings().rates.num_proxies if proxies is None else proxies

    if proxies > 0 and headers is not None:
        # Several headers are one list (RFC 9110, section 5.3), which the server has joined.
        chain = headers.get("x-forwarded-for", "").rsplit(",", proxies)[-proxies:]
        address = _normalize(chain[0])
        if address is not None:
            return address
    elif (
        peer is not None
        and headers is not None
        and _is_private(peer)
        and not FORWARDED_HEADERS.isdisjoint(headers.wire)
    ):
        return UNKNOWN_ADDRESS
    return _normalize(peer or "") or UNKNOWN_ADDRESS


def find_client_address(peer: str | None, headers: Headers | None) -> str | None:
    """Return the client's address as `get_client_address` does, or None if it is unknown."""
    address = get_client_address(peer, headers)
    return None if address == UNKNOWN_ADDRESS else address


def _is_private(peer: str) -> bool:
    try:
        parsed = ip_address(peer.partition("%")[0])
    except ValueError:
        return True
    return any(parsed in network for network in _PRIVATE_NETWORKS)


def _normalize(text: str) -> str | None:
    text = text.strip()
    if not text or len(text) > _MAX_ADDRESS_CHARS:
        return None
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]

    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None

    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ip_network((address, 64), strict=False))

    return str(address)
