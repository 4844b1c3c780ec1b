"""Django view of an endpoint: async, behind the URLconf and MIDDLEWARE.

Under WSGI it answers with complete responses: as JSON, or as a stream of one event for a client that accepts only that.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, cast

from django.contrib.auth.decorators import login_not_required
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.request import UnreadablePostError
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from mcp_django.protocol.headers import Headers
from mcp_django.runtime.calls.task import CallTask
from mcp_django.transports.http.django_context import copy_request_context
from mcp_django.transports.http.django_request import attach_user, set_body
from mcp_django.transports.http.endpoint import HTTPEndpoint
from mcp_django.transports.http.handler import StreamableHTTPEndpoint
from mcp_django.transports.http.listen import OpenedSubscription, SubscriptionSource
from mcp_django.transports.http.messages import HTTPReply, HTTPRequest, HTTPStream
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
        endpoint = get_endpoint()
        headers = read_headers(request)
        oversize = endpoint.is_oversize(headers)
        try:
            body = b"" if oversize else _read_body(request, endpoint.limits.body)
        except UnreadablePostError:  # The client disconnected while sending the body.
            return HttpResponse(status=400)

        context = copy_request_context()
        outcome = await endpoint.handle(
            HTTPRequest.from_django(request, headers, body, kwargs, is_oversize=oversize, context=context)
        )
        if not isinstance(outcome, CallTask):
            return _build_response(request, endpoint, outcome)
        # MIDDLEWARE may have stored the request in a context variable: code there must see the user of the token.
        attach_user(request, outcome.call.principal)
        answer = await _run_call(cast(StreamableHTTPEndpoint, endpoint), outcome, context)
        return _build_response(request, endpoint, answer, outcome)

    return exempt_view(view)


def exempt_view(view: View) -> View:
    """Exempt an async view from CSRF checks, the login page and ATOMIC_REQUESTS.

    The endpoints authenticate by bearer tokens, or serve anyone: cookies and the login page have no effect.
    """
    exempt: View = login_not_required(csrf_exempt(view))
    vars(exempt)["_non_atomic_requests"] = _AllDatabaseAliases()
    return exempt


async def _run_call(endpoint: StreamableHTTPEndpoint, task: CallTask, context: Context) -> HTTPReply | HTTPStream:
    """Run a call until its answer begins. Only this endpoint returns call tasks."""
    task.start(context)
    try:
        result = await task.wait_for_output(endpoint.limits.sse_upgrade_after)
    except asyncio.CancelledError:  # Django cancels the view when the client disconnects.
        task.on_disconnect()
        raise
    answer = endpoint.build_answer(task, result)
    if isinstance(answer, OpenedSubscription):
        return HTTPStream(answer.headers, SubscriptionSource(answer, endpoint.open_streams.get_loop_registry()))
    return answer


def read_headers(request: HttpRequest) -> Headers:
    """Return the headers of a Django request."""
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


def _build_response(
    request: HttpRequest, endpoint: HTTPEndpoint, answer: HTTPReply | HTTPStream, task: CallTask | None = None
) -> HttpResponseBase:
    if isinstance(answer, HTTPStream):
        body = SSEBody(answer.source, endpoint.limits.keep_alive)
        return _set_headers(StreamingHttpResponse(body), answer.headers)
    if answer.status == 404:
        # The client must get this 404. LocaleMiddleware would try the path below a language prefix, where a catch-all
        # pattern of the project matches, and redirect to it.
        request.urlconf = OWN_URLCONF
    response = HttpResponse(answer.body, status=answer.status)
    if task is not None:
        response = _CallResponse(task, answer.body, status=answer.status)
    return _set_headers(response, ((b"content-length", b"%d" % len(answer.body)), *answer.headers))


def build_response(reply: HTTPReply) -> HttpResponseBase:
    """Build a Django response with the headers of a reply as they are."""
    return _set_headers(HttpResponse(reply.body, status=reply.status), reply.headers)


def _set_headers(response: HttpResponseBase, headers: HeaderPairs) -> HttpResponseBase:
    if response.status_code >= 500:
        # An overload or a shutdown is not an error of the site, for which Django would mail its ADMINS each time
        # (django.utils.log.log_response). This package logs its own failures.
        vars(response)["_has_been_logged"] = True
    del response["Content-Type"]
    for name, value in headers:
        response[name.decode("latin-1")] = value.decode("latin-1")
    return response
