"""Display names of servers, of the site and of the current user."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from django.utils.translation import pgettext

from mcp_django import conf
from mcp_django.conf.options import ServerSettings
from mcp_django.wiring import get_resource_registry

_UNNAMED = ServerSettings()


def get_resource_name(uri: str) -> str:
    """Return the display name of the server at a canonical URL.

    Without a name, the URL without its scheme is returned.
    """
    alias = next(
        (alias for alias in get_resource_registry().aliases if get_resource_registry().get(alias).uri == uri), None
    )
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
