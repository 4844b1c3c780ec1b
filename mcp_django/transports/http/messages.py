"""Request and reply types of the ASGI app, the Django view and the endpoints."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextvars import Context
from functools import lru_cache, partial
from typing import Any, NamedTuple

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest

from mcp_django.auth.requests import AuthRequest
from mcp_django.protocol import sse
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.protocol.headers import Headers
from mcp_django.server.calls.call import NetworkInfo
from mcp_django.server.ports import Overloaded, Principal
from mcp_django.transports.http.django_request import attach_user
from mcp_django.transports.http.sse_body import SSESource
from mcp_django.transports.security import HeaderPairs

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
"""Types of an ASGI application."""

MAX_CACHED_HEADER_BYTES = 256
"""Maximum bytes of a cached header value; any client can fill the cache."""
JSON_TYPE = (b"content-type", b"application/json")
TEXT_TYPE = (b"content-type", b"text/plain; charset=utf-8")
NO_STORE = (b"cache-control", b"no-store")
SSE_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    # GZipMiddleware and proxies compress event by event, which most clients cannot decode; identity prevents it.
    (b"content-encoding", b"identity"),
    (b"x-accel-buffering", b"no"),
)


class HTTPReply(NamedTuple):
    """A complete HTTP response."""

    status: int
    body: bytes = b""
    headers: HeaderPairs = ()


class HTTPStream(NamedTuple):
    """An event stream without a call, as an HTTP response."""

    headers: HeaderPairs
    source: SSESource


class HTTPRequest(NamedTuple):
    """An HTTP request as the ASGI app or the Django view passes it to an endpoint."""

    method: str
    headers: Headers
    body: bytes
    peer: str | None = None
    """Address of the client; None when the server does not provide it."""
    url_kwargs: Mapping[str, Any] | None = None
    """Arguments captured by the URL pattern."""
    make_request: Callable[[Principal], Any] | None = None
    """Callable that builds the Django request at its first use."""
    supports_streaming: bool = True
    """True if the server can send an event stream."""
    is_oversize: bool = False
    """True if the body was left unread because its declared length exceeds the limit."""
    context: Context | None = None
    """Context in which code of the project runs; None for an empty one."""
    scheme: str = "http"
    """URL scheme of the request, as reported by the server."""
    http_version: str | None = None
    """Version of HTTP, as reported by the server."""
    peer_port: int | None = None
    """Port of the client; None when the server does not provide it."""
    has_threads: bool = True
    """False if the process serves one request at a time (WSGI)."""

    @classmethod
    def from_scope(
        cls,
        scope: Scope,
        headers: Headers,
        body: bytes,
        url_kwargs: Mapping[str, Any] | None,
        *,
        is_oversize: bool = False,
        make_request: Callable[[Principal], Any] | None = None,
        context: Context | None = None,
    ) -> "HTTPRequest":
        """Return the request of an ASGI scope, whose headers and body have been read."""
        client = scope.get("client")
        return cls(
            method=scope["method"],
            headers=headers,
            body=body,
            peer=client[0] if client else None,
            url_kwargs=url_kwargs,
            make_request=make_request,
            is_oversize=is_oversize,
            context=context,
            scheme=scope.get("scheme") or "http",
            http_version=scope.get("http_version"),
            peer_port=client[1] if client else None,
        )

    @classmethod
    def from_django(
        cls,
        request: HttpRequest,
        headers: Headers,
        body: bytes,
        url_kwargs: Mapping[str, Any] | None,
        *,
        is_oversize: bool = False,
        context: Context | None = None,
    ) -> "HTTPRequest":
        """Return the request of a Django view, whose headers and body have been read.

        Under WSGI it supports no streaming.
        """
        is_asgi = isinstance(request, ASGIRequest)
        if isinstance(request, ASGIRequest):
            version = request.scope.get("http_version")
        else:
            version = str(request.META.get("SERVER_PROTOCOL", "")).partition("/")[2] or None
        port = str(request.META.get("REMOTE_PORT", ""))
        return cls(
            method=request.method or "",
            headers=headers,
            body=body,
            peer=request.META.get("REMOTE_ADDR"),
            url_kwargs=url_kwargs,
            make_request=partial(attach_user, request),
            supports_streaming=is_asgi,
            is_oversize=is_oversize,
            context=context,
            scheme=request.scheme or "http",
            http_version=version,
            peer_port=int(port) if port.isdecimal() else None,
            has_threads=is_asgi or bool(request.META.get("wsgi.multithread", True)),
        )

    @property
    def network(self) -> NetworkInfo:
        """Network of the request, for telemetry."""
        return NetworkInfo("tcp", "http", self.http_version, self.peer, self.peer_port, self.scheme)

    def build_auth_request(self) -> AuthRequest:
        """Build the part of the request that authentication uses."""
        return AuthRequest(self.headers, self.peer, self.method, self.url_kwargs, self.scheme)


def build_refusal(refusal: TransportRefusal) -> HTTPReply:
    """Build the reply for a request that is rejected before its message is read."""
    header_names = {name for name, _ in refusal.headers}
    content_type = () if b"content-type" in header_names or not refusal.body else (TEXT_TYPE,)
    # Caches may store some error replies to a GET unless forbidden (RFC 9110, section 15.1).
    cache_control = () if NO_STORE[0] in header_names else (NO_STORE,)
    return HTTPReply(refusal.status, refusal.body, (*content_type, *cache_control, *refusal.headers))


def build_message_reply(status: int, body: bytes, request_headers: Headers, headers: HeaderPairs = ()) -> HTTPReply:
    """Build the reply with a complete response, in a media type that the client accepts.

    A client that accepts event streams only gets a stream of one event. Errors with another status than 200 are JSON.
    """
    if status != 200 or read_accept(request_headers)[0]:
        return HTTPReply(status, body, (JSON_TYPE, *headers))
    return HTTPReply(status, sse.event(body), (*SSE_HEADERS, *headers))


def build_overload_reply(error: Overloaded, body: bytes) -> HTTPReply:
    """Build the reply for a request that may be retried."""
    retry = (b"retry-after", b"%d" % max(1, round(error.retry_after)))
    return HTTPReply(error.status, body, (JSON_TYPE, retry))


def check_body(request: HTTPRequest, max_body_bytes: int) -> None:
    """Raise TransportRefusal for a body that is too large or not declared as JSON."""
    if request.is_oversize or len(request.body) > max_body_bytes:
        raise TransportRefusal(413, body=b"The body is larger than %d bytes." % max_body_bytes)
    content_type = request.headers.wire.get(b"content-type", b"")
    if content_type != b"application/json" and not is_json_content_type(content_type[:MAX_CACHED_HEADER_BYTES]):
        raise TransportRefusal(415, body=b"Content-Type must be application/json.")


@lru_cache(256)
def is_json_content_type(content_type: bytes) -> bool:
    """Return True for application/json, with or without parameters."""
    return content_type.partition(b";")[0].strip().lower() == b"application/json"


def check_accept(headers: Headers) -> None:
    """Raise TransportRefusal if the client does not accept event streams."""
    if not read_accept(headers)[1]:
        raise TransportRefusal(406, body=b"Accept must allow text/event-stream.")


def read_accept(headers: Headers) -> tuple[bool, bool]:
    """Return two flags: JSON accepted, event streams accepted."""
    accept = headers.wire.get(b"accept", b"*/*")
    return (parse_accept if len(accept) <= MAX_CACHED_HEADER_BYTES else parse_accept.__wrapped__)(accept)


@lru_cache(256)
def parse_accept(accept: bytes) -> tuple[bool, bool]:
    """Parse Accept into two flags: JSON accepted, event streams accepted.

    Clients must accept both, but many send one, or `*/*`. Results are cached, so values over `MAX_CACHED_HEADER_BYTES`
    must use the uncached function.
    """
    media_types = {part.partition(b";")[0].strip().lower() for part in accept.split(b",")}
    accepts_any = b"*/*" in media_types
    return (
        accepts_any or not media_types.isdisjoint({b"application/json", b"application/*"}),
        accepts_any or not media_types.isdisjoint({b"text/event-stream", b"text/*"}),
    )
