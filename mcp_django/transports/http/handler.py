"""Streamable HTTP endpoint: turn a request into a reply or a running call.

The checks follow the order of the transport page of the specification (basic/transports/streamable-http). It is: Origin
and Host, credentials, HTTP method and media types, JSON, message shape, era, and then the rules of the era.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextvars import Context
from typing import Any

from django.db import Error

from mcp_django.auth.authentication.authenticator import Authenticator
from mcp_django.auth.requests import AuthRequest
from mcp_django.auth.throttling.checks import admit_address, admit_messages
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InsufficientScope, InternalError, InvalidRequest, MCPError, TransportRefusal
from mcp_django.protocol.headers import PROTOCOL_VERSION, SESSION_ID, Headers
from mcp_django.protocol.revisions import HANDSHAKE, REVISIONS, Era
from mcp_django.runtime.calls.concurrency import InFlight
from mcp_django.runtime.calls.task import Flight, Landing
from mcp_django.runtime.shutdown import CLOSING, Lifecycle
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import Receipt, Work
from mcp_django.server.calls.session import Session
from mcp_django.server.eras import select
from mcp_django.server.eras.base import Era as EraStrategy
from mcp_django.server.eras.handshake import opens_without_session
from mcp_django.server.pipeline import Pipeline
from mcp_django.server.ports import Overloaded, Principal
from mcp_django.transports.credentials import Warrant
from mcp_django.transports.http.get_stream import SessionStreams
from mcp_django.transports.http.listen import Opened
from mcp_django.transports.http.messages import (
    JSON_TYPE,
    KNOWN_LENGTH,
    NO_STORE,
    SSE_HEADERS,
    HTTPLimits,
    Reply,
    Request,
    Stream,
    check_accept,
    check_body,
    known_accepted,
    overloaded,
    refused,
)
from mcp_django.transports.http.sse_body import Events, Messages, Source, WatchedSource
from mcp_django.transports.security import Guard, Pairs
from mcp_django.transports.stream_registry import Listeners

logger = logging.getLogger("mcp_django.server")

LOOPBACK = "127.0.0.1"
VERSIONS = {version.encode(): version for version in REVISIONS}


class Exchange:
    """The Streamable HTTP endpoint of one server."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        authenticator: Authenticator,
        guard: Guard,
        in_flight: InFlight,
        lifecycle: Lifecycle,
        limits: HTTPLimits,
        session_streams: SessionStreams | None = None,
        allow_get: bool = True,
        allow_delete: bool = True,
    ) -> None:
        """Set the dependencies.

        `session_streams` stores and resumes the streams of sessions. Without it events have no ids. `allow_get` and
        `allow_delete` enable these methods.
        """
        self.limits, self._lifecycle, self._session_streams = limits, lifecycle, session_streams
        self._rings = None if session_streams is None else session_streams.streams
        self.listeners = Listeners(lifecycle, every=limits.keep_alive, patience=limits.unsent_wait)
        self._pipeline, self._authenticator, self._guard, self._in_flight = pipeline, authenticator, guard, in_flight
        self._server = pipeline.server
        self._keeps_sessions = Era.HANDSHAKE in pipeline.server.eras and pipeline.server.options.require_session
        self._allow_get = allow_get and session_streams is not None and self._keeps_sessions
        self._allow_delete = allow_delete and self._keeps_sessions

    async def handle(self, request: Request) -> Reply | Stream | Flight:
        """Handle a request; return a reply, a stream, or a call task to start.

        `build_reply` or `build_stream` turns the result of the task into an answer.
        """
        headers, pipeline = request.headers, self._pipeline
        era: EraStrategy = pipeline.stateless
        try:
            self._guard.check(headers)  # Step 1: Host and Origin.
            if request.method == "OPTIONS":
                return Reply(204, b"", self._guard.preflight(headers, self._methods(request)))
            asked = request.asked()
            await admit_address(asked, self._server.executor)
            principal = self._authenticator.known(asked)  # Step 2: credentials.
            if principal is None:
                principal = await self._authenticator.admit(asked)
            if request.method != "POST":
                return await self._other(request, principal)  # Step 3: HTTP method and media types.
            check_body(request, self.limits)
            accept = headers.get(b"accept", b"*/*")
            json, streams = (known_accepted if len(accept) <= KNOWN_LENGTH else known_accepted.__wrapped__)(accept)
            if not (json or streams):
                raise TransportRefusal(406, body=b"Accept must allow application/json or text/event-stream.")
            streams = streams and request.streams
            connection = Connection(
                principal,
                headers=headers,
                kwargs=request.kwargs,
                make_request=request.make_request,
                streams=request.streams,
            )
            raw = jsonrpc.decode(request.body, max_nesting=self.limits.nesting)  # Step 4: JSON.
            await admit_messages(principal, raw, self._server.executor)
            if select(_version(headers), raw) is Era.HANDSHAKE:
                era = pipeline.handshake
            if era is pipeline.handshake and self._keeps_sessions:
                connection.session = await self._session(headers, principal, optional=opens_without_session(raw))

            limits = self.limits
            outbox = Outbox(limits.unsent, streams, limits.unsent_wait)
            outcome = pipeline.handle(era, raw, connection, outbox)  # Step 5 and later: the rules of the era.
            if isinstance(outcome, bytes):
                return Reply(200, outcome, (JSON_TYPE, *self._guard.cors(headers)))
            if isinstance(outcome, Receipt):
                if outcome.run is not None:
                    await _settle(outcome.run, request.context)
                return Reply(202, b"", self._guard.cors(headers))
            return self._take_off(outcome if streams else outcome._replace(may_stream=False))
        except TransportRefusal as refusal:
            return refused(refusal, self._guard.cors(headers))
        except MCPError as problem:
            return self._problem(problem, era.status(problem), pipeline.refuse(era, problem), request.asked())
        except Overloaded as problem:
            return self._overloaded(problem, headers, jsonrpc.error(None, InternalError(str(problem))))
        except Error:
            logger.exception("Database error before a request became a call")
            down = Overloaded("The database does not answer; try again later")
            return self._overloaded(down, headers, jsonrpc.error(None, InternalError(str(down))))

    def _take_off(self, work: Work) -> Flight | Reply:
        session, id = work.call.connection.session, work.call.id
        owner = work.call.connection.principal.key if session is None else session.key
        if self._lifecycle.has_drained and self._lifecycle.is_draining():
            return self._closed(work)
        if session is not None and id in session.in_flight and not work.in_batch:
            taken = InvalidRequest("A request with this id is still running")
            taken.request_id = id
            work.close(taken)
            raise taken
        if not self._in_flight.enter(owner, work.weight):
            return self._full(work)
        return Flight(work, self._in_flight, owner, self._pipeline.decline, self._lifecycle, rings=self._rings)

    def _full(self, work: Work) -> Reply:
        most = self._in_flight.limit
        if work.weight > most:
            too_many = InvalidRequest(f"A batch may hold {most} calls at most; send several")
            work.close(too_many)
            raise too_many
        full = Overloaded(f"More than {most} calls at once; wait for one to end", status=429)
        work.close(full)
        body = self._pipeline.decline(work, InternalError(str(full)))
        return self._overloaded(full, work.call.connection.headers or Headers(), body)

    def _closed(self, work: Work) -> Reply:
        """Reject new work during shutdown; running calls can still be cancelled."""
        closing = Overloaded(CLOSING)
        work.close(closing)
        body = self._pipeline.decline(work, InternalError(f"{CLOSING}; try again later"))
        return self._overloaded(closing, work.call.connection.headers or Headers(), body)

    def land(self, flight: Flight, landing: Landing) -> Reply:
        """Build the reply of a call that ended before any event was sent."""
        call, problem = flight.call, landing.problem
        headers = call.connection.headers or Headers()
        if isinstance(problem, MCPError):
            asked = AuthRequest(headers, kwargs=call.connection.kwargs)
            return self._problem(problem, call.era.status(problem), flight.decline(problem), asked)
        if problem is not None:
            return self._overloaded(problem, headers, flight.decline(InternalError(str(problem))))
        if flight.lost:
            # The client cancelled its request, but HTTP needs a response: a stream without events.
            return Reply(200, b"", (*SSE_HEADERS, *self._guard.cors(headers)))
        opened = call.connection.opened
        session = () if opened is None else ((SESSION_ID, opened.key.encode()),)
        return Reply(200, landing.body, (JSON_TYPE, *session, *self._guard.cors(headers)))

    def stream(self, flight: Flight) -> Stream:
        """Build the event stream that answers a call."""
        call, reader = flight.call, flight.reader
        session = call.connection.session
        source: Source = Messages(flight)
        if reader is not None and session is not None and self._session_streams is not None:
            ids = self._session_streams.ids.of(session.key, reader.token)
            source = Events(reader, ids, polling=session.revision.polling, flight=flight)
        warrant = self._warrant(call.connection)
        return Stream(self.stream_headers(flight), source if warrant is None else WatchedSource(source, warrant))

    def opened(self, flight: Flight, landing: Landing | None) -> Opened | None:
        """Return the subscription that a call has opened as its answer, or None."""
        subscriptions = flight.call.connection.subscriptions
        if not subscriptions or landing is None or landing.problem is not None:
            return None
        return Opened(next(iter(subscriptions.values())), self._warrant(flight.call.connection))

    def _warrant(self, connection: Connection) -> Warrant | None:
        """Create the credential to monitor for a stream that this request opened."""
        # Principals that depend on the peer address are local callers, so loopback is the address to verify.
        asked = AuthRequest(connection.headers or Headers(), LOOPBACK, kwargs=connection.kwargs)
        return Warrant.of(connection.principal, self._authenticator, asked)

    def stream_headers(self, flight: Flight) -> Pairs:
        """Build the headers of a call that is answered with a stream."""
        return self._stream_headers(flight.call.connection.headers or Headers())

    def _stream_headers(self, headers: Headers) -> Pairs:
        return (*SSE_HEADERS, *self._guard.cors(headers))

    def _methods(self, request: Request) -> bytes:
        get, delete = self._allow_get and request.streams, self._allow_delete
        return b"%b%b%b" % (b"GET, " if get else b"", b"POST, ", b"DELETE, OPTIONS" if delete else b"OPTIONS")

    async def _other(self, request: Request, principal: Principal) -> Reply | Stream:
        """Handle DELETE, which ends a session, and GET, which opens its stream.

        Handshake era (basic/transports).
        """
        headers, version = request.headers, _version(request.headers)
        handshake = version is None or version in HANDSHAKE
        if not handshake and version not in REVISIONS and request.method in ("GET", "DELETE"):
            raise TransportRefusal(400, body=b"Unsupported MCP-Protocol-Version.")
        if handshake and request.method == "DELETE" and self._allow_delete:
            session = await self._session(headers, principal, optional=False)
            if session is not None:
                await self._server.sessions.end(session, "deleted by the client")
            return Reply(204, b"", self._guard.cors(headers))

        streams = self._session_streams
        if handshake and request.method == "GET" and self._allow_get and request.streams and streams is not None:
            check_accept(headers)
            session = await self._session(headers, principal, optional=False)
            if session is not None:
                connection = Connection(
                    principal,
                    headers=headers,
                    session=session,
                    kwargs=request.kwargs,
                    make_request=request.make_request,
                )
                source: Source = await streams.open(session, connection)
                warrant = self._warrant(connection)
                if warrant is not None:
                    source = WatchedSource(source, warrant)
                return Stream(self._stream_headers(headers), source)
        raise TransportRefusal(405, ((b"allow", self._methods(request)),))

    async def _session(self, headers: Headers, principal: Principal, *, optional: bool) -> Session | None:
        """Load the session that the request names.

        Raises:
            TransportRefusal: 400 without a session id, 404 for an unknown session.
        """
        key = headers.get(SESSION_ID)
        if key is None:
            if optional:
                return None
            raise TransportRefusal(400, body=b"This request needs an Mcp-Session-Id header; initialize first.")
        sessions, name = self._server.sessions, key.decode("latin-1")
        session = sessions.peek(name, principal.key) or await sessions.load(name, principal.key)
        if session is None:
            raise TransportRefusal(404, body=b"Unknown session; initialize again.")
        sessions.touch(session)
        return session

    def _problem(self, problem: MCPError, status: int, body: bytes, request: AuthRequest) -> Reply:
        extra: Pairs = ()
        if isinstance(problem, InsufficientScope):
            challenge = self._authenticator.challenge(request, problem.scopes)
            status, extra = 403, ((b"www-authenticate", challenge), NO_STORE)
        return Reply(status, body, (JSON_TYPE, *extra, *self._guard.cors(request.headers)))

    def _overloaded(self, problem: Overloaded, headers: Headers, body: bytes) -> Reply:
        return overloaded(problem, body, self._guard.cors(headers))


async def _settle(run: Coroutine[Any, Any, None], context: Context | None) -> None:
    """Run the handler of a notification in the same context as a call."""
    await asyncio.get_running_loop().create_task(run, context=Context() if context is None else context)


def _version(headers: Headers) -> str | None:
    value = headers.get(PROTOCOL_VERSION)
    if value is None:
        return None
    return VERSIONS.get(value) or value.strip(b" \t").decode("latin-1")
