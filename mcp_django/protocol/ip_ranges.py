"""IP address ranges: public addresses, and private addresses of the own network.

The ranges are those of the IANA special-purpose registries (RFC 6890 and its updates, RFC 6052 for NAT64, RFC 3056 for
6to4, RFC 4380 for Teredo, RFC 2765 for IPv4-translated addresses, RFC 5214 for ISATAP).
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address

_NAT64 = IPv6Network("64:ff9b::/96")
_6TO4 = IPv6Network("2002::/16")
_TRANSLATED = IPv6Network("::ffff:0:0:0/96")
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})
# Not global, even if the tables of the running Python version differ.
_SPECIAL: tuple[IPv4Network | IPv6Network, ...] = (
    *map(IPv4Network, ("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15")),
    *map(IPv6Network, ("::/96", "64:ff9b:1::/48", "100::/64", "2001::/32", "5f00::/16", "fec0::/10")),
)
_PRIVATE: tuple[IPv4Network | IPv6Network, ...] = (
    *map(IPv4Network, ("10.0.0.0/8", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")),
    *map(IPv6Network, ("::1/128", "fc00::/7")),
)
# Metadata services of clouds, which reveal credentials. Their other addresses are link-local.
_METADATA = IPv6Network("fd00:ec2::/32")


def is_public(text: str) -> bool:
    """Return True for an address of the internet, including translated IPv4 addresses."""
    address = _read(text)
    return address is not None and _is_public(address)


def is_private(text: str) -> bool:
    """Return True for an address of the own network or machine.

    Excludes link-local addresses and metadata services of clouds.
    """
    address = _read(text)
    if isinstance(address, IPv6Address):
        address = _inner(address) or address
    return address is not None and any(_in(address, net) for net in _PRIVATE) and not _in(address, _METADATA)


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address):
        inner = _inner(address)
        if inner is not None:
            return _is_public(inner)
    if address.is_multicast or address.is_reserved or address.is_unspecified or not address.is_global:
        return False
    return not any(_in(address, net) for net in _SPECIAL)


def _inner(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address translates to, or None."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    number = int(address)
    if address in _NAT64 or address in _TRANSLATED or number >> 32 & 0xFFFFFFFF in _ISATAP:
        return IPv4Address(number & 0xFFFFFFFF)
    return address.sixtofour if address in _6TO4 else None


def _in(address: Address, net: IPv4Network | IPv6Network) -> bool:
    return address.version == net.version and address in net


def _read(text: str) -> Address | None:
    try:
        # An address with a zone is valid on one link only.
        return None if "%" in text else ip_address(text)
    except ValueError:
        return None
