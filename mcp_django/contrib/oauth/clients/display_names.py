"""What people call the servers of this project, the site that they are on, and themselves."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from django.utils.translation import pgettext

from mcp_django import conf
from mcp_django.conf.options import ServerSettings
from mcp_django.wiring import resources

_UNNAMED = ServerSettings()


def resource_name(uri: str) -> str:
    """What people call the server at a canonical URL; the URL, without its scheme, where it has no name."""
    alias = next((alias for alias in resources().aliases if resources().of(alias).uri == uri), None)
    return server_name(alias or "") or uri.partition("://")[2] or uri


def server_name(alias: str) -> str:
    """What the settings call the server of an alias; empty where they do not."""
    server = conf.get_settings().servers.get(alias, _UNNAMED)
    return server.title or ("" if server.name == _UNNAMED.name else server.name)


def site_name() -> str:
    """What the pages are headed with: the name of the one server, or the host that all of them are on."""
    names = [server_name(alias) for alias in conf.get_settings().servers]
    return (names[0] if len(names) == 1 else "") or urlsplit(conf.origin() or "").hostname or ""


def person_name(user: Any) -> str:
    """Who is logged in, so that they know which of their accounts it is; empty for nobody."""
    if not user.is_authenticated:
        return ""
    name, full = str(user.get_username()), str(getattr(user, "get_full_name", str)()).strip()
    return f"{full} ({name})" if full else name


def together(names: Iterable[str]) -> str:
    """Names in one phrase."""
    *first, last = names
    if not first:
        return last
    return pgettext("a list of names", "%(first)s and %(last)s") % {"first": ", ".join(first), "last": last}
