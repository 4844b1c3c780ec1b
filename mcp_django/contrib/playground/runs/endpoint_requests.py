"""Django request of a call that the playground sends, as if it had reached the endpoint of the server."""

from typing import Any

from django.http import HttpRequest
from django.urls import Resolver404, ResolverMatch, resolve

from mcp_django.conf import get_settings
from mcp_django.extensions.callers import DjangoPrincipal
from mcp_django.transports.http.django_request import APP_NAMESPACE, attach_user

KEPT_META = frozenset(
    {
        "HTTP_HOST",
        "HTTP_X_FORWARDED_HOST",
        "HTTP_X_FORWARDED_PORT",
        "REMOTE_ADDR",
        "SCRIPT_NAME",
        "SERVER_NAME",
        "SERVER_PORT",
    }
)
"""Entries of the browser's request that name the site and the peer, without cookies."""


class EndpointRequest(HttpRequest):
    """Request for the endpoint of a server, on the site that the browser uses."""

    def __init__(self, request: HttpRequest, alias: str, principal: DjangoPrincipal) -> None:
        super().__init__()
        self._site_scheme = request.scheme or "http"
        self.method = "POST"
        self.META = {name: value for name, value in request.META.items() if name in KEPT_META}
        self.path_info = f"/{get_settings().servers[alias].path.lstrip('/')}"
        self.path = f"{str(self.META.get('SCRIPT_NAME', '')).rstrip('/')}{self.path_info}"
        self.resolver_match = _resolve(self.path_info, alias)
        attach_user(self, principal)

    def _get_scheme(self) -> str:
        return self._site_scheme


def _resolve(path: str, alias: str) -> ResolverMatch:
    """Return the match of an endpoint; that of the ASGI app if the URLconf lacks it."""
    try:
        return resolve(path)
    except Resolver404:
        return ResolverMatch(_answer_nothing, (), {}, alias, [APP_NAMESPACE], [APP_NAMESPACE])


def _answer_nothing(request: HttpRequest) -> Any:
    """Replace the view of an endpoint that the ASGI app serves."""
