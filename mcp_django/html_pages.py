"""HTML pages: no invisible characters, and security headers for the pages of users.

The pages of users are those of the authorization server, and those that connect services. They contain no scripts or
inline styles, so their Content-Security-Policy forbids both. The policy lists the targets of forms, because browsers
apply it to the redirect after a form, too (CSP3, section 6.4.2). The referrer policy is `same-origin` instead of
`no-referrer`: otherwise browsers send `Origin: null`, which the CSRF protection rejects.
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings as django_settings
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import resolve_url
from django.template.loader import render_to_string
from django.template.response import SimpleTemplateResponse
from django.templatetags.static import static

from mcp_django.protocol.display_text import clean_lines

_FIELD_VALUES: Final = re.compile(r'(<textarea\b.*?</textarea>|\svalue="[^"]*")', re.DOTALL)
"""Values of the fields of forms, in HTML of Django's templates, which escape quotation marks in texts."""

_NO_BREAK_SPACES: Final = "\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"
"""White space that is visible, between numbers and their units."""


def render_html(
    request: HttpRequest,
    template: str,
    context: Mapping[str, Any],
    *,
    status: int = 200,
    form_targets: Iterable[str] = (),
) -> HttpResponse:
    """Return a rendered page with security headers and without invisible characters.

    Its Content-Security-Policy forbids scripts and inline styles. `form_targets` are the sources that its forms may
    lead to, in addition to this site.
    """
    response = HttpResponse(render_clean(template, context, request), status=status)
    response["Content-Security-Policy"] = _build_content_security_policy(form_targets)
    return add_security_headers(response)


def add_security_headers(response: HttpResponse) -> HttpResponse:
    """Add headers that keep a response out of caches, frames and foreign logs; return the response."""
    response["Cache-Control"] = "no-store"
    response["Referrer-Policy"] = "same-origin"
    response["X-Content-Type-Options"] = "nosniff"
    response["X-Frame-Options"] = "DENY"
    return response


def render_clean(template: str, context: Mapping[str, Any], request: HttpRequest | None = None) -> str:
    """Return rendered HTML without invisible characters."""
    return clean_html(render_to_string(template, dict(context), request))


def clean_html(page: str) -> str:
    """Return HTML without invisible characters.

    Names of clients, of other servers and of models could hold them. The values of form fields stay, because they are
    saved again.
    """
    parts = _FIELD_VALUES.split(page)  # The values are at the odd places.
    return "".join(part if number % 2 else clean_lines(part, _NO_BREAK_SPACES) for number, part in enumerate(parts))


def clean_response(response: HttpResponseBase) -> HttpResponseBase:
    """Clean a page, now or as soon as it is rendered. Other responses stay as they are."""
    if isinstance(response, SimpleTemplateResponse) and not response.is_rendered:
        response.add_post_render_callback(clean_response)
    elif isinstance(response, HttpResponse) and response.get("Content-Type", "").startswith("text/html"):
        response.content = clean_html(response.content.decode(response.charset)).encode(response.charset)
    return response


def clean_views(patterns: Iterable[Any]) -> list[Any]:
    """Return the URL patterns of an admin, with views whose pages are clean."""
    patterns = list(patterns)
    for pattern in patterns:
        pattern.callback = _build_clean_view(pattern.callback)
    return patterns


def _build_clean_view(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    @functools.wraps(view)
    def clean_view(*args: Any, **kwargs: Any) -> HttpResponseBase:
        return clean_response(view(*args, **kwargs))

    return clean_view


def build_login_url(request: HttpRequest, path: str) -> str:
    """Return the login URL that leads back to `path` (with query) of this site."""
    login_page = resolve_url(django_settings.LOGIN_URL)
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
