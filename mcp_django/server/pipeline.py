"""The pipeline: the steps of one message, from decoded body to encoded response."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InsufficientScope, InternalError, InvalidRequest, MCPError, ResourceNotFound
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.revisions import Era
from mcp_django.server.batch import Batch
from mcp_django.server.calls.call import (
    CURRENT_CALL,
    Call,
    Connection,
    EraStrategy,
    chain_middleware,
    reset_current_call,
)
from mcp_django.server.calls.internal_errors import is_bug, report_internal_error
from mcp_django.server.calls.log_sanitizer import sanitize_label
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import (
    Acknowledgement,
    PendingResponse,
    PipelineResult,
    conclude_call,
)
from mcp_django.server.context.conversation import INPUT_REQUIRED
from mcp_django.server.dispatcher import ResultBody, dispatch, handle_notification
from mcp_django.server.eras.handshake import INITIALIZE, HandshakeEra
from mcp_django.server.eras.stateless import COMPLETE, StatelessEra
from mcp_django.server.execution.failures import TOOLS_CALL
from mcp_django.server.execution.lists import EncodedResult
from mcp_django.server.execution.result_size import build_size_error, is_too_large, shorten_message
from mcp_django.server.ports import CallObservation, Outcome, Overloaded
from mcp_django.server.primitives.results import build_tool_error
from mcp_django.server.server import Server
from mcp_django.server.subscriptions.listen import LISTEN_METHOD, Subscription

UNSTREAMED_METHODS = frozenset({INITIALIZE, LISTEN_METHOD})
"""Methods whose response may not be streamed.

