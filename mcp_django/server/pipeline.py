"""The pipeline: the steps of one message, from decoded body to encoded response."""

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InsufficientScope, InternalError, InvalidRequest, MCPError, ResourceNotFound
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
from mcp_django.server.calls.pending import Acknowledgement, AnyCoroutine, PendingResponse, PipelineResult, finish_call
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
OK, BUG, CANCELLED = Outcome.OK, Outcome.BUG, Outcome.CANCELLED


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

    def handle(self, era: EraStrategy, raw: Any, connection: Connection, outbox: Outbox) -> PipelineResult:
        """Handle a message.

        Raises MCPError, with `request_id` set when the id was readable.
        """
        message = era.parse(raw, connection)  # 3. parse the message by the era's rules
        if isinstance(message, list):
            batch = Batch(era, connection, outbox, handle_message=self.handle, encode_error=self.encode_error)
            return batch.handle(message, self.server.options.max_batch_messages)
        if not isinstance(message, jsonrpc.Request):
            return self._handle_incoming(era, message, connection, outbox)

        try:
            call = era.create_call(message, connection, outbox)  # 3. create the call
        except MCPError as problem:
            problem.request_id = message.id
            raise
        except Exception as problem:
            error = InternalError(
                report_internal_error(self.server, f"method {sanitize_label(message.method)!r}", problem)
            )
            error.request_id = message.id
            raise error from None

        observation = self.server.observer.observe(call)
        if (
            observation is not None
            or self._middleware_chain is not None
            or (self.server.has_lifespan and not self.server.lifespan.is_entered())
        ):
            return self._build_work(call, self._enter_and_run(call), observation)
        try:
            body = dispatch(call)  # 5. find the method; 6. run providers and the user's function
            if isinstance(body, Coroutine):
                return self._build_work(call, body)
            answer = self._encode(call, body)  # 7. add the era's fields; step 8 belongs to the transport
        except MCPError as problem:
            problem.request_id = message.id
            finish_call(call, call.record.get_outcome(problem), problem)
            raise
        except Exception as problem:
            error = self._report_bug(call, problem)
            error.request_id = message.id
            finish_call(call, BUG, error)
            raise error from None
        call.record.response_bytes = len(answer)
        finish_call(call, OK)
        return answer

    def _build_work(
        self, call: Call, body: Coroutine[Any, Any, ResultBody], observation: CallObservation | None = None
    ) -> PendingResponse:
        run = self._run_call(call, body)
        inner: tuple[AnyCoroutine, ...] = (body,)
        if observation is not None:
            run, inner = _run_observed(call, run, body, observation), (run, body)
        if call.method in UNSTREAMED_METHODS:
            return PendingResponse(
                call, run, inner, (call,), can_stream=False, call_count=0 if call.method == LISTEN_METHOD else 1
            )
        return PendingResponse(call, run, inner, (call,))

    def _report_unavailability(self, call: Call, problem: BaseException) -> Overloaded | None:
        """Log a failure of the server's storage and return it; None for a bug.

        A server with `raise_bugs` raises the exception itself instead.
        """
        if self.server.options.raise_bugs:
            return None
        subject = f"method {sanitize_label(call.method)!r} of server {self.server.alias!r}"
        return self.server.ports.report_unavailability(subject, problem)

    def _report_bug(self, call: Call, problem: BaseException) -> InternalError:
        token = CURRENT_CALL.set(call)
        try:
            return InternalError(
                report_internal_error(self.server, f"method {sanitize_label(call.method)!r}", problem, call.record)
            )
        except BaseException:  # a server with `raise_bugs` sends no response to them
            finish_call(call, BUG)
            raise
        finally:
            reset_current_call(token)

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
        limit = self.server.options.max_result_bytes
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
        return (
            await self._dispatch_call(call) if self._middleware_chain is None else await self._middleware_chain(call)
        )  # 4. middleware

    async def _dispatch_call(self, call: Call) -> dict[str, Any]:
        if call.id is None:
            await handle_notification(call)
            return {}
        body = dispatch(call)
        if isinstance(body, Coroutine):
            body = await body
        return body.decode() if isinstance(body, EncodedResult) else body

    async def _run_call(self, call: Call, work: Coroutine[Any, Any, ResultBody]) -> bytes:
        token = CURRENT_CALL.set(call)
        # One thread for all ORM use of this call: middleware, dependencies, providers, the handler.
        lease = self.server.executor.acquire_lease()

        try:
            body = await work
            answer = self._encode(call, body)
            if is_too_large(call, answer):
                body = build_size_error(call, answer)
                answer = self._encode(call, body)
            call.record.response_bytes = len(answer)
            if call.connection.subscriptions is None or not _start_stream(call, answer):
                finish_call(call, _result_outcome(call, body))
            return answer
        except (MCPError, Overloaded) as problem:
            _abandon_stream(call)
            finish_call(call, call.record.get_outcome(problem), problem)
            raise
        except BaseException as problem:
            _abandon_stream(call)
            if not is_bug(problem):
                finish_call(call, CANCELLED)
                raise

            overload = self._report_unavailability(call, problem)
            if overload is not None:
                finish_call(call, Outcome.OVERLOADED, overload)
                raise overload from None

            error = self._report_bug(call, problem)
            if call.method == TOOLS_CALL:
                # A tool result without a JSON form is a bug of the tool.
                answer = self._encode(call, build_tool_error(error.message))
                finish_call(call, BUG)
                return answer
            finish_call(call, BUG, error)
            raise error from None
        finally:
            lease.close()
            reset_current_call(token)

    def _encode(self, call: Call, body: ResultBody) -> bytes:
        id = cast(jsonrpc.Request, call.message).id
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
            session, replies = connection.session, self.server.pending_requests
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
        token = CURRENT_CALL.set(call)
        lease = self.server.executor.acquire_lease()

        try:
            await (handle_notification(call) if self._middleware_chain is None else self._middleware_chain(call))
            finish_call(call, OK)
        except (MCPError, Overloaded) as problem:  # a notification has no response
            finish_call(call, call.record.get_outcome(problem), problem)
        except BaseException as problem:
            if not is_bug(problem):
                finish_call(call, CANCELLED)
                raise
            overload = self._report_unavailability(call, problem)
            if overload is not None:
                finish_call(call, Outcome.OVERLOADED, overload)
                raise overload from None  # Not accepted: the transport may refuse the message.
            self._report_bug(call, problem)
            finish_call(call, BUG)
        finally:
            lease.close()
            reset_current_call(token)


