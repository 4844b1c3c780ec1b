"""What the pages of the authorization server have in common: how they are shown, and to whom."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from mcp_django.contrib.oauth.clients.display_names import person_name, site_name
from mcp_django.html_pages import shown

NAMESPACE = "oauth2_provider"
"""Of the URLs: django-oauth-toolkit looks up its own by it."""


def page(
    request: HttpRequest,
    template: str,
    context: Mapping[str, Any],
    *,
    status: int = 200,
    leads_to: Iterable[str] = (),
) -> HttpResponse:
    """A page. `leads_to` are sources of a Content-Security-Policy that its forms may lead to, besides this site."""
    known = {
        "site_name": site_name(),
        "user_name": person_name(request.user),
        "here": request.get_full_path(),
        "connections_url": address("connections"),
    }
    return shown(request, f"mcp_oauth/{template}", {**known, **context}, status=status, leads_to=leads_to)


def address(name: str) -> str:
    """The path of one of the pages."""
    return reverse(f"{NAMESPACE}:{name}")