The transport must inspect their outcome before it sends anything.
"""


class Pipeline:
    """The steps of one message, for one server.

    The transport decodes the body (steps 1 and 2) and authenticates the caller. `select_era` chooses the era. `handle`
    continues from there.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.stateless: EraStrategy = StatelessEra(server)
        self.handshake: EraStrategy = HandshakeEra(server)
        self.eras: dict[Era, EraStrategy] = {Era.STATELESS: self.stateless, Era.HANDSHAKE: self.handshake}
        self._middleware_chain = chain_middleware(server.middleware, self._dispatch_call) if server.middleware else None
        self._handle_call = self._middleware_chain or self._dispatch_call  # 4. middleware

    def handle(self, era: EraStrategy, raw: object, connection: Connection, outbox: Outbox) -> PipelineResult:
        """Handle a message.

        Raises MCPError, with `request_id` set when the id was readable.
        """
        message = era.parse(raw, connection)  # 3. parse the message by the era's rules
        if isinstance(message, list):
            batch = Batch(era, connection, outbox, handle_message=self.handle, encode_error=self.encode_error)
            return batch.handle(message)
        if not isinstance(message, jsonrpc.Request):
            return self._handle_incoming(era, message, connection, outbox)

        call = self._create_call(era, message, connection, outbox)  # 3. create the call

        observation = self.server.ports.observer.observe(call)
        body: ResultBody | Coroutine[Any, Any, ResultBody]
        if (
            observation is not None
            or self._middleware_chain is not None
            or (self.server.has_lifespan and not self.server.lifespan.is_entered())
        ):
            body = self._enter_and_run(call)
        else:
            try:
                body = dispatch(call)  # 5. find the method; 6. run providers and the user's function
            except Exception as problem:
                return self._conclude(call, problem)
            if isinstance(body, (dict, EncodedResult)):  # cheaper than isinstance with the abstract Coroutine
                return self._conclude(call, body)  # 7. encode; step 8 belongs to the transport

        work = PendingResponse(call, self._run_call(call, body), (body,), (call,))
        if observation is not None:
            work = work._replace(run=_run_observed(work, observation), nested=(work.run, body))
        if message.method in UNSTREAMED_METHODS:
            work = work._replace(can_stream=False, call_count=0 if message.method == LISTEN_METHOD else 1)
        return work

    def _create_call(self, era: EraStrategy, message: jsonrpc.Request, connection: Connection, outbox: Outbox) -> Call:
        """Create the call of a request. Raises MCPError with the id of the request."""
        try:
            return era.create_call(message, connection, outbox)
        except MCPError as problem:
            problem.request_id = message.id
            raise
        except Exception as problem:
            subject = f"method {sanitize_label(message.method)!r}"
            error = InternalError(report_internal_error(self.server, subject, problem))
            error.request_id = message.id
            raise error from None

    def encode_error(self, era: EraStrategy, problem: MCPError, call: Call | None = None) -> bytes:
        """Encode an error response. An error above the limit of results loses its data."""
        code = problem.code
        if call is not None and isinstance(problem, ResourceNotFound):
            code = call.revision.resource_not_found
        if call is not None and isinstance(problem, InsufficientScope):
            # Add the scopes that every request requires, so that one step-up is enough (RFC 6750, section 3.1).
            required_scopes = self.server.ports.required_scopes(call.connection)
            problem = InsufficientScope(sorted({*problem.scopes, *required_scopes}), problem.message)
        id = problem.request_id if call is None else call.id
        encoded = jsonrpc.error(id, problem, code=code)
        limit = self.server.options.result_bytes
        if len(encoded) <= limit:
            return encoded
        return jsonrpc.error(id, MCPError(shorten_message(problem.message, len(encoded), limit)), code=code)

    def encode_work_error(self, work: PendingResponse, problem: MCPError) -> bytes:
        """Encode an error in place of the response to some work."""
        if work.is_batch and work.calls:
            return jsonrpc.batch([self.encode_error(call.era, problem, call) for call in work.calls])
        return self.encode_error(work.call.era, problem, None if work.is_batch else work.call)

    async def _enter_and_run(self, call: Call) -> ResultBody:
        if self.server.has_lifespan:
            await self.server.lifespan.enter()
        return await self._handle_call(call)

    async def _dispatch_call(self, call: Call) -> JSONObject:
        if call.id is None:
            await handle_notification(call)
            return {}
        body = dispatch(call)
        if not isinstance(body, (dict, EncodedResult)):
            body = await body
        return body.decode() if isinstance(body, EncodedResult) else body

    async def _run_call(self, call: Call, work: Coroutine[Any, Any, ResultBody]) -> bytes:
        """Run the work of a call as the current call, and return the encoded answer."""
        token = CURRENT_CALL.set(call)
        # One thread for all ORM use of this call: middleware, dependencies, providers, the handler.
        lease = self.server.ports.executor.acquire_lease()
        try:
            body = await work
        except BaseException as problem:
            return self._conclude(call, problem)
        else:
            return self._conclude(call, body)
        finally:
            lease.close()
            reset_current_call(token)

    def _conclude(self, call: Call, end: ResultBody | BaseException) -> bytes:
        """Conclude a call that ran, and inform the observer of its outcome.

        This is the one end of such a call. `end` is the result or the exception. The answer to a notification is empty.
        Raises the error of the response, an MCPError or Overloaded. Raises the exception itself if it ends the task, or
        with the option `raise_bugs`.
        """
        record, outcome, is_streaming = call.record, Outcome.BUG, False
        error: MCPError | Overloaded | None = None
        has_streams = call.connection.subscriptions is not None
        try:
            if isinstance(end, BaseException):
                raise end
            answer = b"" if call.id is None else self._encode_answer(call, end)
            outcome = record.outcome or Outcome.OK
            is_streaming = has_streams and _start_stream(call, answer)
            return answer
        except BaseException as problem:
            if not is_bug(problem):
                outcome = Outcome.CANCELLED
                record.cancelled = True
                raise
            error = self._find_error(call, problem)
            outcome = record.get_outcome(error)
            is_reported = error is not problem
            if call.id is None and not (is_reported and outcome is Outcome.OVERLOADED):
                return b""  # A notification is refused only if it may be sent again.
            if call.method == TOOLS_CALL and is_reported and isinstance(error, InternalError):
                # A tool result without a JSON form is a bug of the tool.
                answer = self._encode(call, build_tool_error(error.message))
                error = None
                return answer
            if is_reported:
                raise error from None
            raise
        finally:
            if has_streams and not is_streaming:
                _abandon_stream(call)
            if not is_streaming:
                conclude_call(call, outcome, error)
            del end, error  # Their tracebacks have this frame: a reference cycle.

    def _find_error(self, call: Call, problem: BaseException) -> MCPError | Overloaded:
        """Return the error of the response for an exception.

        An exception that is not such an error itself is logged. A failure of the server's storage becomes Overloaded,
        and a bug InternalError. A server with `raise_bugs` raises the exception itself instead.
        """
        if isinstance(problem, MCPError):
            problem.request_id = call.id
        if isinstance(problem, MCPError | Overloaded):
            return problem
        method = f"method {sanitize_label(call.method)!r}"
        token = CURRENT_CALL.set(call)
        try:
            if not self.server.options.raise_bugs:
                subject = f"{method} of server {self.server.alias!r}"
                overload = self.server.ports.report_unavailability(subject, problem)
                if overload is not None:
                    return overload
            return InternalError(report_internal_error(self.server, method, problem, call.record))
        finally:
            reset_current_call(token)

    def _encode_answer(self, call: Call, body: ResultBody) -> bytes:
        """Encode a result, or the error in place of one that is too large. Its outcome and size are recorded."""
        answer = self._encode(call, body)
        if is_too_large(call, answer):
            body = build_size_error(call, answer)
            answer = self._encode(call, body)
        record = call.record
        record.response_bytes = len(answer)
        record.outcome = Outcome.OK
        if not isinstance(body, EncodedResult):
            if body.get("isError"):
                record.outcome = record.failure or Outcome.TOOL_ERROR
            elif body.get("resultType") == INPUT_REQUIRED:
                record.outcome = Outcome.INPUT_REQUIRED
        return answer

    def _encode(self, call: Call, body: ResultBody) -> bytes:
        message = call.message
        assert isinstance(message, jsonrpc.Request)  # Notifications have no answer.
        id = message.id
        if isinstance(body, EncodedResult):
            return jsonrpc.splice(id, body.raw)
        kind = body.get("resultType")
        if kind is None:
            return jsonrpc.result(id, call.era.add_result_fields(call, body))
        # Check the content, not the type, because middleware may have copied the body.
        return jsonrpc.result(id, body if kind == COMPLETE else call.era.add_round_fields(call, body))

    def _handle_incoming(
        self, era: EraStrategy, message: jsonrpc.Notification | jsonrpc.Response, connection: Connection, outbox: Outbox
    ) -> Acknowledgement:
        if isinstance(message, jsonrpc.Response):
            if connection.session is None:
                raise InvalidRequest("Unexpected response: no request is pending without a session")
            session, replies = connection.session, self.server.ports.pending_requests
            if session.receive_response(message) or not replies.is_valid_id(session, message.id):
                return Acknowledgement()
            return Acknowledgement(replies.forward(session, message))
        is_handled = (
            era.name is Era.HANDSHAKE
            or self._middleware_chain is not None
            or connection.in_flight is not None
            or message.method in self.server.extensions.notifications
        )
        if not is_handled:
            return Acknowledgement()
        return Acknowledgement(self._run_notification(era.create_call(message, connection, outbox)))

    async def _run_notification(self, call: Call) -> None:
        async def run() -> ResultBody:
            return await self._handle_call(call)

        await self._run_call(call, run())


