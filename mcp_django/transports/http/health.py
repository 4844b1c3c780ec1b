"""Health check `<path>/healthz`: 200 while serving, 503 during shutdown.

It needs no credential and ignores Host, because load balancers connect by IP address without a token. The body has one
word. The request is not a call: limits do not count it, and a shutdown does not wait for it.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from mcp_django.runtime.shutdown import Lifecycle
from mcp_django.transports.http.asgi import send_reply
from mcp_django.transports.http.django_view import build_response, exempt_view
from mcp_django.transports.http.messages import JSON_TYPE, NO_STORE, HTTPReply, Receive, Scope, Send

PATH = "healthz"
OK_BODY, DRAINING_BODY = b'{"status":"ok"}', b'{"status":"draining"}'


class HealthEndpoint:
    """The health check, as an ASGI application (`app`) and as a Django view."""

    def __init__(self, lifecycle: Callable[[], Lifecycle]) -> None:
        self._lifecycle = lifecycle
        self.view = exempt_view(self._view)

    async def app(self, scope: Scope, receive: Receive, send: Send, kwargs: Mapping[str, Any] | None = None) -> None:
        """Serve the ASGI application; URL arguments have no effect."""
        await send_reply(send, self._build_reply(scope["method"]))

    async def _view(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        return build_response(self._build_reply(request.method or ""))

    def _build_reply(self, method: str) -> HTTPReply:
        if method not in ("GET", "HEAD"):
            return HTTPReply(405, b"", ((b"allow", b"GET, HEAD"), (b"content-length", b"0")))
        lifecycle = self._lifecycle()
        lifecycle.track_loop(asyncio.get_running_loop())
        draining = lifecycle.is_draining()
        body = DRAINING_BODY if draining else OK_BODY
        headers = (
            JSON_TYPE,
            (b"content-length", b"%d" % len(body)),  # A HEAD has the length of the GET (RFC 9110, 8.6).
            NO_STORE,
        )
        return HTTPReply(503 if draining else 200, b"" if method == "HEAD" else body, headers)
