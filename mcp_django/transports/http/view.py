"""The Django door: the same exchange as an async view, behind the URLconf and MIDDLEWARE. Under WSGI it answers JSON
only.
"""

import asyncio
import io
from collections.abc import Callable, MutableMapping
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.request import RawPostDataException
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from ...protocol.headers import Headers
from ...server.ports import Principal
from ..guards import Pairs
from .exchange import Exchange, Request
from .exchange import Reply as ExchangeReply
from .stream import EventStream

View = Callable[..., Any]


class _EveryAlias(set[str]):
    """ATOMIC_REQUESTS does not apply to the view: an async view cannot honour it."""

    def __contains__(self, alias: object) -> bool:
        return True


def as_view(find: Callable[[], Exchange]) -> View:
    """The view of one endpoint. `find` gives its exchange, made at the first request."""

    async def view(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        exchange = find()
        streams, headers = isinstance(request, ASGIRequest), _headers(request)
        oversize = exchange.declares_too_much(headers)
        asked = Request(
            request.method or "",
            headers,
            b"" if oversize else _body(request, exchange.limits.body),
            request.META.get("REMOTE_ADDR"),
            kwargs,
            lambda principal: with_user(request, principal),
            streams,
            oversize,
        )
        outcome = await exchange.handle(asked)
        if isinstance(outcome, ExchangeReply):
            return _response(*outcome)
        outcome.launch()
        try:
            landing = await outcome.first(exchange.limits.upgrade_after)
        except asyncio.CancelledError:  # Django cancels the view of a client that went away
            outcome.disconnected()
            raise
        if landing is not None:
            return _response(*exchange.land(outcome, landing))
        response = StreamingHttpResponse(EventStream(outcome, exchange.limits.keep_alive))
        return _with(response, exchange.stream_headers(outcome))

    exempt: View = csrf_exempt(view)
    vars(exempt)["_non_atomic_requests"] = _EveryAlias()
    return exempt


def make_request(scope: MutableMapping[str, Any], body: bytes, principal: Principal) -> HttpRequest:
    """The Django request of an exchange through the ASGI door, for the handlers that want one."""
    return with_user(ASGIRequest(scope, io.BytesIO(body)), principal)


def with_user(request: HttpRequest, principal: Principal) -> HttpRequest:
    """`request.user` is who the credential says, on both doors."""
    request.user = AnonymousUser() if principal.user is None else principal.user
    return request


def _headers(request: HttpRequest) -> Headers:
    if isinstance(request, ASGIRequest):
        return Headers(request.scope["headers"])
    return Headers(
        [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()]
    )


def _body(request: HttpRequest, limit: int) -> bytes:
    """The body, or the first bytes beyond `limit`, which is enough to refuse it.

    Read here and not through `request.body`, whose limit (DATA_UPLOAD_MAX_MEMORY_SIZE) is meant for forms and answers
    with HTML.
    """
    try:
        body = request.read(limit + 1)
    except RawPostDataException:  # middleware has read it
        body = request.body
    request._body = body
    return body


def _response(status: int, body: bytes, headers: Pairs) -> HttpResponseBase:
    return _with(HttpResponse(body, status=status), ((b"content-length", b"%d" % len(body)), *headers))


def _with(response: HttpResponseBase, headers: Pairs) -> HttpResponseBase:
    del response["Content-Type"]
    for name, value in headers:
        response[name.decode("latin-1")] = value.decode("latin-1")
    return response
