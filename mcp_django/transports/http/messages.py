"""What the doors and the HTTP sides of a server hand each other, and what every side says alike."""

from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from mcp_django.auth.requests import AuthRequest
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.protocol.headers import Headers
from mcp_django.runtime.calls.task import Flight
from mcp_django.server.ports import Overloaded, Principal
from mcp_django.transports.http.sse_body import Source
from mcp_django.transports.security import Pairs

KNOWN_LENGTH = 256
"""Bytes of headers whose meaning is remembered. Anybody can send what is remembered."""
JSON_TYPE = (b"content-type", b"application/json")
TEXT_TYPE = (b"content-type", b"text/plain; charset=utf-8")
NO_STORE = (b"cache-control", b"no-store")
SSE_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    # GZipMiddleware and proxies compress event by event, which most clients cannot read; identity keeps them off.
    (b"content-encoding", b"identity"),
    (b"x-accel-buffering", b"no"),
)


class Reply(NamedTuple):
    """A whole HTTP answer."""

    status: int
    body: bytes = b""
    headers: Pairs = ()


class Stream(NamedTuple):
    """An event stream that is the answer to no call."""

    headers: Pairs
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPLimits:
    """What one exchange may take."""

    body: int = 4 << 20
    """Bytes."""
    nesting: int = 64
    upgrade_after: float = 5.0
    """Seconds after which a running call's answer becomes a stream."""
    keep_alive: float = 15.0
    """Seconds of silence on a stream before a comment is sent."""
    unsent: int = 64
    """Messages that may wait for a slow reader."""
    unsent_wait: float = 60.0
    """Seconds that they may do so while the handler waits, too."""
    _digits: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_digits", len(str(self.body)))

    def exceeded(self, headers: Headers) -> bool:
        """Does the request announce a body over the limit? Then it need not be read."""
        length = headers.get(b"content-length", b"")
        # Most lengths have fewer digits than the limit, and need no arithmetic.
        return len(length) >= self._digits and length.isdigit() and int(length[:20]) > self.body


class Request(NamedTuple):
    """What a door hands over."""

    method: str
    headers: Headers
    body: bytes
    peer: str | None = None
    """The client's address; None when the server does not say."""
    kwargs: Mapping[str, Any] | None = None
    """What the URL pattern captured."""
    make_request: Callable[[Principal], Any] | None = None
    """Makes the Django request at its first use."""
    streams: bool = True
    """Can this door send an event stream?"""
    oversize: bool = False
    """Has the door left the body unread, because it is declared to be over the limit?"""
    context: Context | None = None
    """Where the project's code runs for this request; None for a clean one."""
    scheme: str = "http"
    """What the server says it was asked by."""

    def asked(self) -> AuthRequest:
        """What authentication looks at."""
        return AuthRequest(self.headers, self.peer, self.method, self.kwargs, self.scheme)


class Side(Protocol):
    """One of the HTTP sides of a server: what a door serves. Only an `Exchange` answers with flights."""

    limits: HTTPLimits

    def handle(self, request: Request) -> Awaitable[Reply | Stream | Flight]:
        """The answer, or a flight to launch."""


def refused(refusal: TransportRefusal, cors: Pairs) -> Reply:
    """The answer given before there is a message."""
    said = {name for name, _ in refusal.headers}
    typed = () if b"content-type" in said or not refusal.body else (TEXT_TYPE,)
    # A cache may keep some refusals of a GET unless it is told not to (RFC 9110, section 15.1).
    kept = () if NO_STORE[0] in said else (NO_STORE,)
    return Reply(refusal.status, refusal.body, (*typed, *kept, *refusal.headers, *cors))


def overloaded(problem: Overloaded, body: bytes, cors: Pairs) -> Reply:
    """The answer to what may be tried again."""
    retry = (b"retry-after", b"%d" % max(1, round(problem.retry_after)))
    return Reply(problem.status, body, (JSON_TYPE, retry, *cors))


def check_body(request: Request, limits: HTTPLimits) -> None:
    """Raise TransportRefusal for a body that is too large, or not said to be JSON."""
    if request.oversize or len(request.body) > limits.body:
        raise TransportRefusal(413, body=b"The body is larger than %d bytes." % limits.body)
    kind = request.headers.get(b"content-type", b"")
    if kind != b"application/json" and not is_json(kind[:KNOWN_LENGTH]):
        raise TransportRefusal(415, body=b"Content-Type must be application/json.")


@lru_cache(256)
def is_json(content_type: bytes) -> bool:
    """Does a Content-Type say JSON?"""
    return content_type.partition(b";")[0].strip().lower() == b"application/json"


def check_accept(headers: Headers) -> None:
    """Raise TransportRefusal when the client takes no event streams."""
    if not known_accepted.__wrapped__(headers.get(b"accept", b"*/*"))[1]:
        raise TransportRefusal(406, body=b"Accept must allow text/event-stream.")


@lru_cache(256)
def known_accepted(accept: bytes) -> tuple[bool, bool]:
    """Does the client take JSON, and does it take event streams? It must take both, but many say one, or anything.
    Remembered, so not for what is longer than KNOWN_LENGTH.
    """
    kinds = {part.partition(b";")[0].strip().lower() for part in accept.split(b",")}
    anything = b"*/*" in kinds
    return (
        anything or not kinds.isdisjoint({b"application/json", b"application/*"}),
        anything or not kinds.isdisjoint({b"text/event-stream", b"text/*"}),
    )
