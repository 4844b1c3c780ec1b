"""WebSocket routes for Channels: `URLRouter(websocket_urlpatterns)`.

Each server of `MCP["SERVERS"]` is served below the path of its endpoint: `/mcp/ws` by default. `asgi.mount` serves
WebSockets without these routes. Each path works with and without a slash at its end.
"""

from typing import Any

from django.urls import URLPattern, path

from mcp_django.conf import clear_cache, on_change, servers
from mcp_django.transports.websocket import PATH, Consumer


def _build_patterns() -> list[URLPattern]:
    patterns = []
    for alias, server in servers().items():
        if "websocket" in server.transports:
            consumer: Any = Consumer.as_asgi(server=alias)
            patterns += [path(f"{server.path}/{PATH}{slash}", consumer) for slash in ("", "/")]
    return patterns


websocket_urlpatterns = _build_patterns()


@on_change
def _rebuild_patterns() -> None:
    """Rebuild the routes in tests that override MCP, as `mount` does."""
    websocket_urlpatterns[:] = _build_patterns()
    clear_cache()  # a test may change the setting later without a signal
