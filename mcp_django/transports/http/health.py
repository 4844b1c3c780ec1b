"""Health check `<path>/healthz`: 200 while serving, 503 during shutdown and without a usable database.

It needs no credential and ignores Host, because load balancers connect by IP address without a token. The body has one
word. The request is not a call: limits do not count it, and a shutdown does not wait for it.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from mcp_django import wiring
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.readiness import DatabaseStatus
from mcp_django.transports.http.asgi import send_reply
from mcp_django.transports.http.django_view import build_response, exempt_view
from mcp_django.transports.http.messages import JSON_TYPE, NO_STORE, HTTPReply, Receive, Scope, Send

logger = get_logger("mcp_django.lifecycle")

PATH = "healthz"
DRAINING = "draining"


class HealthEndpoint:
    """The health check, as an ASGI application (`app`) and as a Django view."""

    def __init__(self) -> None:
        self._has_logged_draining = False
        self.view = exempt_view(self._view)

    async def app(self, scope: Scope, receive: Receive, send: Send, kwargs: Mapping[str, Any] | None = None) -> None:
        """Serve the ASGI application; URL arguments have no effect."""
        await send_reply(send, await self._build_reply(scope["method"]))

    async def _view(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        return build_response(await self._build_reply(request.method or ""))

    async def _build_reply(self, method: str) -> HTTPReply:
        if method not in ("GET", "HEAD"):
            return HTTPReply(405, b"", ((b"allow", b"GET, HEAD"), (b"content-length", b"0")))
        services = wiring.get_services()
        lifecycle = services.lifecycle
        lifecycle.track_loop(asyncio.get_running_loop())
        is_draining = lifecycle.is_draining()
        self._log_draining(is_draining)
        status = DRAINING if is_draining else await services.database_readiness.get_status()
        body = b'{"status":"%b"}' % status.encode()
        headers = (
            JSON_TYPE,
            (b"content-length", b"%d" % len(body)),  # A HEAD has the length of the GET (RFC 9110, 8.6).
            NO_STORE,
        )
        return HTTPReply(200 if status == DatabaseStatus.OK else 503, b"" if method == "HEAD" else body, headers)

    def _log_draining(self, is_draining: bool) -> None:
        """Log once that the process is shutting down; load balancers ask every few seconds."""
        if is_draining and not self._has_logged_draining:
            logger.info("Shutting down: health checks are answered with 503")
        self._has_logged_draining = is_draining
