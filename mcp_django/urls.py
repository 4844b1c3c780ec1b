"""URLconf of all endpoints: `path("", include("mcp_django.urls"))`.

Each server of `MCP["SERVERS"]` is served at its path: `/mcp` by default.

The URLconf also contains the two views for URL-mode elicitation (`ctx.elicit_url`), below `mcp/page/`, and the metadata
at the root of the origin. If it is included below a path, include `mcp_django.well_known` at the root, too.

Each path works with and without a slash at its end: a redirect would turn the POST into a GET.

An invalid setting does not break the URLconf, whose traceback would hide the messages of the system checks. Endpoints
are not served then: each request raises ImproperlyConfigured.
"""

import functools
from collections.abc import Callable
from typing import Literal, NamedTuple

from django.urls import URLPattern, clear_url_caches, path

from mcp_django import well_known
from mcp_django.conf import clear_cache, is_usable, on_change, servers
from mcp_django.runtime.url_elicitation import DONE_VIEW, OPEN_VIEW
from mcp_django.transports.http.django_view import View, as_view
from mcp_django.transports.http.endpoint import HTTPEndpoint
from mcp_django.transports.http.handler import get_http_endpoint
from mcp_django.transports.http.health import PATH as HEALTHZ
from mcp_django.transports.http.health import HealthEndpoint
from mcp_django.transports.http.url_elicitation import open_page, page_done
from mcp_django.transports.http.websocket_tickets import PATH as TICKET
from mcp_django.transports.http.websocket_tickets import get_ticket_endpoint
from mcp_django.transports.legacy_sse import PATH as SSE
from mcp_django.transports.legacy_sse import get_legacy_sse

app_name = "mcp_django"


Kind = Literal["http", "sse", "ticket", "health"]


class _ServedPath(NamedTuple):
    """The path of a view of a server."""

    path: str
    alias: str
    kind: Kind


def _list_routes() -> list[_ServedPath]:
    routes = []
    for alias, server in servers().items():
        if "http" in server.transports:
            routes.append(_ServedPath(server.path, alias, "http"))
        if "sse" in server.transports and "handshake" in server.eras:
            routes.append(_ServedPath(f"{server.path}/{SSE}", alias, "sse"))
        if "websocket" in server.transports:
            routes.append(_ServedPath(f"{server.path}/{TICKET}", alias, "ticket"))
        if server.healthz and is_usable():
            routes.append(_ServedPath(f"{server.path}/{HEALTHZ}", alias, "health"))

    # As in `asgi.mount`, a static path precedes patterns that it would match.
    return sorted(routes, key=lambda route: ("<" in route.path, route.kind != "http"))


def _build_patterns(routes: list[_ServedPath]) -> list[URLPattern]:
    patterns = []
    for route in routes:
        view = _build_view(route)
        name = route.alias if route.kind == "http" else None
        patterns += [path(route.path, view, name=name), path(f"{route.path}/", view)]

    return [
        *patterns,
        path("mcp/page/<str:token>", open_page, name=OPEN_VIEW),
        path("mcp/page/<str:token>/done", page_done, name=DONE_VIEW),
        *well_known.urlpatterns,
    ]


def _build_view(route: _ServedPath) -> View:
    if route.kind == "health":
        return HealthEndpoint().view
    return as_view(functools.partial(_ENDPOINTS[route.kind], route.alias))


_ENDPOINTS: dict[Kind, Callable[[str], HTTPEndpoint]] = {
    "http": get_http_endpoint,
    "sse": get_legacy_sse,
    "ticket": get_ticket_endpoint,
}
_routes = _list_routes()
urlpatterns = _build_patterns(_routes)


@on_change
def _rebuild_patterns() -> None:
    """Rebuild the URL patterns in tests that override MCP, as `asgi.mount` does.

    Django's caches of URLs are kept if no path changes: to fill them takes longer than most tests.
    """
    if (routes := _list_routes()) != _routes:
        _routes[:] = routes
        urlpatterns[:] = _build_patterns(routes)
        clear_url_caches()
    clear_cache()  # a test may change the setting later without a signal
