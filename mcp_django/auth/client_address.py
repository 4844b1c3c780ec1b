"""From which address a request comes, where proxies stand in between.

`X-Forwarded-For` is a text that any client can send. Each proxy adds at its end whom it was asked by, so that as many
entries as there are proxies of one's own, counted from the end, are true, and nothing before them is looked at.
"""

from ipaddress import IPv6Address, ip_address, ip_network

from mcp_django import conf
from mcp_django.protocol.headers import Headers

UNKNOWN = "unknown"
"""The address of those whose server names none, as on a Unix socket: they are one for limits."""
FORWARDED = frozenset({b"x-forwarded-for", b"forwarded", b"x-real-ip", b"via"})
"""Headers by which a request says that it was passed on."""
_INSIDE = [
    ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "100.64.0.0/10", "fc00::/7", "::1/128")
]
_LONGEST = 64
"""Characters of what may be an address with a port."""


def client_address(peer: str | None, headers: Headers | None, proxies: int | None = None) -> str:
    """The client's address, for limits: `peer` unless `proxies` of one's own stand in front of the server; None stands
    for what `MCP["RATES"]["NUM_PROXIES"]` says.

    Where proxies stand that the settings do not know, the address is UNKNOWN: the peer is inside, and a header says
    that it only passes on. From outside nobody can bring that about. An IPv6 address is its network of 64 bits, because
    whoever has one of these has all of them. What is no address counts for nothing: then `peer` stands, or UNKNOWN.
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
