"""Streamable HTTP endpoint: turn a request into a reply or a running call.

The checks follow the order of the transport page of the specification (basic/transports/streamable-http). It is: Origin
and Host, credentials, HTTP method and media types, JSON, message shape, era, and then the rules of the era.
"""

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from functools import partial
from typing import Any

from mcp_django import wiring
from mcp_django.auth.requests import AuthRequest
from mcp_django.models import EndReason
from mcp_django.protocol.errors import InsufficientScope, InternalError, MCPError, TransportRefusal
from mcp_django.protocol.headers import PROTOCOL_VERSION, SESSION_ID, Headers
from mcp_django.protocol.revisions import HANDSHAKE_VERSIONS, REVISIONS, Era
from mcp_django.runtime.calls.call_limiter import CallLimiter
from mcp_django.runtime.calls.task import CallResult, CallTask
from mcp_django.runtime.concurrency import refuse_wait
from mcp_django.runtime.shutdown import SHUTDOWN_MESSAGE
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.pending import Acknowledgement, PendingResponse
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.eras import select_era
from mcp_django.server.eras.handshake import is_sessionless
from mcp_django.server.ports import Overloaded, Principal
from mcp_django.transports.credentials import StreamCredential
from mcp_django.transports.http.endpoint import HTTPEndpoint
from mcp_django.transports.http.get_stream import SessionStreamOpener
from mcp_django.transports.http.listen import OpenedSubscription
from mcp_django.transports.http.messages import (
    JSON_TYPE,
    NO_STORE,
    SSE_HEADERS,
    HTTPReply,
    HTTPRequest,
    HTTPStream,
    build_message_reply,
    build_overload_reply,
    check_accept,
    check_body,
    read_accept,
)
from mcp_django.transports.http.sse_body import CallSource, NumberedSource, SSESource
from mcp_django.transports.services import TransportServices, get_transport_services
from mcp_django.wiring.services import Services

VERSIONS_BY_HEADER = {version.encode(): version for version in REVISIONS}


