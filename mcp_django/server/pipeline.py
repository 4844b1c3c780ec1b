"""The pipeline: the steps of one message, from decoded body to encoded response."""

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InsufficientScope, InternalError, InvalidRequest, MCPError, ResourceNotFound
from mcp_django.protocol.revisions import Era
from mcp_django.server.batch import Batch
from mcp_django.server.calls.call import Call, Connection
from mcp_django.server.calls.current import CURRENT, leave
from mcp_django.server.calls.internal_errors import is_bug, report
from mcp_django.server.calls.log_sanitizer import label
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.outcome import Outcome
from mcp_django.server.calls.pending import AnyCoroutine, Handled, Receipt, Work, over
from mcp_django.server.client_requests.conversation import INPUT_REQUIRED
from mcp_django.server.dispatcher import Body, dispatch, notice
from mcp_django.server.eras.base import Era as EraStrategy
from mcp_django.server.eras.handshake import OPENING, HandshakeEra
from mcp_django.server.eras.stateless import StatelessEra
from mcp_django.server.execution.lists import Encoded
from mcp_django.server.middleware import chain
from mcp_django.server.ports import Attendance, Overloaded
from mcp_django.server.primitives.results import tool_error
from mcp_django.server.server import Server
from mcp_django.server.subscriptions.listen import LISTENING, Subscription

CALLING = "tools/call"
WHOLE = frozenset({OPENING, LISTENING})
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
        self._through = chain(server.middleware, self._innermost) if server.middleware else None

    def handle(self, era: EraStrategy, raw: Any, connection: Connection, outbox: Outbox) -> Handled:
        """Handle a message.

        Raises MCPError, with `request_id` set when the id was readable.
        """
        message = era.read(raw, connection)  # 3. parse the message by the era's rules
        if isinstance(message, list):
            return Batch(self, era, connection, outbox).handle(message)
        if not isinstance(message, jsonrpc.Request):
            return self._receive(era, message, connection, outbox)

        try:
            call = era.open(message, connection, outbox)  # 3. create the call
        except MCPError as problem:
            problem.request_id = message.id
            raise
        except Exception as problem:
            error = InternalError(report(self.server, f"method {label(message.method)!r}", problem))
            error.request_id = message.id
            raise error from None

        attendance = self.server.observer.attend(call)
        if (
            attendance is not None
            or self._through is not None
            or (self.server.has_lifespan and not self.server.lifespan.entered())
        ):
            return self._work(call, self._prepared(call), attendance)
        try:
            body = dispatch(call)  # 5. find the method; 6. run providers and the user's function
            if isinstance(body, Coroutine):
                return self._work(call, body)
            answer = self._encode(call, body)  # 7. add the era's fields; step 8 belongs to the transport
        except MCPError as problem:
            problem.request_id = message.id
            over(call, call.fate.of(problem), problem)
            raise
        except Exception as problem:
            error = self._bug(call, problem)
            error.request_id = message.id
            over(call, BUG, error)
            raise error from None
        over(call, OK)
        return answer

    def _work(self, call: Call, body: Coroutine[Any, Any, Body], attendance: Attendance | None = None) -> Work:
        run = self._finish(call, body)
        inner: tuple[AnyCoroutine, ...] = (body,)
        if attendance is not None:
            run, inner = _attended(call, run, body, attendance), (run, body)
        if call.method in WHOLE:
            return Work(call, run, inner, (call,), may_stream=False, weight=0 if call.method == LISTENING else 1)
        return Work(call, run, inner, (call,))

    def _bug(self, call: Call, problem: BaseException) -> InternalError:
        token = CURRENT.set(call)
        try:
            return InternalError(report(self.server, f"method {label(call.method)!r}", problem, call.fate))
        except BaseException:  # a server with `raise_bugs` sends no response to them
            over(call, BUG)
            raise
        finally:
            leave(token)

    def refuse(self, era: EraStrategy, problem: MCPError, call: Call | None = None) -> bytes:
        """Encode an error response."""
        code = problem.code
        if call is not None and isinstance(problem, ResourceNotFound):
            code = call.revision.resource_not_found
        if call is not None and isinstance(problem, InsufficientScope):
            # Add the scopes that every request requires, so that one step-up is enough (RFC 6750, section 3.1).
            every = self.server.ports.required_scopes(call.connection)
            problem = InsufficientScope(sorted({*problem.scopes, *every}), problem.message)
        id = problem.request_id if call is None else call.id
        return jsonrpc.error(id, problem, code=code)

    def decline(self, work: Work, problem: MCPError) -> bytes:
        """Encode an error in place of the response to some work."""
        if work.in_batch and work.calls:
            return jsonrpc.batch([self.refuse(call.era, problem, call) for call in work.calls])
        return self.refuse(work.call.era, problem, None if work.in_batch else work.call)

    async def _prepared(self, call: Call) -> Body:
        if self.server.has_lifespan:
            await self.server.lifespan.enter()
        return await self._innermost(call) if self._through is None else await self._through(call)  # 4. middleware

    async def _innermost(self, call: Call) -> dict[str, Any]:
        if call.id is None:
            await notice(call)
            return {}
        body = dispatch(call)
        if isinstance(body, Coroutine):
            body = await body
        return body.decoded() if isinstance(body, Encoded) else body

    async def _finish(self, call: Call, work: Coroutine[Any, Any, Body]) -> bytes:
        token = CURRENT.set(call)
        # One thread for all ORM use of this call: middleware, dependencies, providers, the handler.
        lease = self.server.executor.enter()

        try:
            body = await work
            answer = self._encode(call, body)
            if call.connection.subscriptions is None or not _begin(call, answer):
                over(call, _outcome(call, body))
            return answer
        except (MCPError, Overloaded) as problem:
            _abandon(call)
            over(call, call.fate.of(problem), problem)
            raise
        except BaseException as problem:
            _abandon(call)
            if not is_bug(problem):
                over(call, CANCELLED)
                raise

            error = self._bug(call, problem)
            if call.method == CALLING:
                # A tool result without a JSON form is a bug of the tool.
                answer = self._encode(call, tool_error(error.message))
                over(call, BUG)
                return answer
            over(call, BUG, error)
            raise error from None
        finally:
            lease.close()
            leave(token)

    def _encode(self, call: Call, body: Body) -> bytes:
        id = cast(jsonrpc.Request, call.message).id
        if isinstance(body, Encoded):
            return jsonrpc.splice(id, body.raw)
        kind = body.get("resultType")
        if kind is None:
            return jsonrpc.result(id, call.era.dress(call, body))
        # Check the content, not the type, because middleware may have copied the body.
        return jsonrpc.result(id, call.era.suspend(call, body) if kind == INPUT_REQUIRED else body)

    def _receive(
        self, era: EraStrategy, message: jsonrpc.Notification | jsonrpc.Response, connection: Connection, outbox: Outbox
    ) -> Receipt:
        if isinstance(message, jsonrpc.Response):
            if connection.session is None:
                raise InvalidRequest("Unexpected response: no request is pending without a session")
            session, replies = connection.session, self.server.replies
            if session.answer(message) or not replies.is_genuine(session, message.id):
                return Receipt()
            return Receipt(replies.forward(session, message))
        if era.name is Era.STATELESS and self._through is None and connection.in_flight is None:
            return Receipt()
        return Receipt(self._noticed(era.open(message, connection, outbox)))

    async def _noticed(self, call: Call) -> None:
        token = CURRENT.set(call)
        lease = self.server.executor.enter()

        try:
            await (notice(call) if self._through is None else self._through(call))
            over(call, OK)
        except (MCPError, Overloaded) as problem:  # a notification has no response
            over(call, call.fate.of(problem), problem)
        except BaseException as problem:
            if not is_bug(problem):
                over(call, CANCELLED)
                raise
            self._bug(call, problem)
            over(call, BUG)
        finally:
            lease.close()
            leave(token)


