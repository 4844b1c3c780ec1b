"""Forwarding of a client's request to a remote server, and of requests back.

Without requests to the client, one exchange over the shared connection is enough.

A remote server of the stateless era ends its call to send requests. The local call then ends as well, or sends the
requests and continues. The data for the remote server is kept in the sealed state of the local call, which the client
can neither read nor change.

A remote server of the handshake era sends requests while its call runs. It receives the responses, or its call is
suspended until the client returns with them.

A remote server may answer with a task. Then the proxy follows the task to its end. Its questions become requests to the
client, like those of a call.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

from mcp_django.client import AuthorizationNeeded, CallError, Client
from mcp_django.client.tasks.task_state import is_task_result
from mcp_django.contrib.proxies.connections.questions import (
    CAPABILITIES_BY_METHOD,
    RemoteInputRequest,
    UnsupportedInputRequest,
    build_input_request,
)
from mcp_django.contrib.proxies.connections.sessions import RemoteSession, RemoteSessionPool, RunningCall
from mcp_django.contrib.proxies.forwarding.remote_tasks import RemoteTask, RemoteTaskRecord
from mcp_django.contrib.proxies.forwarding.steps import (
    Finished,
    NeedsAuthorization,
    NeedsInput,
    Step,
    Suspended,
    UnknownStep,
    from_json,
    to_json,
)
from mcp_django.contrib.proxies.forwarding.suspended_calls import (
    REFUSED_CODE,
    PendingInputRequest,
    SuspendedCall,
    SuspendedCalls,
)
from mcp_django.extensions.calls import PROGRESS_TOKEN, REMOTE_PREFIX, REVISIONS, Context, Era, sanitize_label
from mcp_django.extensions.conversations import CallSuspended, InputRefused, InputRequest
from mcp_django.extensions.errors import ToolError
from mcp_django.protocol.meta import LOG_LEVEL
from mcp_django.protocol.types import LOG_LEVELS
from mcp_django.types import clean_line

Wire = dict[str, Any]
MAX_ROUND_REQUESTS = 64
"""Maximum requests in one round of a remote server of the stateless era."""
MAX_ROUNDS = 32
"""Maximum rounds of one call; a round may only require a retry."""
LOST_CALL_MESSAGE = (
    "The call is lost: it waited for the answer in another process, or for too long, and its result is unknown. Call "
    "the tool again if repeating it is safe"
)
MAX_PROGRESS_CHARACTERS, MAX_LOGGER_CHARACTERS = 2000, 200
"""Maximum characters of a progress message, and of a logger name."""


class ForwardedRequest(NamedTuple):
    """Request to the remote server, with the conditions under which it may be sent again."""

    method: str
    params: Wire
    is_repeatable: bool
    """True if a request with unknown outcome may be repeated."""
    requires_task: bool = False
    """True if servers of the handshake era run the request as a task only."""

    def build_params(self, client: Client) -> Wire:
        """Build the parameters for the server of a connected client."""
        is_handshake = REVISIONS[client.protocol_version].era is Era.HANDSHAKE
        return {**self.params, "task": {}} if self.requires_task and is_handshake else self.params


@dataclass(frozen=True, slots=True, eq=False)
class RequestForwarder:
    """Forwarder of the requests of one proxy on one event loop."""

    name: str
    sessions: RemoteSessionPool
    suspended_calls: SuspendedCalls
    timeout: float | None

    async def exchange(self, client: Client, request: ForwardedRequest, ctx: Context | None) -> Wire:
        """Run one round that must not contain requests to the client."""
        progress = ctx.report_progress if ctx is not None and PROGRESS_TOKEN in ctx.call.meta else None
        on_progress = progress and _truncate_progress(progress)
        if request.requires_task:
            await client.connect()
        params = request.build_params(client) if request.requires_task else request.params
        with nullcontext() if ctx is None else ctx.call.record.wait(f"{REMOTE_PREFIX}{self.name}"):
            answer = await client.exchange(request.method, params, timeout=self.timeout, on_progress=on_progress)
            if is_task_result(answer):
                task = RemoteTask(client, answer, on_progress)
                answer = await task.follow(self.timeout)
                if _requires_input(answer):
                    await task.abandon()
        if _requires_input(answer):
            raise ToolError(f"The server {self.name!r} sent a request to the client that the client does not support")
        return answer

    async def converse(self, ctx: Context, request: ForwardedRequest, options: "ForwardingOptions") -> Wire:
        """Run as many rounds as necessary."""
        with ctx.call.record.wait(f"{REMOTE_PREFIX}{self.name}"):
            return await _ForwardedConversation(self, ctx, request, options).run()


class ForwardingOptions(NamedTuple):
    """Options of a call that accepts requests or log messages."""

    owner: str
    """Key of the caller."""
    log_level: str | None
    """Lowest level of log messages for the caller; None for no log messages."""
    acquire_session: Callable[[], Awaitable[RemoteSession]]
    """Function that acquires a connected session for the call."""
    attempt: int = 0
    """Number of earlier attempts that ended with a missing authorization."""


@dataclass(slots=True, eq=False)
class _StatelessCall:
    """Call to a server of the stateless era, which sends no requests while running."""

    listener: Context | None

    async def request_input(self, request: RemoteInputRequest) -> Wire:
        raise CallError(REFUSED_CODE, "Servers of this era send no requests while a call runs")


@dataclass(slots=True, eq=False)
class _ForwardedConversation:
    """Conversation of one call with a remote server."""

    _forwarder: RequestForwarder
    _ctx: Context
    _request: ForwardedRequest
    _options: ForwardingOptions
    _task: RemoteTaskRecord | None = None
    """The task that the remote server made of the call."""
    _suspended_call: SuspendedCall | None = None
    _is_suspended: bool = False

    async def run(self) -> Wire:
        try:
            return await self._run_rounds()
        except BaseException:
            if self._suspended_call is not None and not self._is_suspended:
                await self._suspended_call.cancel()
            raise

    async def _run_rounds(self) -> Wire:
        reply_params = Wire()
        for number in range(MAX_ROUNDS):
            match await self._run_step(number, reply_params):
                case Finished(result):
                    return result
                case Suspended(call_id):
                    return await self._continue_call(call_id)
                case NeedsAuthorization(url):
                    raise AuthorizationNeeded(alias=self._forwarder.name, url=url)
                case NeedsInput() as pending:
                    reply_params = await self._collect_replies(number, pending)
                    self._record_task(pending)
        raise ToolError(f"The server {self._forwarder.name!r} sent no result in {MAX_ROUNDS} rounds")

    def _record_task(self, pending: NeedsInput) -> None:
        if pending.task_id is not None:
            earlier = {} if self._task is None else self._task.questions
            self._task = RemoteTaskRecord(pending.task_id, {**earlier, **pending.requests})

    async def _run_step(self, number: int, reply_params: Wire) -> Step:
        """Run a round, or return its recorded outcome from an earlier local round.

        Raises the error of an expired state if another version recorded the outcome.
        """
        if number or self._ctx.conversation is not None:
            return await self._record_step(number, lambda: self._run_round_to_json(reply_params))
        step = await self._run_round(reply_params)
        return step if isinstance(step, Finished) else await self._record_step(number, lambda: to_json(step))

    async def _record_step(self, number: int, run: Callable[[], Any]) -> Step:
        record = await self._ctx.run_once(f"proxy{self._options.attempt}:{number}", run)
        try:
            return from_json(record)
        except UnknownStep:
            raise self._ctx.call.server.ports.state_sealer.build_error() from None

    async def _run_round_to_json(self, reply_params: Wire) -> Wire:
        """Run a round, and return its record. A missing authorization is an outcome too.

        The following local rounds then take the same path.
        """
        try:
            return to_json(await self._run_round(reply_params))
        except AuthorizationNeeded as problem:
            return to_json(NeedsAuthorization(problem.url))

    async def _run_round(self, reply_params: Wire) -> Step:
        session = await self._options.acquire_session()
        if REVISIONS[session.client.protocol_version or ""].era is Era.HANDSHAKE:
            call = self._suspended_call = self._start_suspendable_call(session, {})
            call.listener = self._ctx
            if await call.wait_for_requests(0) is None:
                return Finished(await call.wait_for_result())
            return Suspended(secrets.token_urlsafe(16))
        answer = await self._exchange_in_session(session, _StatelessCall(self._ctx), reply_params)
        return _parse_pending(answer) if _requires_input(answer) else Finished(answer)

    def _start_suspendable_call(self, session: RemoteSession, reply_params: Wire) -> SuspendedCall:
        return SuspendedCall(lambda call: self._exchange_in_session(session, call, reply_params), self._options.owner)

    async def _exchange_in_session(self, session: RemoteSession, running: RunningCall, reply_params: Wire) -> Wire:
        # A cancelled call may still send requests.
        session.call, broken = running, True
        try:
            answer = await self._exchange(session, running, reply_params)
            broken = False
            return answer
        except CallError:
            broken = False
            raise
        finally:
            self._forwarder.sessions.release(session, broken=broken)

    async def _exchange(self, session: RemoteSession, running: RunningCall, reply_params: Wire) -> Wire:
        client, request, level = session.client, self._request, self._options.log_level
        meta: dict[str, Any] = {}
        if level is not None:
            if REVISIONS[client.protocol_version or ""].era is Era.STATELESS:
                meta[LOG_LEVEL] = level
            elif session.log_level != level:
                await client.set_logging_level(level)  # type: ignore[arg-type]  # one of LEVELS
                session.log_level = level

        async def progress(done: float, total: float | None, message: str | None) -> None:
            if running.listener is not None:
                await _truncate_progress(running.listener.report_progress)(done, total, message)

        on_progress = progress if PROGRESS_TOKEN in self._ctx.call.meta else None
        if self._task is not None:
            task = RemoteTask.restore(client, self._task, on_progress)
            return await task.continue_with(reply_params["inputResponses"], self._forwarder.timeout)
        answer = await client.exchange(
            request.method,
            {**request.build_params(client), **reply_params},
            timeout=self._forwarder.timeout,
            on_progress=on_progress,
            meta=meta or None,
        )
        if not is_task_result(answer):
            return answer
        return await RemoteTask(client, answer, on_progress).follow(self._forwarder.timeout)

    async def _collect_replies(self, number: int, pending: NeedsInput) -> Wire:
        """Collect the responses that the remote server receives in its next round."""
        answers = await self._ctx.gather(
            *(
                self._forward_request(RemoteInputRequest(request["method"], request.get("params")), f"{number}.{index}")
                for index, request in enumerate(pending.requests.values())
            )
        )

        reply_params: Wire = {}
        if pending.requests:
            reply_params["inputResponses"] = dict(zip(pending.requests, answers, strict=True))
        if pending.request_state is not None:
            reply_params["requestState"] = pending.request_state
        return reply_params

    def _build_input_request(self, remote_request: RemoteInputRequest, suffix: str) -> InputRequest:
        """Convert a request for the client. Raises UnsupportedInputRequest."""
        kind = CAPABILITIES_BY_METHOD.get(remote_request.method, "proxy")
        return build_input_request(remote_request, self._ctx.revision, f"{kind}-{suffix}", self._forwarder.name)

    async def _forward_request(self, remote_request: RemoteInputRequest, key: str) -> Wire:
        try:
            request = self._build_input_request(remote_request, key)
        except UnsupportedInputRequest as problem:
            raise ToolError(
                f"The server {self._forwarder.name!r} sent a request that cannot be forwarded: {problem}"
            ) from None
        answer: Wire = await self._ctx.request_input(request)
        return answer

    async def _continue_call(self, id: str) -> Wire:
        """Continue a running remote call: new, suspended or lost."""
        call = self._suspended_call or self._forwarder.suspended_calls.take(id, self._options.owner)
        if call is None:
            if not self._request.is_repeatable:
                raise ToolError(LOST_CALL_MESSAGE)
            call = self._start_suspendable_call(await self._options.acquire_session(), {})
        self._suspended_call = call
        call.listener = self._ctx

        number = 0
        try:
            while (pending := await call.wait_for_requests(number)) is not None:
                await self._ctx.gather(
                    *(self._resolve_pending(request, number + index) for index, request in enumerate(pending))
                )
                number += len(pending)
            result: Wire = await call.wait_for_result()
            return result
        except CallSuspended:
            self._is_suspended = True
            self._forwarder.suspended_calls.add(id, call)
            raise

    async def _resolve_pending(self, pending: PendingInputRequest, number: int) -> None:
        """Forward a request to the client and send its response to the remote server."""
        try:
            request = self._build_input_request(pending.request, str(number))
        except UnsupportedInputRequest as problem:
            pending.reject(f"The request cannot be forwarded to the client: {problem}")
            return
        if not self._ctx.call.supports(request.required_capability):
            pending.reject("The client does not support this request")
            return
        try:
            pending.resolve(await self._ctx.request_input(request))
        except InputRefused:
            pending.reject("The client refused the request")


def _requires_input(answer: Mapping[str, Any]) -> bool:
    return answer.get("resultType") == "input_required"


def _parse_pending(answer: Wire) -> NeedsInput:
    """Return the requests and the state of a round. Raises ToolError for malformed ones."""
    requests, request_state, task_id = answer.get("inputRequests"), answer.get("requestState"), answer.get("taskId")
    if requests is None:
        requests = {}
    if (
        type(requests) is not dict
        or len(requests) > MAX_ROUND_REQUESTS
        or not all(type(request) is dict and type(request.get("method")) is str for request in requests.values())
        or not all(text is None or type(text) is str for text in (request_state, task_id))
    ):
        raise ToolError("Malformed input request from the server")
    return NeedsInput(requests, request_state, task_id)


def _truncate_progress(
    report: Callable[..., Awaitable[None]],
) -> Callable[[float, float | None, str | None], Awaitable[None]]:
    async def progress(done: float, total: float | None, message: str | None) -> None:
        await report(done, total, clean_line(message, MAX_PROGRESS_CHARACTERS) if message is not None else None)

    return progress


def forward_log(running: RunningCall, message: Any) -> Awaitable[None] | None:
    """Forward a log message of the remote server, in the form of the SDK."""
    if running.listener is None or message.level not in LOG_LEVELS:
        return None
    logger = message.logger
    return running.listener.log(
        message.level, message.data, logger=sanitize_label(logger[:MAX_LOGGER_CHARACTERS]) if logger else None
    )
