"""Display of clients, redirect targets, servers and the site to the users who decide about them.

Clients write their own names, which are therefore cleaned of misleading characters. The verified facts are shown next
to the name: the hosts of the metadata document and of the redirect.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from mcp_django import conf
from mcp_django.conf.options import ServerSettings
from mcp_django.contrib.oauth import redirects
from mcp_django.contrib.oauth.models import ClientProfile
from mcp_django.contrib.oauth.tokens.credentials import is_operator_client
from mcp_django.types import clean_line
from mcp_django.wiring import get_services

MAX_DISPLAY_NAME_CHARS = 80
"""Maximum number of displayed characters of a client's name."""
_CSP_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?", re.ASCII)
_CSP_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*", re.ASCII)
_UNNAMED = ServerSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientDisplay:
    """Client as displayed to users."""

    id: str
    name: str
    host: str
    """Host that served the metadata document; "" if the identity is not verified."""
    vouched: bool
    """True if an operator of this site created or approved the client."""

    @property
    def initial(self) -> str:
        """First letter of the name, used as an icon."""
        return next((char.upper() for char in self.name if char.isalnum()), "?")[:1]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedirectTarget:
    """Destination of an authorization response."""

    uri: str
    kind: Literal["web", "loopback", "app"]
    host: str
    """Host with port, or the scheme with a colon for an app."""

    @property
    def scheme(self) -> str:
        """Scheme of the URI."""
        return urlsplit(self.uri).scheme

    @property
    def is_local(self) -> bool:
        """Return True for a program on the user's machine, whose identity is unverifiable."""
        return self.kind != "web"

    @property
    def source(self) -> str:
        """Source expression for a Content-Security-Policy.

        This is the origin, or the scheme where an origin cannot be written (a link of an app, an IPv6 address).
        """
        parts = urlsplit(self.uri)
        if self.kind != "app" and _CSP_HOST.fullmatch(parts.netloc):
            return f"{parts.scheme}://{parts.netloc}"
        return f"{parts.scheme}:" if _CSP_SCHEME.fullmatch(parts.scheme) else ""


def get_redirect_target(uri: str) -> RedirectTarget:
    """Return the destination of a redirect URI that was validated before."""
    kind: Literal["web", "loopback", "app"] = "web"
    if redirects.is_loopback(uri):
        kind = "loopback"
    elif redirects.is_native(uri):
        kind = "app"
    return RedirectTarget(uri=uri, kind=kind, host=redirects.get_display_host(uri))


def get_redirect_hosts(uris: Iterable[str]) -> list[str]:
    """Return the distinct hosts of redirect URIs, sorted.

    Programs on the user's own machine count as one host, whatever their port.
    """
    targets = {get_redirect_target(uri) for uri in uris}
    return sorted({_("this computer") if target.kind == "loopback" else target.host for target in targets})


def build_client_display(application: Any) -> ClientDisplay:
    """Return the display of an application of the toolkit."""
    profile = getattr(application, "mcp_profile", None)
    host = ""
    if profile is not None and profile.source == ClientProfile.Source.DOCUMENT:
        host = get_ascii_host(application.client_id)
    return ClientDisplay(
        id=application.client_id,
        name=clean_line(application.name, MAX_DISPLAY_NAME_CHARS) or _("An application without a name"),
        host=host,
        vouched=_is_vouched(application, profile),
    )


def get_ascii_host(url: str) -> str:
    """Return the host of a URL in ASCII, or "".

    Letters of another alphabet can then not imitate those of a known name.
    """
    try:
        return (urlsplit(url).hostname or "").encode("idna").decode("ascii")
    except ValueError:
        return ""


def _is_vouched(application: Any, profile: ClientProfile | None) -> bool:
    if profile is not None and (profile.approved or profile.trusted):
        return True
    return is_operator_client(application)


def get_resource_name(uri: str) -> str:
    """Return the display name of the server at a canonical URL.

    Without a name, the URL without its scheme is returned.
    """
    resources = get_services().resource_registry
    alias = next((alias for alias in resources.aliases if resources.get(alias).uri == uri), None)
    return get_server_name(alias or "") or uri.partition("://")[2] or uri


def get_server_name(alias: str) -> str:
    """Return the configured name of a server, or ""."""
    server = conf.get_settings().servers.get(alias, _UNNAMED)
    return server.title or ("" if server.name == _UNNAMED.name else server.name)


def get_site_name() -> str:
    """Return the page heading: the name of the only server, or the common host."""
    names = [get_server_name(alias) for alias in conf.get_settings().servers]
    return (names[0] if len(names) == 1 else "") or urlsplit(conf.origin() or "").hostname or ""


def get_user_name(user: Any) -> str:
    """Return the name of the current user, or "" if not logged in.

    The username shows users with several accounts which one is active.
    """
    if not user.is_authenticated:
        return ""
    name, full = str(user.get_username()), str(getattr(user, "get_full_name", str)()).strip()
    return f"{full} ({name})" if full else name


def join_names(names: Iterable[str]) -> str:
    """Join names into one phrase."""
    *first, last = names
    if not first:
        return last
    return pgettext("a list of names", "%(first)s and %(last)s") % {"first": ", ".join(first), "last": last}
