"""Client address of a request, with trusted proxies taken into account.

Any client can send `X-Forwarded-For`. Each proxy appends the address of its own peer. With N trusted proxies only the
last N entries are reliable; earlier entries are ignored.
"""

from ipaddress import IPv6Address, ip_address, ip_network

from mcp_django import conf
from mcp_django.protocol.headers import Headers

UNKNOWN = "unknown"
"""Address where the server reports none, as on a Unix socket.

Limits treat all such clients as one.
"""
FORWARDED = frozenset({b"x-forwarded-for", b"forwarded", b"x-real-ip", b"via"})
"""Headers that mark a forwarded request."""
_INSIDE = [
    ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "100.64.0.0/10", "fc00::/7", "::1/128")
]
_LONGEST = 64
"""Maximum length of an address with a port, in characters."""


def client_address(peer: str | None, headers: Headers | None, proxies: int | None = None) -> str:
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
        chain = headers.get(b"x-forwarded-for", b"").decode("latin-1").rsplit(",", proxies)[-proxies:]
        found = _normal(chain[0])
        if found is not None:
            return found
    elif peer is not None and headers is not None and _is_inside(peer) and not FORWARDED.isdisjoint(headers):
        return UNKNOWN
    return _normal(peer or "") or UNKNOWN


def _is_inside(peer: str) -> bool:
    try:
        found = ip_address(peer.partition("%")[0])
    except ValueError:
        return True
    return any(found in network for network in _INSIDE)


def _normal(text: str) -> str | None:
    text = text.strip()
    if not text or len(text) > _LONGEST:
        return None
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]

    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None

    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ip_network((found, 64), strict=False))

    return str(found)
