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
from mcp_django.runtime.calls.task import Flight
from mcp_django.transports.http.django_context import left_by_middleware
from mcp_django.transports.http.django_request import keep_body, with_user
from mcp_django.transports.http.handler import Exchange
from mcp_django.transports.http.listen import ChangeSource
from mcp_django.transports.http.messages import Reply, Request, Side, Stream
from mcp_django.transports.http.sse_body import EventStream
from mcp_django.transports.security import Pairs

View = Callable[..., Any]
OWN_URLCONF = "mcp_django.urls"


class _EveryAlias(set[str]):
    """Excludes the view from ATOMIC_REQUESTS, which an async view cannot honour."""

    def __contains__(self, alias: object) -> bool:
        return True


class _Answer(HttpResponse):
    """A response that marks its call as answered when it is closed."""

    def __init__(self, flight: Flight, body: bytes, *, status: int) -> None:
        super().__init__(body, status=status)
        self._flight = flight

    def close(self) -> None:
        self._flight.answered = True
        super().close()


def as_view(find: Callable[[], Side]) -> View:
    """Build the view of an endpoint; `get_endpoint` is called at each request."""

    # Unnamed groups of a pattern around `include` arrive as args, and are ignored.
    async def view(request: HttpRequest, /, *args: Any, **kwargs: Any) -> HttpResponseBase:
        side = find()
        streams, headers = isinstance(request, ASGIRequest), _headers(request)
        oversize = side.limits.exceeded(headers)
        try:
            body = b"" if oversize else _body(request, side.limits.body)
        except UnreadablePostError:  # The client disconnected while sending the body.
            return HttpResponse(status=400)

        context = left_by_middleware()
        asked = Request(
            request.method or "",
            headers,
            body,
            request.META.get("REMOTE_ADDR"),
            kwargs,
            lambda principal: with_user(request, principal),
            streams,
            oversize,
            context,
            request.scheme or "http",
        )
        outcome = await side.handle(asked)
        if isinstance(outcome, Reply):
            return _response(request, outcome)
        if isinstance(outcome, Stream):
            return _streaming(side, outcome)
        exchange = cast(Exchange, side)  # Only this endpoint returns call tasks.
        outcome.launch(context)
        try:
            landing = await outcome.first(exchange.limits.upgrade_after)
        except asyncio.CancelledError:  # Django cancels the view when the client disconnects.
            outcome.disconnected()
            raise
        opened = exchange.opened(outcome, landing)
        if opened is not None:
            changes = ChangeSource(opened, exchange.listeners.here())
            return _streaming(exchange, Stream(exchange.stream_headers(outcome), changes))
        if landing is not None:
            return _response(request, exchange.land(outcome, landing), outcome)
        return _streaming(exchange, exchange.stream(outcome))

    # The endpoint authenticates by bearer tokens: cookies and the login page have no effect here.
    exempt: View = csrf_exempt(login_not_required(view))
    vars(exempt)["_non_atomic_requests"] = _EveryAlias()
    return exempt


def _headers(request: HttpRequest) -> Headers:
    if isinstance(request, ASGIRequest):
        return Headers(request.scope["headers"])
    return Headers(
        [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()]
    )


def _body(request: HttpRequest, limit: int) -> bytes:
    """Read the body, or the first bytes beyond `limit`, which suffice to reject it.

    `request.body` is not used, because its limit (DATA_UPLOAD_MAX_MEMORY_SIZE) is for forms and answers with HTML. A
    body that middleware has read is reused.
    """
    body = request.body if hasattr(request, "_body") else request.read(limit + 1)
    keep_body(request, body)
    return body


def _response(request: HttpRequest, reply: Reply, flight: Flight | None = None) -> HttpResponseBase:
    if reply.status == 404:
        # The client must get this 404. LocaleMiddleware would try the path below a language prefix, where a catch-all
        # pattern of the project matches, and redirect to it.
        request.urlconf = OWN_URLCONF
    response = HttpResponse(reply.body, status=reply.status)
    if flight is not None:
        response = _Answer(flight, reply.body, status=reply.status)
    if reply.status >= 500:
        # An overload is not an error of the site, for which Django would mail its ADMINS each time
        # (django.utils.log.log_response).
        vars(response)["_has_been_logged"] = True
    return _with(response, ((b"content-length", b"%d" % len(reply.body)), *reply.headers))


def _streaming(side: Side, stream: Stream) -> HttpResponseBase:
    return _with(StreamingHttpResponse(EventStream(stream.source, side.limits.keep_alive)), stream.headers)


def _with(response: HttpResponseBase, headers: Pairs) -> HttpResponseBase:
    del response["Content-Type"]
    for name, value in headers:
        response[name.decode("latin-1")] = value.decode("latin-1")
    return response