def _subscription(call: Call) -> Subscription | None:
    """Return the stream that this call has opened, or None."""
    opened = call.connection.subscriptions
    return None if opened is None or call.method != LISTENING or call.id is None else opened.get(call.id)


def _begin(call: Call, answer: bytes) -> bool:
    """Start the stream that this call has opened. Returns False without a stream."""
    subscription = _subscription(call)
    if subscription is None:
        return False
    call.outcome = OK  # preliminary; the final outcome follows when the stream ends
    subscription.begin(answer)
    return True


def _abandon(call: Call) -> None:
    """Discard the unstarted stream of a failed call.

    Middleware may have failed after the stream opened.
    """
    subscription, opened = _subscription(call), call.connection.subscriptions
    if opened is not None and subscription is not None and not subscription.has_begun:
        opened.pop(subscription.id)
        subscription.abandon()


def _outcome(call: Call, body: Body) -> Outcome:
    """Return the outcome of a call that has a result."""
    if isinstance(body, Encoded):
        return OK
    if body.get("isError"):
        return call.fate.failure or Outcome.TOOL_ERROR
    return Outcome.INPUT_REQUIRED if body.get("resultType") == INPUT_REQUIRED else OK


async def _attended(call: Call, run: Coroutine[Any, Any, bytes], body: AnyCoroutine, attendance: Attendance) -> bytes:
    """Run a call between the start and the finish of its observation."""
    token = CURRENT.set(call)

    try:
        try:
            await attendance.begin()
        except BaseException:  # cancelled before it could run
            run.close()
            body.close()
            over(call, CANCELLED)
            raise
        answer = await run
    except (MCPError, Overloaded) as problem:
        await attendance.end(call.outcome or CANCELLED, problem)
        raise
    except asyncio.CancelledError:
        await attendance.end(CANCELLED, None)
        raise
    except Exception:  # a bug, on a server with `raise_bugs`
        await attendance.end(BUG, None)
        raise
    else:
        await attendance.end(call.outcome or CANCELLED, None)
        return answer
    finally:
        leave(token)
