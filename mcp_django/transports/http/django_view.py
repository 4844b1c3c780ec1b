"""The Django door: the same exchange as an async view, behind the URLconf and MIDDLEWARE. Under WSGI it answers JSON
only.
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
    """ATOMIC_REQUESTS does not apply to the view: an async view cannot honour it."""

    def __contains__(self, alias: object) -> bool:
        return True


class _Answer(HttpResponse):
    """Lets a call know when its answer has been sent."""

    def __init__(self, flight: Flight, body: bytes, *, status: int) -> None:
        super().__init__(body, status=status)
        self._flight = flight

    def close(self) -> None:
        self._flight.answered = True
        super().close()


def as_view(find: Callable[[], Side]) -> View:
    """The view of one endpoint. `find` gives its HTTP side, made at the first request."""

    # What a pattern around `include` captures without a name comes as args, and is nobody's.
    async def view(request: HttpRequest, /, *args: Any, **kwargs: Any) -> HttpResponseBase:
        side = find()
        streams, headers = isinstance(request, ASGIRequest), _headers(request)
        oversize = side.limits.exceeded(headers)
        try:
            body = b"" if oversize else _body(request, side.limits.body)
        except UnreadablePostError:  # the client went away while it was sending
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
        exchange = cast(Exchange, side)  # no other side answers with flights
        outcome.launch(context)
        try:
            landing = await outcome.first(exchange.limits.upgrade_after)
        except asyncio.CancelledError:  # Django cancels the view of a client that went away
            outcome.disconnected()
            raise
        opened = exchange.opened(outcome, landing)
        if opened is not None:
            changes = ChangeSource(opened, exchange.listeners.here())
            return _streaming(exchange, Stream(exchange.stream_headers(outcome), changes))
        if landing is not None:
            return _response(request, exchange.land(outcome, landing), outcome)
        return _streaming(exchange, exchange.stream(outcome))

    # The endpoint authenticates by itself, with bearer tokens: neither a cookie nor a login page has a part in it.
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
    """The body, or the first bytes beyond `limit`, which is enough to refuse it.

    Read here and not through `request.body`, whose limit (DATA_UPLOAD_MAX_MEMORY_SIZE) is meant for forms and answers
    with HTML; unless middleware has read it there.
    """
    body = request.body if hasattr(request, "_body") else request.read(limit + 1)
    keep_body(request, body)
    return body


def _response(request: HttpRequest, reply: Reply, flight: Flight | None = None) -> HttpResponseBase:
    if reply.status == 404:
        # The client has to see it. LocaleMiddleware would look for a page of this path below a language's prefix, where
        # a project's catch-all finds one, and redirect to it.
        request.urlconf = OWN_URLCONF
    response = HttpResponse(reply.body, status=reply.status)
    if flight is not None:
        response = _Answer(flight, reply.body, status=reply.status)
    if reply.status >= 500:
        # Being busy is no error of the site's, for which Django would send its ADMINS a mail each time
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
