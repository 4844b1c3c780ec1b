"""Where the answer to an authorization request may be sent.

Only to a place that leaves the code with the client: an https URL, an http URL of the user's own machine (RFC 8252,
section 7.3), or a private-use scheme that the operator named (section 7.1; any app may claim one, so none is taken by
default but those of known clients). A URI is one of plain ASCII (RFC 3986): what a browser and a parser could read
differently is refused when it is registered, so that matching (RFC 6749, section 3.1.2.3) compares what it seems to.

Nothing here knows Django, requests or rows.
"""

import re
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

MOST_BYTES = 1024
MOST_URIS = 20
"""Redirect URIs of one client. VS Code registers six."""
_ALLOWED = re.compile(r"(?:[A-Za-z0-9\-._~:/?\[\]@!$&'()+,;=]|%[0-9A-Fa-f]{2})+", re.ASCII)
_SCHEME = re.compile(r"[a-z][a-z0-9+.\-]*", re.ASCII)
_AUTHORITY = re.compile(
    r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.\-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?", re.ASCII
)
# Schemes that run, show or store something in the browser itself, or are no app's.
_NEVER_PRIVATE = frozenset(
    {"about", "blob", "chrome", "data", "file", "filesystem", "ftp", "http", "https", "intent", "javascript"}
    | {"mailto", "resource", "tel", "vbscript", "view-source", "ws", "wss"}
)


def problem_with(uri: object, *, schemes: Collection[str] = ()) -> str | None:
    """Say what is wrong with a redirect URI that somebody wants to register; None when nothing is.

    `schemes` are the private-use schemes that are taken. The text may be sent to the client: it holds nothing of the
    URI.
    """
    if not isinstance(uri, str):
        return "a redirect URI is a string"
    if not 0 < len(uri) <= MOST_BYTES:
        return f"a redirect URI has 1 to {MOST_BYTES} characters"
    if not is_well_formed(uri):
        return "a redirect URI is one absolute URI of ASCII characters, without fragment, userinfo and wildcard"
    parts = urlsplit(uri)
    if any(segment in (".", "..") for segment in unquote(parts.path).split("/")):
        return "a redirect URI has no dot segments"
    if parts.scheme == "https" or (parts.scheme == "http" and _is_own_machine(parts.hostname or "")):
        return None
    if parts.scheme == "http":
        return "http redirect URIs are for the user's own machine only; use https"
    if parts.scheme not in schemes or not is_private_use(parts.scheme):
        return "redirect URIs are https, http on the user's own machine, or of a scheme that is allowed here"
    return None if uri.partition(":")[2].strip("/") else "the redirect URI is nothing but a scheme"


def is_well_formed(uri: str) -> bool:
    """Does every reader of the URI see the same in it? Also to be asked about the one in a request, whose port on the
    own machine is not compared.
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


def is_private_use(scheme: str) -> bool:
    """Is this the scheme of an app, as far as can be told (RFC 8252, section 7.1)?"""
    return bool(_SCHEME.fullmatch(scheme)) and scheme not in _NEVER_PRIVATE


def is_loopback(uri: str) -> bool:
    """Does the URI lead to the user's own machine over the network, where any program may listen?"""
    parts = urlsplit(uri)
    return parts.scheme in ("http", "https") and _is_own_machine(parts.hostname or "")


def is_native(uri: str) -> bool:
    """Does the URI lead to an app on the user's own machine, over loopback or by its scheme?

    Nothing about such a URI shows who is there: every app can register for it.
    """
    return urlsplit(uri).scheme not in ("http", "https") or is_loopback(uri)


def host_of(uri: str) -> str:
    """What to show people of a redirect URI: the host with its port, or the scheme of an app (`cursor:`)."""
    parts = urlsplit(uri)
    return parts.netloc if parts.scheme in ("http", "https") else f"{parts.scheme}:"


def _is_own_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        found = ip_address(host)
    except ValueError:
        return False
    # What is mapped is loopback to Python from 3.13 on, and not to every browser.
    return found.is_loopback and getattr(found, "ipv4_mapped", None) is None
