"""HTTP+SSE: the transport of the first revision (2024-11-05, basic/transports).

A GET opens the stream for all messages of the server. Its first event, `endpoint`, is the URI for the POSTs of the
client. Each POST is answered with 202, and its result is sent on the stream. The session ends with the stream. All
revisions of the handshake era can be used.
"""

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django.db import Error
from django.utils.encoding import escape_uri_path

from mcp_django.aio.tasks import run_aside
from mcp_django.auth.throttling.checks import admit_address
from mcp_django.protocol import jsonrpc, sse
from mcp_django.protocol.errors import InternalError, MCPError, TransportRefusal
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.revisions import Era
from mcp_django.runtime.calls.concurrency import InFlight
from mcp_django.runtime.sealing import Stamp
from mcp_django.runtime.streams.sse_messages import Fate, Posts, ProcessPosts
from mcp_django.server.ports import Overloaded, Principal
from mcp_django.server.server import Server
from mcp_django.transports.connection.connection import Duplex
from mcp_django.transports.connection.options import Terms
from mcp_django.transports.connection.registry import Duplexes
from mcp_django.transports.credentials import Credential
from mcp_django.transports.http.messages import (
    JSON_TYPE,
    SSE_HEADERS,
    TEXT_TYPE,
    HTTPLimits,
    Reply,
    Request,
    Stream,
    check_accept,
    check_body,
    overloaded,
    refused,
)
from mcp_django.transports.security import Pairs

logger = logging.getLogger("mcp_django.server")

PATH = "sse"
"""Path below the path of the endpoint."""
SESSION = "session_id"
"""Query parameter with the name of the stream.

The official SDKs treat it as the session id.
"""
LONGEST_QUERY = 2048
"""Maximum bytes of a query string to parse."""
PIECE = 64 * 1024
"""Approximate maximum bytes of one chunk for the server.

A larger message is sent alone.
"""
TAKE_WITHIN = 2.0
"""Seconds that a message may wait for a client that does not read its stream.

It must be less than the time another worker waits for the status, including one log poll on either side
(`runtime/streams/sse_messages.py`).
"""
METHODS, GET_ONLY = b"GET, POST, OPTIONS", b"GET, OPTIONS"
ACCEPTED = b"Accepted"
NO_STREAM = b"Unknown stream; open a new one with GET."
GET_FIRST = b"Send messages to the URI in the event named endpoint; a GET of this URI opens its stream."
NOT_HERE = b"HTTP+SSE needs an ASGI server. Use Streamable HTTP at the path without /sse."


def serves_legacy_sse(server: Server) -> bool:
    """Return True if the server enables HTTP+SSE and serves the handshake era."""
    return "sse" in server.options.transports and Era.HANDSHAKE in server.eras


