"""Public URLs of the pages, as sent to other servers."""

from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from mcp_django import conf


def get_page_path(name: str, alias: str | None = None) -> str:
    """Return the path of a page."""
    return reverse(f"mcp_clients:{name}", kwargs=None if alias is None else {"alias": alias})


def build_public_url(request: HttpRequest, path: str) -> str:
    """Return the public URL of a path, on ORIGIN or else on the request's host."""
    origin = conf.origin()
    return request.build_absolute_uri(path) if origin is None else origin + path


def get_safe_return_url(request: HttpRequest, url: str) -> str:
    """Return `url` if it is on this site, otherwise an empty string."""
    safe = url_has_allowed_host_and_scheme(url, {request.get_host()}, require_https=request.is_secure())
    return url if safe and len(url) <= 2000 else ""
