"""Services that a user can connect, with their current state; and URLs of their pages."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from mcp_django import conf
from mcp_django.conf.clients import ClientSettings
from mcp_django.models import ClientToken

PROJECT_PERMISSION = "mcp_django.change_clienttoken"
"""Permission to connect servers for the whole project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A server as shown to its owner."""

    alias: str
    host: str
    for_all: bool
    """True if the connection belongs to the project instead of the user."""
    is_connected: bool = False
    lapsed: bool = False
    """True if the connection has ended and must be renewed."""
    lacks: tuple[str, ...] = ()
    """Scopes that calls lacked."""
    known: bool = True
    """True if the settings still contain the server."""
    issuer: str = ""
    scopes: tuple[str, ...] = ()
    since: datetime | None = None
    renewed: datetime | None = None

    @property
    def initial(self) -> str:
        """The first letter of the alias, shown as an icon."""
        return self.alias[:1].upper()


def can_connect(user: Any, settings: ClientSettings) -> bool:
    """Return True if the user may connect the server, alone or for the project."""
    return settings.per_user or user.has_perm(PROJECT_PERMISSION)


def get_connectable_settings(alias: str) -> ClientSettings | None:
    """Return the settings of a client that users connect by OAuth.

    Returns None for other aliases.
    """
    settings = conf.get_settings().clients.get(alias)
    oauth = settings is not None and settings.auth is not None and settings.auth.type == "oauth"
    return settings if oauth else None


def list_services(user: Any) -> list[Service]:
    """Return the services that `user` may connect, in the order of the settings."""
    connectable_settings = [get_connectable_settings(alias) for alias in conf.get_settings().clients]
    allowed_settings = [
        settings for settings in connectable_settings if settings is not None and can_connect(user, settings)
    ]
    rows = list(ClientToken.objects.filter(user=user).select_related("user"))
    if any(not settings.per_user for settings in allowed_settings):
        rows += ClientToken.objects.filter(user=None)

    return [
        *(_create_service(settings, rows) for settings in allowed_settings),
        *_list_removed_services(user, allowed_settings),
    ]


def _create_service(settings: ClientSettings, rows: list[ClientToken]) -> Service:
    host = urlsplit(settings.url or "").netloc
    matching_rows = [row for row in rows if row.alias == settings.alias and (row.user is not None) == settings.per_user]
    row = next((row for row in matching_rows if row.server == settings.display_location), None)
    if row is None:
        return Service(alias=settings.alias, host=host, for_all=not settings.per_user)

    return Service(
        alias=settings.alias,
        host=host,
        for_all=not settings.per_user,
        is_connected=row.is_connected,
        lapsed=not row.is_connected and bool(row.issuer),
        lacks=tuple(sorted(set(row.wanted.split()) - set(row.scopes.split()))),
        issuer=urlsplit(row.issuer).netloc,
        scopes=tuple(row.scopes.split()),
        since=row.created,
        renewed=row.updated,
    )


def _list_removed_services(user: Any, allowed_settings: list[ClientSettings]) -> Iterator[Service]:
    """Iterate over the user's connections that the settings no longer contain."""
    named = {settings.alias for settings in allowed_settings if settings.per_user}
    for row in ClientToken.objects.filter(user=user).exclude(grant="").exclude(alias__in=named):
        yield Service(
            alias=row.alias,
            host=urlsplit(row.server).netloc,
            for_all=False,
            is_connected=True,
            known=False,
            issuer=urlsplit(row.issuer).netloc,
            scopes=tuple(row.scopes.split()),
            since=row.created,
            renewed=row.updated,
        )


def get_page_path(name: str, alias: str | None = None) -> str:
    """Return the path of a page by its URL name, for the server `alias` if given."""
    return reverse(f"mcp_clients:{name}", kwargs=None if alias is None else {"alias": alias})


def build_public_url(request: HttpRequest, path: str) -> str:
    """Return the public URL of a path, on ORIGIN or else on the request's host."""
    origin = conf.origin()
    return request.build_absolute_uri(path) if origin is None else origin + path


def get_safe_return_url(request: HttpRequest, url: str) -> str:
    """Return `url` if it is on this site, otherwise an empty string."""
    safe = url_has_allowed_host_and_scheme(url, {request.get_host()}, require_https=request.is_secure())
    return url if safe and len(url) <= 2000 else ""
