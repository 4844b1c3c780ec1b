"""Texts for the first call, which a page without any call shows."""

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from mcp_django import wiring
from mcp_django.conf import get_settings
from mcp_django.contrib.control_room.models import CallRollup
from mcp_django.contrib.control_room.recording.writer import get_alias
from mcp_django.management.client_config.connection_texts import ConnectionText, build_connection_texts

HTTP, TOKEN = "http", "token"
WITHOUT_TOKEN = frozenset({"none", "oauth", "external"})
"""Ways to authenticate that need no token in the file of a client."""


def has_recorded_calls() -> bool:
    """Return True if a call was ever counted, and is still kept."""
    return CallRollup.objects.using(get_alias()).exists()


def list_connection_texts(request: HttpRequest, server: str = "") -> list[ConnectionText]:
    """Return the texts that connect a client to a server, the first one by default.

    It has none for a server that is not served over HTTP.
    """
    settings = get_settings()
    alias = server or wiring.list_aliases()[0]
    described = settings.servers.get(alias)
    if described is None or HTTP not in described.transports:
        return []
    needs_token = TOKEN in settings.auth and WITHOUT_TOKEN.isdisjoint(settings.auth)
    return build_connection_texts(described, _build_url(request, alias, described.path), with_token=needs_token)


def _build_url(request: HttpRequest, alias: str, path: str) -> str:
    """Return the URL of a server, as its clients reach it."""
    try:
        location = reverse(f"mcp_django:{alias}")
    except NoReverseMatch:  # an ASGI app outside of the project's URLs
        location = f"/{path.lstrip('/')}"
    origin = get_settings().origin
    return request.build_absolute_uri(location) if origin is None else origin + location
