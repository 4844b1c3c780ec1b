"""HTTP+SSE: the transport of the first revision (2024-11-05, basic/transports).

A GET opens the stream for all messages of the server. Its first event, `endpoint`, is the URI for the POSTs of the
client. Each POST is answered with 202, and its result is sent on the stream. The session ends with the stream. All
revisions of the handshake era can be used.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django.utils.encoding import escape_uri_path

from mcp_django import conf, wiring
from mcp_django.aio.tasks import BackgroundTasks, run_in_background, start_timer
from mcp_django.protocol import sse
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.protocol.revisions import Era
from mcp_django.runtime.concurrency import ConcurrencyLimiter
from mcp_django.runtime.sealing import NameSigner
from mcp_django.runtime.streams.sse_messages import DeliveryStatus, SSEMessageRouter
from mcp_django.server.ports import Overloaded, Principal
from mcp_django.server.server import Server
from mcp_django.transports.connection.connection import DuplexConnection, open_connection
from mcp_django.transports.connection.options import ConnectionOptions
from mcp_django.transports.connection.outbound import is_progress
from mcp_django.transports.credentials import Credential
from mcp_django.transports.http.endpoint import HTTPEndpoint
from mcp_django.transports.http.messages import (
    SSE_HEADERS,
    TEXT_TYPE,
    HTTPReply,
    HTTPRequest,
    HTTPStream,
    check_accept,
    check_body,
)
from mcp_django.transports.http.sse_body import SSESource
from mcp_django.transports.services import TransportServices, get_transport_services
from mcp_django.wiring.services import Services

PATH = "sse"
"""Path below the path of the endpoint."""
SESSION_PARAMETER = "session_id"
"""Query parameter with the name of the stream.

The official SDKs treat it as the session id.
"""
MAX_QUERY_BYTES = 2048
"""Maximum bytes of a query string to parse."""
MAX_CHUNK_BYTES = 64 * 1024
"""Approximate maximum bytes of one chunk for the server.

A larger message is sent alone.
"""
PROGRESS_PAUSE_SECONDS = 0.02
"""Seconds between progress and an answer, in which the client reads the progress."""
RECEIVE_TIMEOUT_SECONDS = 2.0
"""Seconds that a message may wait for a client that does not read its stream.