class StreamableHTTPEndpoint(HTTPEndpoint):
    """The Streamable HTTP endpoint of one server."""

    def __init__(self, services: TransportServices) -> None:
        super().__init__(services)
        server = services.server
        self._pipeline = services.pipeline
        self._lifecycle = services.lifecycle
        self._limiter = CallLimiter(services.limits.in_flight, services.limits.body)
        self._session_streams = SessionStreamOpener(services)
        self._open_replay_buffer = partial(services.call_streams.open_stream, limits=services.replay_limits)
        self.open_streams = services.open_streams
        self._requires_session = Era.HANDSHAKE in server.eras and server.options.require_session
        self._allow_get = server.options.enable_get and self._requires_session
        self._allow_delete = server.options.allow_delete and self._requires_session

    def list_methods(self, request: HTTPRequest) -> bytes:
        get, delete = self._allow_get and request.supports_streaming, self._allow_delete
        return b"%b%b%b" % (b"GET, " if get else b"", b"POST, ", b"DELETE, OPTIONS" if delete else b"OPTIONS")

    async def respond(self, request: HTTPRequest, principal: Principal) -> HTTPReply | HTTPStream | CallTask:
        """Respond to a request; `build_answer` turns the result of a call task into an answer."""
        if request.method != "POST":
            return await self._respond_to_session_method(request, principal)  # Step 3: HTTP method and media types.
        headers, admission, pipeline = request.headers, self._admission, self._pipeline
        check_body(request, self.limits.body)
        accepts_json, accepts_stream = read_accept(headers)
        if not (accepts_json or accepts_stream):
            raise TransportRefusal(406, body=b"Accept must allow application/json or text/event-stream.")
        accepts_stream = accepts_stream and request.supports_streaming

        connection = _create_connection(request, principal)
        raw = admission.decode(request.body)  # Step 4: JSON.
        await admission.check_message(raw, principal)
        is_stateless = select_era(_read_version(headers), raw) is Era.STATELESS
        era = pipeline.stateless if is_stateless else pipeline.handshake
        has_session = era is pipeline.handshake and self._requires_session
        if has_session and not (headers.wire.get(SESSION_ID) is None and is_sessionless(raw)):
            connection.session = await self._load_session(headers, principal)

        try:
            # Step 5 and later: the rules of the era.
            outcome = pipeline.handle(era, raw, connection, admission.create_outbox(can_stream=accepts_stream))
            if isinstance(outcome, bytes):
                return build_message_reply(200, outcome, headers)
            if isinstance(outcome, Acknowledgement):
                if outcome.run is not None:
                    await _run_notification(outcome.run, request.context)
                return HTTPReply(202)
            work = outcome if accepts_stream else outcome._replace(can_stream=False)
            return self._admit_call(work, len(request.body))
        except MCPError as error:
            body = pipeline.encode_error(era, error)
            return self._build_error_reply(error, era.get_http_status(error), body, request.build_auth_request())

    def _admit_call(self, work: PendingResponse, size: int) -> CallTask | HTTPReply:
        session = work.call.connection.session
        owner = work.call.connection.principal.key if session is None else session.key
        try:
            if self._lifecycle.has_started_draining and self._lifecycle.is_draining():
                shutdown_error = Overloaded(f"{SHUTDOWN_MESSAGE}; try again later")
                work.close(shutdown_error)
                raise shutdown_error  # Running calls can still be cancelled.
            work, counter = self._limiter.admit(work, size, owner, () if session is None else session.in_flight)
        except Overloaded as error:
            return build_overload_reply(error, self._pipeline.encode_work_error(work, InternalError(str(error))))

        return CallTask(
            work,
            counter,
            owner,
            self._pipeline.encode_work_error,
            self._lifecycle,
            open_replay_buffer=self._open_replay_buffer,
        )

    def build_answer(self, task: CallTask, result: CallResult | None) -> HTTPReply | HTTPStream | OpenedSubscription:
        """Build the answer to a call from its result; None if it streams."""
        connection = task.call.connection
        answer: HTTPReply | HTTPStream | OpenedSubscription
        if result is None:
            answer = HTTPStream(SSE_HEADERS, self._create_source(task))
        elif result.error is None and connection.subscriptions:
            subscription = next(iter(connection.subscriptions.values()))
            answer = OpenedSubscription(SSE_HEADERS, subscription, self._create_credential(connection))
        else:
            answer = self._build_reply(task, result)
        headers = connection.headers
        return self.add_cors_headers(Headers() if headers is None else headers, answer)

    def _build_reply(self, task: CallTask, result: CallResult) -> HTTPReply:
        """Build the reply of a call that ended before any event was sent."""
        call, error = task.call, result.error
        if isinstance(error, MCPError):
            return self._build_error_reply(
                error,
                call.era.get_http_status(error),
                task.encode_error(error),
                AuthRequest.from_connection(call.connection),
            )
        if error is not None:
            return build_overload_reply(error, task.encode_error(InternalError(str(error))))
        if task.is_cancelled:
            # The client cancelled its request, but HTTP needs a response: a stream without events.
            return HTTPReply(200, b"", SSE_HEADERS)
        headers, opened = call.connection.headers, call.connection.opened_session
        session = () if opened is None else ((SESSION_ID, opened.key.encode()),)
        return build_message_reply(200, result.body, Headers() if headers is None else headers, session)

    def _create_source(self, task: CallTask) -> SSESource:
        """Create the source of the event stream that answers a call."""
        call, reader = task.call, task.reader
        session = call.connection.session
        source: SSESource = CallSource(task)
        if reader is not None and session is not None:
            ids = self._services.event_ids.create_factory(session.key, reader.token)
            source = NumberedSource(reader, ids, polling=session.revision.polling, task=task)
        return self._watch_source(source, call.connection)

    def _watch_source(self, source: SSESource, connection: Connection) -> SSESource:
        """End a source when the credential of its client is revoked."""
        credential = self._create_credential(connection)
        if credential is not None:
            source.watch(credential)
        return source

    def _create_credential(self, connection: Connection) -> StreamCredential | None:
        """Create the credential to monitor for a stream that this request opened."""
        auth_request = AuthRequest.from_connection(connection)
        return StreamCredential.from_principal(connection.principal, self._authenticator, auth_request)

    async def _respond_to_session_method(self, request: HTTPRequest, principal: Principal) -> HTTPReply | HTTPStream:
        """Respond to DELETE, which ends a session, and GET, which opens its stream.

        Handshake era (basic/transports).
        """
        headers, method = request.headers, request.method
        version = _read_version(headers)
        is_handshake_era = version is None or version in HANDSHAKE_VERSIONS
        if not is_handshake_era and version not in REVISIONS and method in ("GET", "DELETE"):
            raise TransportRefusal(400, body=b"Unsupported MCP-Protocol-Version.")
        if is_handshake_era and method == "DELETE" and self._allow_delete:
            session = await self._load_session(headers, principal)
            await self._server.ports.sessions.end(session, EndReason.CLIENT)
            return HTTPReply(204)
        if is_handshake_era and method == "GET" and self._allow_get and request.supports_streaming:
            check_accept(headers)
            connection = _create_connection(request, principal)
            session = connection.session = await self._load_session(headers, principal)
            source = await self._session_streams.open_source(session, connection)
            return HTTPStream(SSE_HEADERS, self._watch_source(source, connection))
        raise TransportRefusal(405, ((b"allow", self.list_methods(request)),))

    async def _load_session(self, headers: Headers, principal: Principal) -> ServerSession:
        """Load the session that the request names.

        Raises:
            TransportRefusal: 400 without a session id, 404 for an unknown session.
        """
        key = headers.wire.get(SESSION_ID)
        if key is None:
            raise TransportRefusal(400, body=b"This request needs an Mcp-Session-Id header; initialize first.")
        sessions, name = self._server.ports.sessions, key.decode("latin-1")
        session = sessions.peek(name, principal.key) or await sessions.load(name, principal.key)
        if session is None:
            raise TransportRefusal(404, body=b"Unknown session; initialize again.")
        sessions.touch(session)
        return session

    def build_invalid_message_reply(self, error: MCPError, request: HTTPRequest) -> HTTPReply:
        era = self._pipeline.stateless
        body = self._pipeline.encode_error(era, error)
        return self._build_error_reply(error, era.get_http_status(error), body, request.build_auth_request())

    def _build_error_reply(self, error: MCPError, status: int, body: bytes, request: AuthRequest) -> HTTPReply:
        if not isinstance(error, InsufficientScope):
            return build_message_reply(status, body, request.headers)
        challenge = self._authenticator.build_challenge(request, error.scopes)
        return HTTPReply(403, body, (JSON_TYPE, (b"www-authenticate", challenge), NO_STORE))