def _find_subscription(call: Call) -> Subscription | None:
    """Return the stream that this call has opened, or None."""
    opened = call.connection.subscriptions
    return None if opened is None or call.method != LISTEN_METHOD or call.id is None else opened.get(call.id)


def _start_stream(call: Call, answer: bytes) -> bool:
    """Start the stream that this call has opened. Returns False without a stream."""
    subscription = _find_subscription(call)
    if subscription is not None:
        subscription.start(answer, conclude_call)
    return subscription is not None


def _abandon_stream(call: Call) -> None:
    """Discard the unstarted stream of a failed call.

    Middleware may have failed after the stream opened.
    """
    subscription, opened = _find_subscription(call), call.connection.subscriptions
    if opened is not None and subscription is not None and not subscription.has_started:
        opened.pop(subscription.id)
        subscription.abandon()


async def _run_observed(work: PendingResponse, observation: CallObservation) -> bytes:
    """Run a call between the start and the finish of its observation."""
    record, token = work.call.record, CURRENT_CALL.set(work.call)
    try:
        try:
            await observation.start()
        except BaseException:  # cancelled before it could run
            work.close()
            raise
        answer = await work.run
    except (Exception, asyncio.CancelledError) as problem:
        error = problem if isinstance(problem, MCPError | Overloaded) else None
        await observation.finish(record.outcome or Outcome.CANCELLED, error)
        raise
    else:
        await observation.finish(record.outcome or Outcome.CANCELLED, None)
        return answer
    finally:
        reset_current_call(token)
