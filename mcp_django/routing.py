"""Channels' `URLRouter(websocket_urlpatterns)` serves the sockets of every server of `MCP["SERVERS"]` below the path of
its endpoint: `/mcp/ws`, unless it says otherwise. `asgi.mount` serves them without that.

Each path works with and without a slash at its end.
"""

from typing import Any

from django.core.signals import setting_changed
from django.dispatch import receiver
from django.urls import URLPattern, path

from mcp_django.conf import forget, servers
from mcp_django.transports.websocket import PATH, Consumer


def _patterns() -> list[URLPattern]:
    patterns = []
    for alias, server in servers().items():
        if "websocket" in server.transports:
            consumer: Any = Consumer.as_asgi(server=alias)
            patterns += [path(f"{server.path}/{PATH}{slash}", consumer) for slash in ("", "/")]
    return patterns


websocket_urlpatterns = _patterns()


@receiver(setting_changed)
def _renew(*, setting: str, **kwargs: Any) -> None:
    """Tests that override MCP get its servers, as they do through `mount`."""
    if setting == "MCP":
        websocket_urlpatterns[:] = _patterns()
        forget()  # a test may go on to change the setting by hand, without a signal
