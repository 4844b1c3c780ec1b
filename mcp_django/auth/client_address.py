"""Client address of a request, with trusted proxies taken into account.

Any client can send `X-Forwarded-For`. Each proxy appends the address of its own peer. With N trusted proxies only the
last N entries are reliable; earlier entries are ignored.
"""

from ipaddress import IPv6Address, ip_address, ip_network

from mcp_django import conf
from mcp_django.protocol.headers import Headers

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
        chain = headers.get(b"x-forwarded-for", b"").decode("latin-1").rsplit(",", proxies)[-proxies:]
        address = _normalize(chain[0])
        if address is not None:
            return address
    elif peer is not None and headers is not None and _is_private(peer) and not FORWARDED_HEADERS.isdisjoint(headers):
        return UNKNOWN_ADDRESS
    return _normalize(peer or "") or UNKNOWN_ADDRESS


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
