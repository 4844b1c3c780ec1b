"""Health check `<path>/healthz`: 200 while serving, 503 during shutdown.

It needs no credential and ignores Host, because load balancers connect by IP address without a token. The body has one
word. The request is not a call: limits do not count it, and a shutdown does not wait for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from mcp_django.runtime.shutdown import Lifecycle
from mcp_django.transports.security import HeaderPairs

PATH = "healthz"
OK_BODY, DRAINING_BODY = b'{"status":"ok"}', b'{"status":"draining"}'

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class HealthEndpoint:
    """The health check, as an ASGI application (`app`) and as a Django view."""

    def __init__(self, lifecycle: Callable[[], Lifecycle]) -> None:
        self._lifecycle = lifecycle
        self.view = login_not_required(csrf_exempt(self._view))

    async def app(self, scope: Scope, receive: Receive, send: Send, kwargs: Mapping[str, Any] | None = None) -> None:
        """Serve the ASGI application; URL arguments have no effect."""
        status, body, headers = self._build_reply(scope["method"])
        await send({"type": "http.response.start", "status": status, "headers": list(headers)})
        await send({"type": "http.response.body", "body": body})

    async def _view(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        status, body, headers = self._build_reply(request.method or "")
        response = HttpResponse(body, status=status)
        del response["Content-Type"]
        for name, value in headers:
            response[name.decode("latin-1")] = value.decode("latin-1")
        return response

    def _build_reply(self, method: str) -> tuple[int, bytes, HeaderPairs]:
        if method not in ("GET", "HEAD"):
            return 405, b"", ((b"allow", b"GET, HEAD"), (b"content-length", b"0"))
        lifecycle = self._lifecycle()
        lifecycle.track_loop(asyncio.get_running_loop())
        draining = lifecycle.is_draining()
        body = DRAINING_BODY if draining else OK_BODY
        headers = (
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),  # A HEAD has the length of the GET (RFC 9110, 8.6).
            (b"cache-control", b"no-store"),
        )
        return 503 if draining else 200, b"" if method == "HEAD" else body, headers
