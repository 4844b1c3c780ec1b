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
from mcp_django.auth.throttling import check_address_rate, check_principal_rate
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InsufficientScope, InternalError, InvalidRequest, MCPError, TransportRefusal
from mcp_django.protocol.headers import PROTOCOL_VERSION, SESSION_ID, Headers
from mcp_django.protocol.revisions import HANDSHAKE_VERSIONS, REVISIONS, Era
from mcp_django.runtime.calls.concurrency import ConcurrencyLimiter
from mcp_django.runtime.calls.task import CallResult, CallTask
from mcp_django.runtime.shutdown import SHUTDOWN_MESSAGE, Lifecycle
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import Acknowledgement, PendingResponse
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.eras import select_era
from mcp_django.server.eras.base import EraStrategy
from mcp_django.server.eras.handshake import is_sessionless
from mcp_django.server.pipeline import Pipeline
from mcp_django.server.ports import Overloaded, Principal
from mcp_django.transports.credentials import StreamCredential
from mcp_django.transports.http.get_stream import SessionStreamOpener
from mcp_django.transports.http.listen import OpenedSubscription
from mcp_django.transports.http.messages import (
    JSON_TYPE,
    MAX_CACHED_HEADER_BYTES,
    NO_STORE,
    SSE_HEADERS,
    HTTPLimits,
    HTTPReply,
    HTTPRequest,
    HTTPStream,
    build_overload_reply,
    build_refusal,
    check_accept,
    check_body,
    parse_accept,
)
from mcp_django.transports.http.sse_body import CallSource, NumberedSource, RevocableSource, SSESource
from mcp_django.transports.security import HeaderPairs, TransportSecurity
from mcp_django.transports.stream_registry import StreamRegistry

logger = logging.getLogger("mcp_django.server")

LOOPBACK = "127.0.0.1"
VERSIONS_BY_HEADER = {version.encode(): version for version in REVISIONS}