class LegacySSE:
    """The HTTP+SSE endpoint of one server, for the ASGI app and the Django view."""

    def __init__(
        self,
        duplexes: Duplexes,
        *,
        alias: str,
        stamp: Stamp,
        posts: ProcessPosts,
        limits: HTTPLimits,
    ) -> None:
        """Set the dependencies; `signer` signs the names of streams."""
        self.limits = limits
        self._duplexes, self._alias, self._stamp, self._posts = duplexes, alias, stamp, posts
        self._authenticator, self._guard = duplexes.authenticator, duplexes.guard
        self._waiting = InFlight(duplexes.limits.in_flight)
        """POSTs that wait for their delivery, counted by stream name."""
        self._bringing: set[asyncio.Task[Fate]] = set()

    async def handle(self, request: Request) -> Reply | Stream:
        """Handle a request; the answer to a GET is a stream."""
        headers = request.headers
        try:
            self._guard.check(headers)
            if request.method == "OPTIONS":
                return Reply(204, b"", self._guard.preflight(headers, METHODS if request.streams else b"OPTIONS"))

            asked = request.asked()
            await admit_address(asked, self._duplexes.executor)
            principal = self._authenticator.known(asked)
            if principal is None:
                principal = await self._authenticator.admit(asked)
            if not request.streams:
                raise TransportRefusal(405, [(b"allow", b"OPTIONS")], NOT_HERE)
            if request.method == "GET":
                return await self._open(request, principal)
            if request.method == "POST":
                return await self._post(request, principal)
            raise TransportRefusal(405, [(b"allow", METHODS)])
        except TransportRefusal as refusal:
            return refused(refusal, self._cors(headers))
        except MCPError as problem:
            return Reply(400, jsonrpc.error(problem.request_id, problem), (JSON_TYPE, *self._cors(headers)))
        except Overloaded as problem:
            return self._overloaded(problem, headers)
        except Error:
            logger.exception("Database error in an HTTP+SSE request")
            return self._overloaded(Overloaded("The database does not answer; try again later"), headers)

    async def _open(self, request: Request, principal: Principal) -> Stream:
        headers = request.headers
        check_accept(headers)
        opened = _opened(request, principal)
        terms = Terms(
            credential=Credential.of(principal, self._authenticator, request.asked()),
            headers=headers,
            kwargs=request.kwargs,
            make_request=request.make_request,
            context=request.context,
            eras=frozenset({Era.HANDSHAKE}),
        )
        channel = Channel(self._duplexes.open(principal, terms), principal.scopes, self.limits.unsent_wait)
        try:
            # Register first: the client may send as soon as it has the URI.
            name = await channel.join(self._posts.here())
        except BaseException:
            channel.left()
            raise

        query = urlencode({SESSION: self._stamp.mark(name, self._binding(principal))})
        channel.greet(f"{path_of(opened)}?{query}")
        return Stream((*SSE_HEADERS, *self._cors(headers)), channel)

    async def _post(self, request: Request, principal: Principal) -> Reply:
        given = _named(_opened(request, principal).META.get("QUERY_STRING", ""))
        if given is None:
            # Clients of later revisions try a POST first and fall back on this status (2025-11-25, basic/transports,
            # backwards compatibility).
            raise TransportRefusal(405, [(b"allow", GET_ONLY)], GET_FIRST)

        name = self._stamp.read(given, self._binding(principal))
        if name is None:
            raise TransportRefusal(404, body=NO_STREAM)

        check_body(request, self.limits)
        jsonrpc.decode(request.body, max_nesting=self.limits.nesting)
        if not self._waiting.enter(name):
            raise Overloaded(f"More than {self._waiting.limit} messages are waiting to be received", status=429)

        # Continue after a disconnect: a message on its way to another worker still counts.
        work = self._bring(name, request.body, principal.scopes)
        bringing = asyncio.get_running_loop().create_task(work, context=contextvars.Context())
        self._bringing.add(bringing)
        bringing.add_done_callback(self._brought)
        fate = await asyncio.shield(bringing)
        if fate is Fate.BUSY:
            raise Overloaded("The stream is read too slowly; read it and try again")
        if fate is not Fate.TAKEN:
            raise TransportRefusal(404, body=NO_STREAM)

        return Reply(202, ACCEPTED, (TEXT_TYPE, *self._cors(request.headers)))

    async def _bring(self, name: str, body: bytes, scopes: frozenset[str]) -> Fate:
        try:
            return await self._posts.here().post(name, body, scopes)
        finally:
            self._waiting.leave(name)

    def _brought(self, bringing: "asyncio.Task[Fate]") -> None:
        self._bringing.discard(bringing)
        if not bringing.cancelled():
            bringing.exception()  # Retrieve the exception, because the awaiting request may be gone.

    def _binding(self, principal: Principal) -> str:
        """Return the server and the principal that a stream name is bound to."""
        return f"{len(self._alias)}.{self._alias}{principal.key}"

    def _cors(self, headers: Headers) -> Pairs:
        return self._guard.cors(headers)

    def _overloaded(self, problem: Overloaded, headers: Headers) -> Reply:
        return overloaded(problem, jsonrpc.error(None, InternalError(str(problem))), self._cors(headers))


