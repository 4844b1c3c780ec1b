"""Rendering of the authorization server's pages."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from mcp_django.contrib.oauth.clients.display_names import get_site_name, get_user_name
from mcp_django.html_pages import render_html

NAMESPACE = "oauth2_provider"
"""Namespace of the URLs: django-oauth-toolkit reverses its own URLs by it."""


def render_page(
    request: HttpRequest,
    template: str,
    context: Mapping[str, Any],
    *,
    status: int = 200,
    form_sources: Iterable[str] = (),
) -> HttpResponse:
    """Render a page.

    `form_sources` are additional Content-Security-Policy sources that forms may lead to.
    """
    defaults = {
        "site_name": get_site_name(),
        "user_name": get_user_name(request.user),
        "here": request.get_full_path(),
        "connections_url": get_page_url("connections"),
    }
    return render_html(
        request, f"mcp_oauth/{template}", {**defaults, **context}, status=status, form_targets=form_sources
    )


def get_page_url(name: str) -> str:
    """Return the path of a page."""
    return reverse(f"{NAMESPACE}:{name}")
