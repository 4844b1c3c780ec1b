"""Where the pages are, as other servers are told."""

from urllib.parse import urlsplit

from django.contrib.auth import REDIRECT_FIELD_NAME
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest
from django.shortcuts import resolve_url
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from .. import conf


def address(name: str, alias: str | None = None) -> str:
    """The path of one of the pages."""
    return reverse(f"mcp_clients:{name}", kwargs=None if alias is None else {"alias": alias})


def outside(request: HttpRequest, path: str) -> str:
    """The URL of a path: on the project's ORIGIN, or the host that the request names where there is none."""
    origin = conf.origin()
    return request.build_absolute_uri(path) if origin is None else origin + path


def login_url(request: HttpRequest, path: str) -> str:
    """Where to log in and come back to `path`, a path of this site with its query."""
    place = resolve_url(conf.login_url())
    there, here = urlsplit(place), urlsplit(request.build_absolute_uri(path))
    elsewhere = (there.scheme or here.scheme, there.netloc or here.netloc) != (here.scheme, here.netloc)
    return redirect_to_login(here.geturl() if elsewhere else path, place, REDIRECT_FIELD_NAME).url


def way_back(request: HttpRequest, wanted: str) -> str:
    """`wanted`, if it is on this site; else nothing."""
    safe = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, require_https=request.is_secure())
    return wanted if safe and len(wanted) <= 2000 else ""