It must be less than the time another worker waits for the status, including one log poll on either side
(`runtime/streams/sse_messages.py`).
"""
MAX_WAITING_POSTS = 256
"""Maximum POSTs of one stream that wait until their messages are received."""
METHODS, GET_ONLY = b"GET, POST, OPTIONS", b"GET, OPTIONS"
ACCEPTED_BODY = b"Accepted"
NO_STREAM_BODY = b"Unknown stream; open a new one with GET."
GET_FIRST_BODY = b"Send messages to the URI in the event named endpoint; a GET of this URI opens its stream."
ASGI_REQUIRED_BODY = b"HTTP+SSE needs an ASGI server. Use Streamable HTTP at the path without /sse."


def is_legacy_sse_enabled(server: Server) -> bool:
    """Return True if the server enables HTTP+SSE and serves the handshake era."""
    return "sse" in server.options.transports and Era.HANDSHAKE in server.eras


class LegacySSEEndpoint(HTTPEndpoint):
    """The HTTP+SSE endpoint of one server."""

    def __init__(self, services: TransportServices) -> None:
        super().__init__(services)
        self._signer = NameSigner(conf.secret_keys(), purpose="stream")
        """Signer of the names of streams."""
        self._message_routers = wiring.get_services().process.sse_message_routers
        self._post_limiter = ConcurrencyLimiter(MAX_WAITING_POSTS)
        """POSTs that wait for their delivery, counted by stream name."""
        self._deliveries = BackgroundTasks(on_error=_ignore_failure)

    def list_methods(self, request: HTTPRequest) -> bytes:
        return METHODS if request.supports_streaming else b"OPTIONS"

    async def respond(self, request: HTTPRequest, principal: Principal) -> HTTPReply | HTTPStream:
        """Respond to a request; the answer to a GET is a stream."""
        if not request.supports_streaming:
            raise TransportRefusal(405, [(b"allow", b"OPTIONS")], ASGI_REQUIRED_BODY)
        if request.method == "GET":
            return await self._open(request, principal)
        if request.method == "POST":
            return await self._post(request, principal)
        raise TransportRefusal(405, [(b"allow", METHODS)])

    async def _open(self, request: HTTPRequest, principal: Principal) -> HTTPStream:
        headers = request.headers
        check_accept(headers)
        django_request = _build_django_request(request, principal)
        options = ConnectionOptions(
            credential=Credential.from_principal(principal, self._authenticator, request.build_auth_request()),
            headers=headers,
            url_kwargs=request.url_kwargs,
            make_request=request.make_request,
            context=request.context,
            network=request.network,
            eras=frozenset({Era.HANDSHAKE}),
        )
        stream = LegacySSEStream(
            open_connection(self._services, principal, options), principal.scopes, self.limits.send_timeout
        )
        try:
            # Register first: the client may send as soon as it has the URI.
            name = await stream.register(self._message_routers.get())
        except BaseException:
            stream.close()
            raise

        query = urlencode({SESSION_PARAMETER: self._signer.sign(name, self._build_binding(principal))})
        stream.set_endpoint(f"{get_client_path(django_request)}?{query}")
        return HTTPStream(SSE_HEADERS, stream)

    async def _post(self, request: HTTPRequest, principal: Principal) -> HTTPReply:
        signed_name = _find_stream_name(_build_django_request(request, principal).META.get("QUERY_STRING", ""))
        if signed_name is None:
            # Clients of later revisions try a POST first and fall back on this status (2025-11-25, basic/transports,
            # backwards compatibility).
            raise TransportRefusal(405, [(b"allow", GET_ONLY)], GET_FIRST_BODY)

        name = self._signer.unsign(signed_name, self._build_binding(principal))
        if name is None:
            raise TransportRefusal(404, body=NO_STREAM_BODY)

        check_body(request, self.limits.body)
        self._admission.decode(request.body)
        if not self._post_limiter.acquire(name):
            raise Overloaded(
                f"More than {self._post_limiter.max_calls_per_owner} messages are waiting to be received", status=429
            )

        # Continue after a disconnect: a message on its way to another worker still counts.
        status = await asyncio.shield(self._deliveries.spawn(self._deliver(name, request.body, principal.scopes)))
        if status is DeliveryStatus.BUSY:
            raise Overloaded("Too many calls or unread messages are waiting; read the stream and try again")
        if status is not DeliveryStatus.TAKEN:
            raise TransportRefusal(404, body=NO_STREAM_BODY)

        return HTTPReply(202, ACCEPTED_BODY, (TEXT_TYPE,))

    async def _deliver(self, name: str, body: bytes, scopes: frozenset[str]) -> DeliveryStatus:
        try:
            return await self._message_routers.get().post(name, body, scopes)
        finally:
            self._post_limiter.release(name)

    def _build_binding(self, principal: Principal) -> str:
        """Return the server and the principal that a stream name is bound to."""
        alias = self._server.alias
        return f"{len(alias)}.{alias}{principal.key}"


def get_legacy_sse(alias: str = "default") -> LegacySSEEndpoint:
    """Return the HTTP+SSE endpoint of a server alias."""
    return wiring.get_services().get_or_build(_build_legacy_sse, alias)


def _build_legacy_sse(services: Services, alias: str) -> LegacySSEEndpoint:
    return LegacySSEEndpoint(get_transport_services(alias))


class LegacySSEStream(SSESource):
    """The stream of a client, and a `MessageReceiver` for its POSTs."""

    def __init__(self, connection: DuplexConnection, scopes: frozenset[str], close_timeout: float) -> None:
        """Wrap a connection.

        `scopes` are the scopes of the request that opened the stream. `close_timeout` is the seconds that the client
        has to read the pending messages at the end.
        """
        self._connection = connection
        self._scopes = scopes
        self._close_timeout = close_timeout
        self._close_timer: asyncio.TimerHandle | None = None
        connection.on_end = self._on_connection_end
        self._endpoint_event: bytes | None = None
        self._unsent: deque[bytes] = deque()
        self._follows_progress = False
        """True if the last message that was sent is a progress notification."""
        self._unregister: Callable[[], object] | None = None
        self._is_closed = False

    async def register(self, router: SSEMessageRouter) -> str:
        """Register for messages and return the name of the stream. Raises Overloaded."""
        name = await router.add(self)
        self._unregister = partial(router.remove, name)
        return name

    def set_endpoint(self, uri: str) -> None:
        """Set the URI of the first event, to which the client sends its messages."""
        self._endpoint_event = sse.event(uri.encode("ascii"), event="endpoint")

    async def read(self, timeout: float) -> bytes | None:
        endpoint_event = self._endpoint_event
        self._endpoint_event = None
        if endpoint_event is not None:
            return endpoint_event
        if self._unsent:
            self._connection.mark_progress()
        else:
            messages = await self._connection.read(timeout)
            if messages is None:
                return None
            self._unsent.extend(messages)
        if not self._unsent:
            return sse.KEEP_ALIVE
        if self._follows_progress and not is_progress(self._unsent[0]):
            await asyncio.sleep(PROGRESS_PAUSE_SECONDS)
        return self._next_chunk()

    def _next_chunk(self) -> bytes:
        """Return some of the pending messages as events.

        Chunks are limited, because servers copy them, and because each chunk read shows that a slow client is alive. An
        answer is in another chunk than progress before it (`split_after_progress`), after a pause.
        """
        message = self._unsent.popleft()
        events = [sse.event(message)]
        size = len(events[0])
        while self._unsent and size + len(self._unsent[0]) <= MAX_CHUNK_BYTES:
            if is_progress(message) and not is_progress(self._unsent[0]):
                break
            message = self._unsent.popleft()
            events.append(sse.event(message))
            size += len(events[-1])
        self._follows_progress = is_progress(message)
        return b"".join(events)

    async def receive(self, body: bytes, scopes: frozenset[str]) -> DeliveryStatus:
        """Receive a message from the owner of the stream, whose credential has `scopes`."""
        if self._connection.is_ended():
            return DeliveryStatus.GONE
        if not scopes >= self._scopes:
            return DeliveryStatus.REFUSED
        try:
            async with asyncio.timeout(RECEIVE_TIMEOUT_SECONDS):
                await self._connection.receive(body)
        except TimeoutError:
            return DeliveryStatus.GONE if self._connection.is_ended() else DeliveryStatus.BUSY
        return DeliveryStatus.TAKEN

    def _on_connection_end(self) -> None:
        """Close the stream; a send to a client that does not read may never return."""
        reason = self._connection.close_reason
        if reason is None or not reason.sends_pending:
            self.close()
        elif not self._is_closed:
            self._close_timer = start_timer(self._close_timeout, self.close)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            if self._unregister is not None:
                self._unregister()
            if self._close_timer is not None:
                self._close_timer.cancel()
            run_in_background(self._connection.close())


def _build_django_request(request: HTTPRequest, principal: Principal) -> Any:
    """Build the Django request, which has the path and query in both transports."""
    if request.make_request is None:
        raise TypeError("HTTP+SSE needs an app or view that builds Django requests")
    return request.make_request(principal)


def get_client_path(request: Any) -> str:
    """Return the path of a Django request as the client wrote it."""
    path = f"{request.script_name.rstrip('/')}/{request.path_info.lstrip('/')}"
    # Two leading slashes would name another host (RFC 3986, section 4.2).
    return escape_uri_path(f"/{path.lstrip('/')}")


def _find_stream_name(query: str) -> str | None:
    """Return the signed stream name in a query string, or None."""
    try:
        parameters = parse_qsl(query[:MAX_QUERY_BYTES], keep_blank_values=True)
    except ValueError:
        return None
    return next((value for key, value in parameters if key == SESSION_PARAMETER), None)


def _ignore_failure(error: BaseException) -> None:
    """Ignore the failure of a delivery: the request raises it, unless it is gone."""