class StreamableHTTPEndpoint:
    """The Streamable HTTP endpoint of one server."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        authenticator: Authenticator,
        security: TransportSecurity,
        limiter: ConcurrencyLimiter,
        lifecycle: Lifecycle,
        limits: HTTPLimits,
        session_streams: SessionStreamOpener | None = None,
        allow_get: bool = True,
        allow_delete: bool = True,
    ) -> None:
        """Set the dependencies.

        `session_streams` stores and resumes the streams of sessions. Without it events have no ids. `allow_get` and
        `allow_delete` enable these methods.
        """
        self.limits = limits
        self._lifecycle = lifecycle
        self._session_streams = session_streams
        self._get_replay_buffers = None if session_streams is None else session_streams.get_call_streams
        self.open_streams = StreamRegistry(
            lifecycle, check_interval=limits.keep_alive_seconds, send_timeout=limits.send_timeout
        )
        self._pipeline = pipeline
        self._authenticator = authenticator
        self._security = security
        self._limiter = limiter
        self._server = pipeline.server
        self._requires_session = Era.HANDSHAKE in pipeline.server.eras and pipeline.server.options.require_session
        self._allow_get = allow_get and session_streams is not None and self._requires_session
        self._allow_delete = allow_delete and self._requires_session

    async def handle(self, request: HTTPRequest) -> HTTPReply | HTTPStream | CallTask:
        """Handle a request; return a reply, a stream, or a call task to start.

        `build_reply` or `build_stream` turns the result of the task into an answer.
        """
        headers, pipeline = request.headers, self._pipeline
        era: EraStrategy = pipeline.stateless
        try:
            self._security.check(headers)  # Step 1: Host and Origin.
            if request.method == "OPTIONS":
                return HTTPReply(204, b"", self._security.build_preflight_headers(headers, self._list_methods(request)))
            auth_request = request.build_auth_request()
            await check_address_rate(auth_request, self._server.executor)
            principal = self._authenticator.get_cached(auth_request)  # Step 2: credentials.
            if principal is None:
                principal = await self._authenticator.authenticate_throttled(auth_request)
            if request.method != "POST":
                return await self._handle_session_method(request, principal)  # Step 3: HTTP method and media types.
            check_body(request, self.limits)
            accept = headers.get(b"accept", b"*/*")
            accepts_json, accepts_stream = (
                parse_accept if len(accept) <= MAX_CACHED_HEADER_BYTES else parse_accept.__wrapped__
            )(accept)
            if not (accepts_json or accepts_stream):
                raise TransportRefusal(406, body=b"Accept must allow application/json or text/event-stream.")
            accepts_stream = accepts_stream and request.supports_streaming
            connection = Connection(
                principal,
                headers=headers,
                url_kwargs=request.url_kwargs,
                make_request=request.make_request,
                supports_streaming=request.supports_streaming,
            )
            raw = jsonrpc.decode(request.body, max_nesting=self.limits.max_nesting)  # Step 4: JSON.
            await check_principal_rate(principal, raw, self._server.executor)
            if select_era(_read_version(headers), raw) is Era.HANDSHAKE:
                era = pipeline.handshake
            if era is pipeline.handshake and self._requires_session:
                connection.session = await self._load_session(headers, principal, is_optional=is_sessionless(raw))

            limits = self.limits
            outbox = Outbox(limits.max_unsent, accepts_stream, limits.send_timeout)
            outcome = pipeline.handle(era, raw, connection, outbox)  # Step 5 and later: the rules of the era.
            if isinstance(outcome, bytes):
                return HTTPReply(200, outcome, (JSON_TYPE, *self._security.build_cors_headers(headers)))
            if isinstance(outcome, Acknowledgement):
                if outcome.run is not None:
                    await _run_notification(outcome.run, request.context)
                return HTTPReply(202, b"", self._security.build_cors_headers(headers))
            return self._start_call(outcome if accepts_stream else outcome._replace(can_stream=False))
        except TransportRefusal as refusal:
            return build_refusal(refusal, self._security.build_cors_headers(headers))
        except MCPError as error:
            return self._build_error_reply(
                error, era.get_http_status(error), pipeline.encode_error(era, error), request.build_auth_request()
            )
        except Overloaded as error:
            return self._build_overload_reply(error, headers, jsonrpc.error(None, InternalError(str(error))))
        except Error:
            logger.exception("Database error before a request became a call")
            shutdown_error = Overloaded("The database does not answer; try again later")
            return self._build_overload_reply(
                shutdown_error, headers, jsonrpc.error(None, InternalError(str(shutdown_error)))
            )

    def _start_call(self, work: PendingResponse) -> CallTask | HTTPReply:
        session, id = work.call.connection.session, work.call.id
        owner = work.call.connection.principal.key if session is None else session.key
        if self._lifecycle.has_started_draining and self._lifecycle.is_draining():
            return self._reject_shutdown(work)
        if session is not None and id in session.in_flight and not work.is_batch:
            error = InvalidRequest("A request with this id is still running")
            error.request_id = id
            work.close(error)
            raise error
        if not self._limiter.acquire(owner, work.call_count):
            return self._reject_over_limit(work)
        return CallTask(
            work,
            self._limiter,
            owner,
            self._pipeline.encode_work_error,
            self._lifecycle,
            get_replay_buffers=self._get_replay_buffers,
        )

    def _reject_over_limit(self, work: PendingResponse) -> HTTPReply:
        max_calls = self._limiter.max_calls_per_owner
        if work.call_count > max_calls:
            batch_error = InvalidRequest(f"A batch may hold {max_calls} calls at most; send several")
            work.close(batch_error)
            raise batch_error
        overload = Overloaded(f"More than {max_calls} calls at once; wait for one to end", status=429)
        work.close(overload)
        body = self._pipeline.encode_work_error(work, InternalError(str(overload)))
        return self._build_overload_reply(overload, work.call.connection.headers or Headers(), body)

    def _reject_shutdown(self, work: PendingResponse) -> HTTPReply:
        """Reject new work during shutdown; running calls can still be cancelled."""
        error = Overloaded(SHUTDOWN_MESSAGE)
        work.close(error)
        body = self._pipeline.encode_work_error(work, InternalError(f"{SHUTDOWN_MESSAGE}; try again later"))
        return self._build_overload_reply(error, work.call.connection.headers or Headers(), body)

    def build_reply(self, task: CallTask, result: CallResult) -> HTTPReply:
        """Build the reply of a call that ended before any event was sent."""
        call, error = task.call, result.error
        headers = call.connection.headers or Headers()
        if isinstance(error, MCPError):
            auth_request = AuthRequest(headers, kwargs=call.connection.url_kwargs)
            return self._build_error_reply(
                error, call.era.get_http_status(error), task.encode_error(error), auth_request
            )
        if error is not None:
            return self._build_overload_reply(error, headers, task.encode_error(InternalError(str(error))))
        if task.is_cancelled:
            # The client cancelled its request, but HTTP needs a response: a stream without events.
            return HTTPReply(200, b"", (*SSE_HEADERS, *self._security.build_cors_headers(headers)))
        opened = call.connection.opened_session
        session = () if opened is None else ((SESSION_ID, opened.key.encode()),)
        return HTTPReply(200, result.body, (JSON_TYPE, *session, *self._security.build_cors_headers(headers)))

    def build_stream(self, task: CallTask) -> HTTPStream:
        """Build the event stream that answers a call."""
        call, reader = task.call, task.reader
        session = call.connection.session
        source: SSESource = CallSource(task)
        if reader is not None and session is not None and self._session_streams is not None:
            ids = self._session_streams.ids.create_factory(session.key, reader.token)
            source = NumberedSource(reader, ids, polling=session.revision.polling, task=task)
        credential = self._create_credential(call.connection)
        return HTTPStream(
            self.build_stream_headers(task), source if credential is None else RevocableSource(source, credential)
        )

    def get_opened_subscription(self, task: CallTask, result: CallResult | None) -> OpenedSubscription | None:
        """Return the subscription that a call has opened as its answer, or None."""
        subscriptions = task.call.connection.subscriptions
        if not subscriptions or result is None or result.error is not None:
            return None
        return OpenedSubscription(next(iter(subscriptions.values())), self._create_credential(task.call.connection))

    def _create_credential(self, connection: Connection) -> StreamCredential | None:
        """Create the credential to monitor for a stream that this request opened."""
        # Principals that depend on the peer address are local callers, so loopback is the address to verify.
        auth_request = AuthRequest(connection.headers or Headers(), LOOPBACK, kwargs=connection.url_kwargs)
        return StreamCredential.from_principal(connection.principal, self._authenticator, auth_request)

    def build_stream_headers(self, task: CallTask) -> HeaderPairs:
        """Build the headers of a call that is answered with a stream."""
        return self._build_stream_headers(task.call.connection.headers or Headers())

    def _build_stream_headers(self, headers: Headers) -> HeaderPairs:
        return (*SSE_HEADERS, *self._security.build_cors_headers(headers))

    def _list_methods(self, request: HTTPRequest) -> bytes:
        get, delete = self._allow_get and request.supports_streaming, self._allow_delete
        return b"%b%b%b" % (b"GET, " if get else b"", b"POST, ", b"DELETE, OPTIONS" if delete else b"OPTIONS")

    async def _handle_session_method(self, request: HTTPRequest, principal: Principal) -> HTTPReply | HTTPStream:
        """Handle DELETE, which ends a session, and GET, which opens its stream.

        Handshake era (basic/transports).
        """
        headers, version = request.headers, _read_version(request.headers)
        is_handshake_era = version is None or version in HANDSHAKE_VERSIONS
        if not is_handshake_era and version not in REVISIONS and request.method in ("GET", "DELETE"):
            raise TransportRefusal(400, body=b"Unsupported MCP-Protocol-Version.")
        if is_handshake_era and request.method == "DELETE" and self._allow_delete:
            session = await self._load_session(headers, principal, is_optional=False)
            if session is not None:
                await self._server.sessions.end(session, "deleted by the client")
            return HTTPReply(204, b"", self._security.build_cors_headers(headers))

        stream_opener = self._session_streams
        if (
            is_handshake_era
            and request.method == "GET"
            and self._allow_get
            and request.supports_streaming
            and stream_opener is not None
        ):
            check_accept(headers)
            session = await self._load_session(headers, principal, is_optional=False)
            if session is not None:
                connection = Connection(
                    principal,
                    headers=headers,
                    session=session,
                    url_kwargs=request.url_kwargs,
                    make_request=request.make_request,
                )
                source: SSESource = await stream_opener.open_source(session, connection)
                credential = self._create_credential(connection)
                if credential is not None:
                    source = RevocableSource(source, credential)
                return HTTPStream(self._build_stream_headers(headers), source)
        raise TransportRefusal(405, ((b"allow", self._list_methods(request)),))

    async def _load_session(self, headers: Headers, principal: Principal, *, is_optional: bool) -> ServerSession | None:
        """Load the session that the request names.

        Raises:
            TransportRefusal: 400 without a session id, 404 for an unknown session.
        """
        key = headers.get(SESSION_ID)
        if key is None:
            if is_optional:
                return None
            raise TransportRefusal(400, body=b"This request needs an Mcp-Session-Id header; initialize first.")
        sessions, name = self._server.sessions, key.decode("latin-1")
        session = sessions.peek(name, principal.key) or await sessions.load(name, principal.key)
        if session is None:
            raise TransportRefusal(404, body=b"Unknown session; initialize again.")
        sessions.touch(session)
        return session

    def _build_error_reply(self, error: MCPError, status: int, body: bytes, request: AuthRequest) -> HTTPReply:
        extra: HeaderPairs = ()
        if isinstance(error, InsufficientScope):
            challenge = self._authenticator.build_challenge(request, error.scopes)
            status, extra = 403, ((b"www-authenticate", challenge), NO_STORE)
        return HTTPReply(status, body, (JSON_TYPE, *extra, *self._security.build_cors_headers(request.headers)))

    def _build_overload_reply(self, error: Overloaded, headers: Headers, body: bytes) -> HTTPReply:
        return build_overload_reply(error, body, self._security.build_cors_headers(headers))


async def _run_notification(coroutine: Coroutine[Any, Any, None], context: Context | None) -> None:
    """Run the handler of a notification in the same context as a call."""
    await asyncio.get_running_loop().create_task(coroutine, context=Context() if context is None else context)


def _read_version(headers: Headers) -> str | None:
    value = headers.get(PROTOCOL_VERSION)
    if value is None:
        return None
    return VERSIONS_BY_HEADER.get(value) or value.strip(b" \t").decode("latin-1")