def _find_subscription(call: Call) -> Subscription | None:
    """Return the stream that this call has opened, or None."""
    opened = call.connection.subscriptions
    return None if opened is None or call.method != LISTEN_METHOD or call.id is None else opened.get(call.id)


def _start_stream(call: Call, answer: bytes) -> bool:
    """Start the stream that this call has opened. Returns False without a stream."""
    subscription = _find_subscription(call)
    if subscription is None:
        return False
    call.outcome = OK  # preliminary; the final outcome follows when the stream ends
    subscription.start(answer)
    return True


def _abandon_stream(call: Call) -> None:
    """Discard the unstarted stream of a failed call.

    Middleware may have failed after the stream opened.
    """
    subscription, opened = _find_subscription(call), call.connection.subscriptions
    if opened is not None and subscription is not None and not subscription.has_started:
        opened.pop(subscription.id)
        subscription.abandon()


def _result_outcome(call: Call, body: ResultBody) -> Outcome:
    """Return the outcome of a call that has a result."""
    if isinstance(body, EncodedResult):
        return OK
    if body.get("isError"):
        return call.record.failure or Outcome.TOOL_ERROR
    return Outcome.INPUT_REQUIRED if body.get("resultType") == INPUT_REQUIRED else OK


async def _run_observed(
    call: Call, run: Coroutine[Any, Any, bytes], body: AnyCoroutine, observation: CallObservation
) -> bytes:
    """Run a call between the start and the finish of its observation."""
    token = CURRENT_CALL.set(call)

    try:
        try:
            await observation.start()
        except BaseException:  # cancelled before it could run
            run.close()
            body.close()
            finish_call(call, CANCELLED)
            raise
        answer = await run
    except (MCPError, Overloaded) as problem:
        await observation.finish(call.outcome or CANCELLED, problem)
        raise
    except asyncio.CancelledError:
        await observation.finish(CANCELLED, None)
        raise
    except Exception:  # a bug, on a server with `raise_bugs`
        await observation.finish(BUG, None)
        raise
    else:
        await observation.finish(call.outcome or CANCELLED, None)
        return answer
    finally:
        reset_current_call(token)
