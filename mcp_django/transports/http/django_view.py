"""Django view of an endpoint: async, behind the URLconf and MIDDLEWARE.

Under WSGI it answers with JSON only.
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from django.contrib.auth.decorators import login_not_required
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.request import UnreadablePostError
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from mcp_django.protocol.headers import Headers
from mcp_django.runtime.calls.task import CallTask
from mcp_django.transports.http.django_context import copy_middleware_context
from mcp_django.transports.http.django_request import attach_user, set_body
from mcp_django.transports.http.handler import StreamableHTTPEndpoint
from mcp_django.transports.http.listen import SubscriptionSource
from mcp_django.transports.http.messages import HTTPEndpoint, HTTPReply, HTTPRequest, HTTPStream
from mcp_django.transports.http.sse_body import SSEBody
from mcp_django.transports.security import HeaderPairs

View = Callable[..., Any]
OWN_URLCONF = "mcp_django.urls"


class _AllDatabaseAliases(set[str]):
    """Excludes the view from ATOMIC_REQUESTS, which an async view cannot honour."""

    def __contains__(self, alias: object) -> bool:
        return True


class _CallResponse(HttpResponse):
    """A response that marks its call as answered when it is closed."""

    def __init__(self, task: CallTask, body: bytes, *, status: int) -> None:
        super().__init__(body, status=status)
        self._task = task

    def close(self) -> None:
        self._task.is_answered = True
        super().close()


def as_view(get_endpoint: Callable[[], HTTPEndpoint]) -> View:
    """Build the view of an endpoint; `get_endpoint` is called at each request."""

    # Unnamed groups of a pattern around `include` arrive as args, and are ignored.
    async def view(request: HttpRequest, /, *args: Any, **kwargs: Any) -> HttpResponseBase:
        side = get_endpoint()
        streams, headers = isinstance(request, ASGIRequest), _read_headers(request)
        oversize = side.limits.is_exceeded_by(headers)
        try:
            body = b"" if oversize else _read_body(request, side.limits.max_body_bytes)
        except UnreadablePostError:  # The client disconnected while sending the body.
            return HttpResponse(status=400)

        context = copy_middleware_context()
        asked = HTTPRequest(
            request.method or "",
            headers,
            body,
            request.META.get("REMOTE_ADDR"),
            kwargs,
            lambda principal: attach_user(request, principal),
            streams,
            oversize,
            context,
            request.scheme or "http",
        )
        outcome = await side.handle(asked)
        if isinstance(outcome, HTTPReply):
            return _build_response(request, outcome)
        if isinstance(outcome, HTTPStream):
            return _build_streaming_response(side, outcome)
        exchange = cast(StreamableHTTPEndpoint, side)  # Only this endpoint returns call tasks.
        outcome.start(context)
        try:
            landing = await outcome.wait_for_output(exchange.limits.stream_after_seconds)
        except asyncio.CancelledError:  # Django cancels the view when the client disconnects.
            outcome.on_disconnect()
            raise
        opened = exchange.get_opened_subscription(outcome, landing)
        if opened is not None:
            changes = SubscriptionSource(opened, exchange.open_streams.get_loop_registry())
            return _build_streaming_response(exchange, HTTPStream(exchange.build_stream_headers(outcome), changes))
        if landing is not None:
            return _build_response(request, exchange.build_reply(outcome, landing), outcome)
        return _build_streaming_response(exchange, exchange.build_stream(outcome))

    # The endpoint authenticates by bearer tokens: cookies and the login page have no effect here.
    exempt: View = csrf_exempt(login_not_required(view))
    vars(exempt)["_non_atomic_requests"] = _AllDatabaseAliases()
    return exempt


def _read_headers(request: HttpRequest) -> Headers:
    if isinstance(request, ASGIRequest):
        return Headers(request.scope["headers"])
    return Headers(
        [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()]
    )


def _read_body(request: HttpRequest, limit: int) -> bytes:
    """Read the body, or the first bytes beyond `limit`, which suffice to reject it.

    `request.body` is not used, because its limit (DATA_UPLOAD_MAX_MEMORY_SIZE) is for forms and answers with HTML. A
    body that middleware has read is reused.
    """
    body = request.body if hasattr(request, "_body") else request.read(limit + 1)
    set_body(request, body)
    return body


def _build_response(request: HttpRequest, reply: HTTPReply, task: CallTask | None = None) -> HttpResponseBase:
    if reply.status == 404:
        # The client must get this 404. LocaleMiddleware would try the path below a language prefix, where a catch-all
        # pattern of the project matches, and redirect to it.
        request.urlconf = OWN_URLCONF
    response = HttpResponse(reply.body, status=reply.status)
    if task is not None:
        response = _CallResponse(task, reply.body, status=reply.status)
    if reply.status >= 500:
        # An overload is not an error of the site, for which Django would mail its ADMINS each time
        # (django.utils.log.log_response).
        vars(response)["_has_been_logged"] = True
    return _set_headers(response, ((b"content-length", b"%d" % len(reply.body)), *reply.headers))


def _build_streaming_response(endpoint: HTTPEndpoint, stream: HTTPStream) -> HttpResponseBase:
    return _set_headers(
        StreamingHttpResponse(SSEBody(stream.source, endpoint.limits.keep_alive_seconds)), stream.headers
    )


def _set_headers(response: HttpResponseBase, headers: HeaderPairs) -> HttpResponseBase:
    del response["Content-Type"]
    for name, value in headers:
        response[name.decode("latin-1")] = value.decode("latin-1")
    return response
