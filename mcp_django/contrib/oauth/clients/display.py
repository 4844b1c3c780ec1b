"""How clients and the places they send people to are shown to those who decide about them.

What a client says about itself is written by strangers: a name is shown without what could make it look like something
else, and what the server knows by itself, the host of a document and the host of a redirect, is shown beside it.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from django.utils.translation import gettext as _

from mcp_django.contrib.oauth import redirects
from mcp_django.contrib.oauth.models import ClientProfile

LONGEST_NAME = 80
"""Characters of a client's name that are shown."""
_CSP_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?", re.ASCII)
_CSP_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client as people see it."""

    id: str
    name: str
    host: str
    """The host that its metadata document was fetched from; empty where nothing proves who it is."""
    vouched: bool
    """Did an operator of this site make or approve it?"""

    @property
    def initial(self) -> str:
        """One letter that stands for it."""
        return next((char.upper() for char in self.name if char.isalnum()), "?")[:1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where an answer is sent."""

    uri: str
    kind: Literal["web", "loopback", "app"]
    host: str
    """The host with its port; the scheme with a colon where an app opens it."""

    @property
    def scheme(self) -> str:
        """The scheme of the URI."""
        return urlsplit(self.uri).scheme

    @property
    def is_local(self) -> bool:
        """Does it lead to a program on the user's own machine, where nothing shows which one that is?"""
        return self.kind != "web"

    @property
    def source(self) -> str:
        """It as a source of a Content-Security-Policy: the origin, or the scheme where an origin cannot be written
        there (an app's link, an IPv6 address).
        """
        parts = urlsplit(self.uri)
        if self.kind != "app" and _CSP_HOST.fullmatch(parts.netloc):
            return f"{parts.scheme}://{parts.netloc}"
        return f"{parts.scheme}:" if _CSP_SCHEME.fullmatch(parts.scheme) else ""


def target_of(uri: str) -> Target:
    """The place that a redirect URI, which was checked before, leads to."""
    kind: Literal["web", "loopback", "app"] = "web"
    if redirects.is_loopback(uri):
        kind = "loopback"
    elif redirects.is_native(uri):
        kind = "app"
    return Target(uri=uri, kind=kind, host=redirects.host_of(uri))


def targets_of(uris: Iterable[str]) -> list[str]:
    """The different hosts of several redirect URIs, sorted; what listens on the user's own machine is one, whatever its
    port.
    """
    found = {target_of(uri) for uri in uris}
    return sorted({_("this computer") if target.kind == "loopback" else target.host for target in found})


def client_of(application: Any) -> Client:
    """A client as people see it. `application` is the toolkit's."""
    profile = getattr(application, "mcp_profile", None)
    host = ""
    if profile is not None and profile.source == ClientProfile.Source.DOCUMENT:
        host = ascii_host(application.client_id)
    return Client(
        id=application.client_id,
        name=clean_name(application.name) or _("An application without a name"),
        host=host,
        vouched=_is_vouched(application, profile),
    )


def clean_name(name: str) -> str:
    """A name in one line, without characters that cannot be seen or that turn the direction of the text."""
    shown = "".join(" " if char.isspace() else char for char in name if _is_shown(char))
    shown = " ".join(shown.split())
    return shown if len(shown) <= LONGEST_NAME else shown[: LONGEST_NAME - 1].rstrip() + "…"


def ascii_host(url: str) -> str:
    """The host of a URL in ASCII, so that letters of another alphabet cannot pass for those of a known name. Empty if
    there is none.
    """
    try:
        return (urlsplit(url).hostname or "").encode("idna").decode("ascii")
    except ValueError:
        return ""


def _is_shown(char: str) -> bool:
    return char.isspace() or unicodedata.category(char)[0] != "C"


def _is_vouched(application: Any, profile: ClientProfile | None) -> bool:
    if profile is not None and (profile.approved or profile.trusted):
        return True
    if application.registration_source != "manual":
        return False
    # The toolkit has pages on which every user may make an application: those are their owner's word, nobody else's.
    return application.user is None or bool(application.user.is_staff)
