"""Origins that an app loads from: the Content-Security-Policy that its host builds.

Hosts permit nothing else: no requests, and only inline scripts and styles, and images in data: URLs.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from django.conf import settings as django_settings
from django.templatetags.static import PrefixNode

from mcp_django.extensions.errors import DeclarationError

STATIC: Literal["static"] = "static"
"""Value of `csp` for apps that load static files from the origin of `STATIC_URL`."""
_HOST = r"(\*\.)?([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]*[a-z0-9])?(:\d{1,5})?"
_ORIGIN = re.compile(rf"https://{_HOST}")
_SOCKET_ORIGIN = re.compile(rf"wss://{_HOST}")
_LOCAL_ORIGIN = re.compile(r"(http|ws)://(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class CSP:
    """Origins that an app may use, such as `https://maps.example.com`."""

    connect_domains: Sequence[str] = ()
    """Origins of requests and sockets."""
    resource_domains: Sequence[str] = ()
    """Origins of scripts, styles, images, fonts and media."""
    frame_domains: Sequence[str] = ()
    """Origins of frames."""
    base_uri_domains: Sequence[str] = ()
    """Origins of `<base>`."""
    static: bool = False
    """True to add the origin of `STATIC_URL` to `resource_domains`."""

    def to_wire(self) -> dict[str, Any]:
        """Return the `csp` object of a resource, without empty members. Raises DeclarationError."""
        resource_domains = list(self.resource_domains)
        if self.static:
            resource_domains.append(get_static_origin())
        members = {
            "connectDomains": list(self.connect_domains),
            "resourceDomains": list(dict.fromkeys(resource_domains)),
            "frameDomains": list(self.frame_domains),
            "baseUriDomains": list(self.base_uri_domains),
        }
        return {name: domains for name, domains in members.items() if domains}

    def iter_invalid_origins(self, *, allow_local: bool = False) -> Iterator[tuple[str, str]]:
        """Yield the field and the value of each invalid origin.

        `allow_local` permits `http://localhost` with a port, for development.
        """
        for each in fields(self):
            origins = getattr(self, each.name)
            for origin in () if isinstance(origins, bool) else origins:
                is_valid = isinstance(origin, str) and (
                    _ORIGIN.fullmatch(origin)
                    or (each.name == "connect_domains" and _SOCKET_ORIGIN.fullmatch(origin))
                    or (allow_local and _LOCAL_ORIGIN.fullmatch(origin))
                )
                if not is_valid:
                    yield each.name, str(origin)


CSPOption: TypeAlias = CSP | Mapping[str, Sequence[str]] | Literal["static"] | None


def parse_csp(where: str, csp: Any) -> CSP:
    """Convert the option `csp` of a declaration. Raises DeclarationError for an invalid one."""
    if csp is None:
        csp = CSP()
    elif csp == STATIC:
        csp = CSP(static=True)
    elif isinstance(csp, Mapping):
        known = {each.name for each in fields(CSP)}
        if unknown := sorted(set(csp) - known):
            raise DeclarationError(f"{where}: csp has no {unknown[0]!r}; use {', '.join(sorted(known))}")
        csp = CSP(**csp)
    if not isinstance(csp, CSP):
        raise DeclarationError(f'{where}: csp={csp!r} is invalid; use "static", a dict or CSP(...)')

    for each in fields(CSP):
        if each.name != STATIC and isinstance(getattr(csp, each.name), str):
            raise DeclarationError(f"{where}: csp {each.name} is a list; write [{getattr(csp, each.name)!r}]")
    for name, origin in csp.iter_invalid_origins(allow_local=django_settings.DEBUG):
        raise DeclarationError(
            f"{where}: csp {name}: {origin!r} is no origin; write https:// and a host, without a path"
        )
    try:
        csp.to_wire()
    except DeclarationError as problem:
        raise DeclarationError(f"{where}: {problem}") from None
    return csp


def get_static_origin() -> str:
    """Return the origin of the static files. Raises DeclarationError if they have none of their own."""
    parts = urlsplit(PrefixNode.handle_simple("STATIC_URL"))
    if not parts.netloc:
        raise DeclarationError(
            'csp="static" requires a STATIC_URL with an origin, such as https://static.example.com/; an app has no '
            "other base URL. Omit csp to insert the files into the page"
        )
    return f"{parts.scheme or 'https'}://{parts.netloc}"