def _create_connection(request: HTTPRequest, principal: Principal) -> Connection:
    connection = Connection(
        principal,
        headers=request.headers,
        url_kwargs=request.url_kwargs,
        make_request=request.make_request,
        network=request.network,
    )
    if not request.supports_streaming:
        # The request holds a thread of the WSGI server.
        connection.supports_streaming = False
        connection.claim_wait = wiring.get_services().wait_limiter.claim if request.has_threads else refuse_wait
    return connection


async def _run_notification(coroutine: Coroutine[Any, Any, None], context: Context | None) -> None:
    """Run the handler of a notification in the same context as a call."""
    await asyncio.get_running_loop().create_task(coroutine, context=Context() if context is None else context)


def _read_version(headers: Headers) -> str | None:
    value = headers.wire.get(PROTOCOL_VERSION)
    if value is None:
        return None
    return VERSIONS_BY_HEADER.get(value) or value.strip(b" \t").decode("latin-1")


def get_http_endpoint(alias: str = "default") -> StreamableHTTPEndpoint:
    """Return the Streamable HTTP endpoint of a server alias."""
    return wiring.get_services().get_or_build(_build_http_endpoint, alias)


def _build_http_endpoint(services: Services, alias: str) -> StreamableHTTPEndpoint:
    return StreamableHTTPEndpoint(get_transport_services(alias))
