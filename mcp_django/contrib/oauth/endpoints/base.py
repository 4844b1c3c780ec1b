"""Rendering of the authorization server's pages."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from mcp_django.contrib.oauth.clients.display_names import person_name, site_name
from mcp_django.html_pages import shown

NAMESPACE = "oauth2_provider"
"""Namespace of the URLs: django-oauth-toolkit reverses its own URLs by it."""


def page(
    request: HttpRequest,
    template: str,
    context: Mapping[str, Any],
    *,
    status: int = 200,
    leads_to: Iterable[str] = (),
) -> HttpResponse:
    """Render a page.

    `form_sources` are additional Content-Security-Policy sources that forms may lead to.
    """
    known = {
        "site_name": site_name(),
        "user_name": person_name(request.user),
        "here": request.get_full_path(),
        "connections_url": address("connections"),
    }
    return shown(request, f"mcp_oauth/{template}", {**known, **context}, status=status, leads_to=leads_to)


def address(name: str) -> str:
    """Return the path of a page."""
    return reverse(f"{NAMESPACE}:{name}")
