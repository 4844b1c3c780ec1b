"""Validation of redirect URIs.

A redirect URI must keep the code with the client. Allowed are https URLs, http URLs of the user's own machine (RFC
8252, section 7.3), and private-use schemes named by the operator (section 7.1). Any app may claim such a scheme, so
only those of known clients are allowed by default. URIs are plain ASCII (RFC 3986). A URI that browsers and parsers
could read differently is rejected at registration, so that matching (RFC 6749, section 3.1.2.3) is reliable.

This module does not depend on Django, requests or rows.
"""

import re
from collections.abc import Collection, Iterable
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

MAX_REDIRECT_URI_CHARS = 1024
MAX_REDIRECT_URIS = 20
"""Maximum number of redirect URIs of one client. VS Code registers six."""
_ALLOWED = re.compile(r"(?:[A-Za-z0-9\-._~:/?\[\]@!$&'()+,;=]|%[0-9A-Fa-f]{2})+", re.ASCII)
_SCHEME = re.compile(r"[a-z][a-z0-9+.\-]*", re.ASCII)
_AUTHORITY = re.compile(
    r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.\-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?", re.ASCII
)
_LOOPBACK_AUTHORITY = re.compile(r"(?P<host>http://(?:127\.0\.0\.1|\[::1\]|localhost)):[0-9]{1,5}(?![^/?])", re.ASCII)
# Schemes that run, show or store content in the browser itself, or that do not belong to apps.
_RESERVED_SCHEMES = frozenset(
    {"about", "blob", "chrome", "data", "file", "filesystem", "ftp", "http", "https", "intent", "javascript"}
    | {"mailto", "resource", "tel", "vbscript", "view-source", "ws", "wss"}
)


def find_redirect_problem(uri: object, *, schemes: Collection[str] = ()) -> str | None:
    """Return the reason to reject a redirect URI at registration; None if it is valid.

    `schemes` are the allowed private-use schemes. The text may be sent to the client, because it contains nothing of
    the URI.
    """
    if not isinstance(uri, str):
        return "a redirect URI must be a string"
    if not 0 < len(uri) <= MAX_REDIRECT_URI_CHARS:
        return f"a redirect URI must have 1 to {MAX_REDIRECT_URI_CHARS} characters"
    if not is_well_formed(uri):
        return "a redirect URI must be one absolute URI of ASCII characters, without fragment, userinfo and wildcard"

    parts = urlsplit(uri)
    if any(segment in (".", "..") for segment in unquote(parts.path).split("/")):
        return "a redirect URI must not contain dot segments"
    if parts.scheme == "https" or (parts.scheme == "http" and _is_loopback_host(parts.hostname or "")):
        return None
    if parts.scheme == "http":
        return "http redirect URIs are for the user's own machine only; use https"
    if parts.scheme not in schemes or not is_private_use(parts.scheme):
        return "redirect URIs must be https, http on the user's own machine, or of an allowed scheme"
    return None if uri.partition(":")[2].strip("/") else "the redirect URI consists of a scheme only"


def is_well_formed(uri: str) -> bool:
    """Return True if all parsers read the URI in the same way.

    Requests must be checked too, because the port of a loopback URI is not compared.
    """
    if not _ALLOWED.fullmatch(uri) or not _SCHEME.fullmatch(uri.partition(":")[0]):
        return False
    try:
        parts = urlsplit(uri)
        host, _ = parts.hostname, parts.port
        if parts.netloc.startswith("["):
            ip_address(host or "")
    except ValueError:
        return False

    if parts.scheme not in ("http", "https"):
        return ":" in uri and "@" not in parts.netloc
    return bool(_AUTHORITY.fullmatch(parts.netloc)) and ".." not in parts.netloc


def is_registered(uri: str, registered_uris: Iterable[str]) -> bool:
    """Return True if a well-formed redirect URI is one of the registered ones, character by character.

    The only exception is the port of an http URI on the user's own machine, because a program gets it from the
    operating system for each request (RFC 8252, section 7.3).
    """
    comparable = remove_loopback_port(uri)
    return any(remove_loopback_port(registered) == comparable for registered in registered_uris)


def remove_loopback_port(uri: str) -> str:
    """Return an http URI of the user's own machine without its port; every other URI unchanged."""
    match = _LOOPBACK_AUTHORITY.match(uri)
    return uri if match is None else match["host"] + uri[match.end() :]


def is_private_use(scheme: str) -> bool:
    """Return True if the scheme may belong to an app (RFC 8252, section 7.1)."""
    return bool(_SCHEME.fullmatch(scheme)) and scheme not in _RESERVED_SCHEMES


def is_loopback(uri: str) -> bool:
    """Return True for a URL of the user's own machine, where any program may listen."""
    parts = urlsplit(uri)
    return parts.scheme in ("http", "https") and _is_loopback_host(parts.hostname or "")


def is_native(uri: str) -> bool:
    """Return True for an app on the user's own machine, by loopback or by its scheme.

    The identity of the app cannot be verified: every app can register such a URI.
    """
    return urlsplit(uri).scheme not in ("http", "https") or is_loopback(uri)


def get_display_host(uri: str) -> str:
    """Return the host with port for display, or the scheme of an app (`cursor:`)."""
    parts = urlsplit(uri)
    return parts.netloc if parts.scheme in ("http", "https") else f"{parts.scheme}:"


def _is_loopback_host(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    # An IPv4-mapped address is loopback in Python 3.13 and later, but not in every browser.
    return address.is_loopback and getattr(address, "ipv4_mapped", None) is None