class Channel:
    """The stream of a client: an `SSESource` and a `MessageReceiver` for its POSTs."""

    def __init__(self, duplex: Duplex, scopes: frozenset[str], patience: float) -> None:
        """Wrap a connection.

        `scopes` are the scopes of the request that opened the stream. `close_timeout` is the seconds that the client
        has to read the pending messages at the end.
        """
        self._duplex, self._scopes, self._patience = duplex, scopes, patience
        self._alarm: asyncio.TimerHandle | None = None
        duplex.on_end = self._ended
        self._greeting: bytes | None = None
        self._unsent: deque[bytes] = deque()
        self._part: Callable[[], object] = _nothing
        self._over = False

    async def join(self, posts: Posts) -> str:
        """Register for messages and return the name of the stream. Raises Overloaded."""
        name = await posts.add(self)
        self._part = partial(posts.discard, name)
        return name

    def greet(self, uri: str) -> None:
        """Set the URI of the first event, to which the client sends its messages."""
        self._greeting = sse.event(uri.encode("ascii"), event="endpoint")

    async def read(self, patience: float) -> bytes | None:
        """Return the next events, a comment after `timeout`, or None at the end."""
        greeting, self._greeting = self._greeting, None
        if greeting is not None:
            return greeting
        if self._unsent:
            self._duplex.moved()
        else:
            messages = await self._duplex.read(patience)
            if messages is None:
                return None
            self._unsent.extend(messages)
        return self._piece() if self._unsent else sse.KEEP_ALIVE

    def _piece(self) -> bytes:
        """Return some of the pending messages as events.

        Chunks are limited, because servers copy them, and because each chunk read shows that a slow client is alive.
        """
        piece = [sse.event(self._unsent.popleft())]
        size = len(piece[0])
        while self._unsent and size + len(self._unsent[0]) <= PIECE:
            piece.append(sse.event(self._unsent.popleft()))
            size += len(piece[-1])
        return b"".join(piece)

    async def take(self, body: bytes, scopes: frozenset[str]) -> Fate:
        """Receive a message from the owner of the stream, whose credential has `scopes`."""
        if self._duplex.ending is not None:
            return Fate.GONE
        if not scopes >= self._scopes:
            return Fate.REFUSED
        try:
            async with asyncio.timeout(TAKE_WITHIN):
                await self._duplex.receive(body)
        except TimeoutError:
            return self._busy()
        return Fate.TAKEN

    def _busy(self) -> Fate:
        return Fate.BUSY if self._duplex.ending is None else Fate.GONE

    def sent(self) -> None:
        """Ignore the notice of the last byte. Thread-safe."""

    def _ended(self) -> None:
        """Close the stream; a send to a client that does not read may never return."""
        ending = self._duplex.ending
        if ending is None or not ending.sends_rest:
            self.left()
        elif not self._over:
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_later(self._patience, self.left, context=contextvars.Context())

    def left(self) -> None:
        """Release the stream. Called also after the end, and maybe more than once."""
        if not self._over:
            self._over = True
            self._part()
            if self._alarm is not None:
                self._alarm.cancel()
            run_aside(self._duplex.close())


def _opened(request: Request, principal: Principal) -> Any:
    """Build the Django request, which has the path and query in both transports."""
    if request.make_request is None:
        raise TypeError("HTTP+SSE needs an app or view that builds Django requests")
    return request.make_request(principal)


def path_of(request: Any) -> str:
    """Return the path of a Django request as the client wrote it."""
    path = f"{request.script_name.rstrip('/')}/{request.path_info.lstrip('/')}"
    # Two leading slashes would name another host (RFC 3986, section 4.2).
    return escape_uri_path(f"/{path.lstrip('/')}")


def _named(query: str) -> str | None:
    """Return the signed stream name in a query string, or None."""
    try:
        found = parse_qsl(query[:LONGEST_QUERY], keep_blank_values=True)
    except ValueError:
        return None
    return next((value for key, value in found if key == SESSION), None)


def _nothing() -> None:
    """Replace `_unregister` until the stream is registered."""
