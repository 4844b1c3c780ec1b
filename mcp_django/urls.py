"""URLconf of all endpoints: `path("", include("mcp_django.urls"))`.

Each server of `MCP["SERVERS"]` is served at its path: `/mcp` by default.

The URLconf also contains the two views for URL-mode elicitation (`ctx.elicit_url`), below `mcp/page/`, and the metadata
at the root of the origin. If it is included below a path, include `mcp_django.well_known` at the root, too.

Each path works with and without a slash at its end: a redirect would turn the POST into a GET.

An invalid setting does not break the URLconf, whose traceback would hide the messages of the system checks. Endpoints
are not served then: each request raises ImproperlyConfigured.
"""

import functools

from django.urls import URLPattern, clear_url_caches, path

from mcp_django import well_known
from mcp_django.conf import clear_cache, is_usable, on_change, servers
from mcp_django.runtime.url_elicitation import DONE_VIEW, OPEN_VIEW
from mcp_django.transports.http.django_view import as_view
from mcp_django.transports.http.handler import get_http_endpoint
from mcp_django.transports.http.health import PATH as HEALTHZ
from mcp_django.transports.http.health import HealthEndpoint
from mcp_django.transports.http.url_elicitation import open_page, page_done
from mcp_django.transports.http.websocket_tickets import PATH as TICKET
from mcp_django.transports.http.websocket_tickets import get_ticket_endpoint
from mcp_django.transports.legacy_sse import PATH as SSE
from mcp_django.transports.legacy_sse import get_legacy_sse
from mcp_django.wiring import get_database_readiness, get_lifecycle

app_name = "mcp_django"


def _build_patterns() -> list[URLPattern]:
    patterns, subpaths = [], []
    for alias, server in servers().items():
        if "http" in server.transports:
            view = as_view(functools.partial(get_http_endpoint, alias))
            patterns += [path(server.path, view, name=alias), path(f"{server.path}/", view)]
        if "sse" in server.transports and "handshake" in server.eras:
            view = as_view(functools.partial(get_legacy_sse, alias))
            subpaths += [path(f"{server.path}/{SSE}{slash}", view) for slash in ("", "/")]
        if "websocket" in server.transports:
            view = as_view(functools.partial(get_ticket_endpoint, alias))
            subpaths += [path(f"{server.path}/{TICKET}{slash}", view) for slash in ("", "/")]
        if server.healthz and is_usable():
            health = HealthEndpoint(get_lifecycle, get_database_readiness)
            subpaths += [path(f"{server.path}/{HEALTHZ}{slash}", health.view) for slash in ("", "/")]

    return [
        # As in `asgi.mount`, a static path precedes patterns that it would match.
        *sorted(patterns + subpaths, key=lambda pattern: "<" in str(pattern.pattern)),
        path("mcp/page/<str:token>", open_page, name=OPEN_VIEW),
        path("mcp/page/<str:token>/done", page_done, name=DONE_VIEW),
        *well_known.urlpatterns,
    ]


urlpatterns = _build_patterns()


@on_change()
def _rebuild_patterns() -> None:
    """Rebuild the URL patterns in tests that override MCP, as `asgi.mount` does."""
    urlpatterns[:] = _build_patterns()
    clear_url_caches()
    clear_cache()  # a test may change the setting later without a signal
