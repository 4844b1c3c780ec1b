"""What tokens are made for: the endpoints as resources, each with one canonical name (RFC 8707, RFC 9728)."""

from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from typing import Final
from urllib.parse import urlsplit

PORTS: Final = {"http": 80, "https": 443}
LONGEST: Final = 2048
"""Characters of a resource's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedResource:
    """An endpoint, as the clients of its authorization servers know it."""

    server: str
    """The alias in `MCP["SERVERS"]`."""
    uri: str | None = None
    """Its canonical URL, which a token must have been made for; None where the project has not said its origin, which
    no token of an authorization server fits.
    """
    scopes: tuple[str, ...] = ()
    """What every request takes, sorted."""
    authorization_servers: tuple[str, ...] = ()
    """The issuers whose tokens it takes, the preferred one first."""
    metadata_url: str | None = None
    """Where its metadata is; None where nobody can ask for it."""

    def is_meant(self, audience: str | None) -> bool:
        """Is this resource what a token was made for? `audience` is a URL in any spelling; None is nobody's."""
        return audience is not None and self.uri is not None and canonical(audience) == self.uri


def canonical(url: object) -> str | None:
    """The one spelling of an http or https URL that can name a resource; None for what cannot.

    Scheme and host are in small letters, the port of the scheme and a slash at the end are gone. Whatever two readers
    might take for different places names nothing: user information, a query, a fragment, percent signs, backslashes,
    empty and dotted segments (RFC 8707, section 2; RFC 9728, section 1.2).
    """
    if not isinstance(url, str) or len(url) > LONGEST or not url.isascii() or not url.isprintable():
        return None
    if any(char in url for char in '?#%\\@ "<>^`{|}'):
        return None
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        return None
    if scheme not in PORTS or not host or port == 0 or parts.netloc.endswith(":"):
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
    shown = "" if port in (None, PORTS[scheme]) else f":{port}"
    return f"{scheme}://{host}{shown}{path}"
