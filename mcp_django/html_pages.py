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


def shown(
    request: HttpRequest, template: str, context: Mapping[str, Any], *, status: int = 200, leads_to: Iterable[str] = ()
) -> HttpResponse:
    """Return a rendered page.

    `form_targets` are Content-Security-Policy sources that its forms may lead to, in addition to this site.
    """
    response = render(request, template, dict(context), status=status)
    response["Content-Security-Policy"] = _policy(leads_to)
    return guarded(response)


def guarded(response: HttpResponse) -> HttpResponse:
    """Add headers that keep a response out of caches, frames and foreign logs."""
    response["Cache-Control"] = "no-store"
    response["Referrer-Policy"] = "same-origin"
    response["X-Content-Type-Options"] = "nosniff"
    response["X-Frame-Options"] = "DENY"
    return response


def login_url(request: HttpRequest, path: str) -> str:
    """Return the login URL that leads back to `path` (with query) of this site."""
    place = resolve_url(conf.login_url())
    there, here = urlsplit(place), urlsplit(request.build_absolute_uri(path))
    elsewhere = (there.scheme or here.scheme, there.netloc or here.netloc) != (here.scheme, here.netloc)
    return redirect_to_login(here.geturl() if elsewhere else path, place, REDIRECT_FIELD_NAME).url


def _policy(leads_to: Iterable[str]) -> str:
    files = urlsplit(static("mcp_django/pages.css"))
    own = "'self'" if not files.netloc else f"{files.scheme or 'https'}://{files.netloc}"
    forms = " ".join(["'self'", *(source for source in leads_to if source)])
    return (
        f"default-src 'none'; style-src {own}; img-src {own}; form-action {forms}; "
        "frame-ancestors 'none'; base-uri 'none'"
    )
