"""Protected resources: the endpoints that tokens are issued for.

Each has one canonical URL (RFC 8707, RFC 9728).
"""

from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from typing import Final
from urllib.parse import urlsplit

DEFAULT_PORTS: Final = {"http": 80, "https": 443}
MAX_URI_CHARS: Final = 2048
"""Maximum length of a resource URL, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedResource:
    """An endpoint as its OAuth clients see it."""

    server: str
    """Alias in `MCP["SERVERS"]`."""
    uri: str | None = None
    """Canonical URL, which tokens must name as audience.

    None where the project has configured no origin; tokens of authorization servers are then rejected.
    """
    scopes: tuple[str, ...] = ()
    """Scopes that every request requires, sorted."""
    authorization_servers: tuple[str, ...] = ()
    """Issuers whose tokens are accepted, the preferred one first."""
    metadata_url: str | None = None
    """URL of the metadata; None where none is served."""

    def matches_audience(self, audience: str | None) -> bool:
        """Return True if the audience of a token names this resource.

        `audience` is a URL in any spelling; None matches no resource.
        """
        return audience is not None and self.uri is not None and canonicalize_url(audience) == self.uri


def canonicalize_url(url: object) -> str | None:
    """Return the canonical spelling of an http or https resource URL, or None.

    Scheme and host are in lower case. The default port of the scheme and a trailing slash are removed. URLs that two
    parsers could read differently are invalid: user information, a query, a fragment, percent signs, backslashes, empty
    and dotted segments (RFC 8707, section 2; RFC 9728, section 1.2).
    """
    if not isinstance(url, str) or len(url) > MAX_URI_CHARS or not url.isascii() or not url.isprintable():
        return None
    if any(char in url for char in '?#%\\@ "<>^`{|}'):
        return None

    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        return None
    if scheme not in DEFAULT_PORTS or not host or port == 0 or parts.netloc.endswith(":"):
        return None

    if ":" in host:
        try:
            host = f"[{IPv6Address(host)}]"
        except AddressValueError:
            return None
    elif not all(char.isalnum() or char in "-._" for char in host) or host.startswith(".") or ".." in host:
        return None

    path = parts.path.removesuffix("/")
    segments = path.split("/")[1:]
    if any(segment in ("", ".", "..") for segment in segments):
        return None
    port_suffix = "" if port in (None, DEFAULT_PORTS[scheme]) else f":{port}"
    return f"{scheme}://{host}{port_suffix}{path}"
