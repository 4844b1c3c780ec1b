"""HTML pages for users: the authorization server, and connecting services.

The pages contain no scripts or inline styles, so their Content-Security-Policy forbids both. The policy lists the
targets of forms, because browsers apply it to the redirect after a form, too (CSP3, section 6.4.2). The referrer policy
is `same-origin` instead of `no-referrer`: otherwise browsers send `Origin: null`, which the CSRF protection rejects.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from django.contrib.auth import REDIRECT_FIELD_NAME
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render, resolve_url
from django.templatetags.static import static

from mcp_django import conf


def render_html(
    request: HttpRequest,
    template: str,
    context: Mapping[str, Any],
    *,
    status: int = 200,
    form_targets: Iterable[str] = (),
) -> HttpResponse:
    """Return a rendered page.

    `form_targets` are Content-Security-Policy sources that its forms may lead to, in addition to this site.
    """
    response = render(request, template, dict(context), status=status)
    response["Content-Security-Policy"] = _build_content_security_policy(form_targets)
    return add_security_headers(response)


def add_security_headers(response: HttpResponse) -> HttpResponse:
    """Add headers that keep a response out of caches, frames and foreign logs."""
    response["Cache-Control"] = "no-store"
    response["Referrer-Policy"] = "same-origin"
    response["X-Content-Type-Options"] = "nosniff"
    response["X-Frame-Options"] = "DENY"
    return response


def build_login_url(request: HttpRequest, path: str) -> str:
    """Return the login URL that leads back to `path` (with query) of this site."""
    login_page = resolve_url(conf.login_url())
    login_parts, return_parts = urlsplit(login_page), urlsplit(request.build_absolute_uri(path))
    is_other_origin = (login_parts.scheme or return_parts.scheme, login_parts.netloc or return_parts.netloc) != (
        return_parts.scheme,
        return_parts.netloc,
    )
    return redirect_to_login(return_parts.geturl() if is_other_origin else path, login_page, REDIRECT_FIELD_NAME).url


def get_static_source() -> str:
    """Return the Content-Security-Policy source of static files: this site, or the origin of STATIC_URL."""
    static_parts = urlsplit(static("mcp_django/pages.css"))
    return f"{static_parts.scheme or 'https'}://{static_parts.netloc}" if static_parts.netloc else "'self'"


def _build_content_security_policy(form_targets: Iterable[str]) -> str:
    own_source = get_static_source()
    forms = " ".join(["'self'", *(source for source in form_targets if source)])
    return (
        f"default-src 'none'; style-src {own_source}; img-src {own_source}; form-action {forms}; "
        "frame-ancestors 'none'; base-uri 'none'"
    )
