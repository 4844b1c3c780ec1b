"""Conversations: requests from a handler to its client, sent in two ways.

`LiveConversation` sends a request on the call's stream and waits (handshake era). `ReplayConversation` reads responses
from the record that the client carries in the sealed `requestState` (stateless era). For a missing response it records
the request and ends the round. The handler then runs again from its first line when the client returns with the
responses.

A request is identified by its key and by the number of earlier requests with that key in the same run. A response
counts only while a digest of method and parameters is unchanged. Responses that a run did not reach are kept.

A round is stale if the handler leaves a requested response unused. A few stale rounds in a row end the call, because
the handler sends a different request each time. Decline and cancel are ordinary responses.
"""

import asyncio
import hashlib
import inspect
import secrets
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidParams, MCPError, ToolError
from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject
from mcp_django.protocol.revisions import Era
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.context.idempotency import RunOnceKeys, RunStep, round_trip_json, run_at_most_once
from mcp_django.server.options import ConversationLimits
from mcp_django.server.ports import StateTooLarge

INPUT_REQUIRED = "input_required"
"""`resultType` of a result that ends a round."""
MAX_ATTEMPTS = 3
"""Maximum invalid responses to one request in the handshake era."""
MAX_PROBLEM_CHARACTERS = 1000
"""Maximum characters of the validation error that is shown to the user."""
REQUEST_IN_TRANSACTION_MESSAGE = (
    "A request to the client inside a transaction would hold the transaction open while the user thinks. Send the "
    "request before the transaction starts. If it is the call's own (atomic= or ATOMIC_REQUESTS), declare the handler "
    "with atomic=False and put the writes into a transaction.atomic() after the request"
)


class CallSuspended(BaseException):
    """The handler cannot continue in this round.

    Not an Exception, so that `except Exception` does not swallow it.
    """


class InvalidInputResponse(ValueError):
    """The client's response does not have the requested shape."""


class InvalidFormContent(InvalidInputResponse):
    """Form values that break a rule; the user sees the text and is prompted again."""

    def __init__(self, text: str, errors: Mapping[str, Sequence[str]] | None = None) -> None:
        """Create an error; `errors` are texts by field."""
        super().__init__(text)
        self.errors = errors or {}


class InputRefused(ToolError):
    """The client answered a request with an error (handshake era only)."""


class InputUnavailable(ToolError):
    """Missing or unusable response, or a conversation that cannot continue."""


class InputRequest(NamedTuple):
    """Request to the client, with the parser of its response."""

    method: str
    params: JSONObject | None
    required_capability: JSONObject
    """Client capability that the request requires."""
    parse: Callable[[Any], object]
    """Parser of the raw response: a value or awaitable, or InvalidInputResponse."""
    key: str | None = None
    """Name given by the author; visible on the wire in the stateless era."""
    identity: object = None
    """JSON that identifies the request if its parameters can differ between runs."""
    parse_again: Callable[[Any], object] | None = None
    """Parser for a response that an earlier round accepted.

    The handler may have changed the data since then, which does not make the response invalid.
    """
    strict: bool = False
    """True if only the client itself may carry the request, and no tool that a model could call."""
    problem: InvalidFormContent | None = None
    """Reason why the values of an earlier response were invalid."""

    @property
    def identity_json(self) -> list[Any]:
        """JSON that is equal for equal requests."""
        return [self.method, self.params if self.identity is None else self.identity]

    def to_wire(self) -> JSONObject:
        """Return the request as an entry of `inputRequests`."""
        params = {} if self.params is None else {"params": self.params}
        return {"method": self.method, **params}

    def with_problem(self, problem: InvalidInputResponse) -> "InputRequest":
        """Return the same request with the validation error in its message."""
        if type(problem) is not InvalidFormContent or self.params is None:
            return self
        return self._replace(
            problem=problem,
            params={**self.params, "message": f"{self.params['message']}\n\n{str(problem)[:MAX_PROBLEM_CHARACTERS]}"},
        )


class InputRequired(dict[str, Any]):
    """Result body that ends a round (basic/patterns/mrtr)."""


class ClientConversation(Protocol):
    """Requests of one call to its client."""

    waits_for_response: bool
    """True if a request waits for its response; False if it ends the round."""

    @property
    def replaying(self) -> bool:
        """True while the handler repeats steps of an earlier round."""

    async def request_input(self, request: InputRequest) -> Any:
        """Return the parsed response to a request."""

    async def run_once(self, key: str, run: RunStep, *, durable: bool = False) -> Any:
        """Run a step once and record its value; with `durable`, in a database row."""


async def parse_value(parse: Callable[[Any], object], raw: object) -> Any:
    """Return the value of a parser, which may be awaitable."""
    value = parse(raw)
    return await value if inspect.isawaitable(value) else value


class LiveConversation:
    """Handshake era: send a request on the call's stream and wait for the response."""

    replaying = False
    waits_for_response = True

    def __init__(self, call: Call, limits: ConversationLimits) -> None:
        self._call = call
        self._limits = limits
        self._run_once_keys = RunOnceKeys()

    async def request_input(self, request: InputRequest) -> Any:
        call = self._call
        if call.session is None:
            raise InputUnavailable(_explain_unavailable(call))
        call.require_capability(request.required_capability)
        if not call.outbox.interactive:
            raise InputUnavailable(_explain_unavailable(call))
        if not await _is_initialized(call, call.session):
            # basic/lifecycle: a server sends no requests before `initialized`.
            raise InputUnavailable(
                "The client has not sent notifications/initialized, so it cannot receive requests yet"
            )

        current = request
        async with call.server.ports.pending_requests.accept_forwarded(call.session):
            for attempt in range(1, MAX_ATTEMPTS + 1):
                # The previous response may have been parsed on a thread.
                call.server.ports.executor.release_thread()
                reply = await self._send(call.session, current)
                if reply.error is not None:
                    raise InputRefused(str(reply.error.get("message") or "The client refused the request"))
                try:
                    return await parse_value(request.parse, reply.result)
                except InvalidInputResponse as problem:
                    if attempt == MAX_ATTEMPTS:
                        raise InputUnavailable(
                            f"The client gave no valid answer in {MAX_ATTEMPTS} attempts; the last one: {problem}"
                        ) from None
                    current = request.with_problem(problem)

    async def _send(self, session: ServerSession, request: InputRequest) -> jsonrpc.Response:
        call, timeout = self._call, self._limits.elicitation_timeout
        id = call.server.ports.pending_requests.new_id(session)
        try:
            with call.record.wait(request.method, request.key):
                return await session.send_request(call.outbox, id, request.method, request.params, timeout=timeout)
        except TimeoutError:
            raise InputUnavailable(f"The client did not answer within {timeout:g} seconds") from None

    async def run_once(self, key: str, run: RunStep, *, durable: bool = False) -> Any:
        self._run_once_keys.claim(key)
        if not durable:
            return round_trip_json(await run())
        call, session = self._call, self._call.session
        # A client must not reuse an id within a session (basic), so a repeated id marks a repeated request.
        conversation_id = (
            secrets.token_hex(16) if session is None else f"{session.pk} {jsonrpc.dumps(call.id).decode()}"
        )
        return await run_at_most_once(call, conversation_id, key, run, ttl=self._limits.max_state_seconds)


async def _is_initialized(call: Call, session: ServerSession) -> bool:
    """Return True if the client has sent `initialized`, to any process."""
    if not session.initialized:
        await call.server.ports.sessions.load(session.key, session.owner)
    return session.initialized


def _explain_unavailable(call: Call) -> str:
    """Explain why this call can send no request to its client."""
    reason = explain_missing_stream(call)
    return reason or "The request could not be sent to the client: its Accept header does not allow text/event-stream"


def explain_missing_stream(call: Call) -> str | None:
    """Explain why no call of this client can carry a request to it (handshake era); None if one can."""
    if call.revision.era is Era.STATELESS:
        return None  # its requests are answered in rounds
    if not call.connection.supports_streaming:
        return (
            "The request could not be sent to the client: this server runs under WSGI, which can send only responses. "
            "Under ASGI it can send requests to clients of this revision"
        )
    if call.session is None:
        return (
            "The request could not be sent to the client: this server has no sessions (REQUIRE_SESSION), which clients "
            "of this revision need to answer"
        )
    return None


class _RecordedResponse(NamedTuple):
    digest: str
    response: object


class StoredRounds(NamedTuple):
    """Earlier rounds of a conversation that the server stores itself."""

    state: dict[str, Any]
    """Members of the state, as in `ReplayConversation.get_state`."""
    responses: JSONMapping
    """Responses to the requests that the state lists as sent, by the name of the request."""


class ReplayConversation:
    """Stateless era: replay responses, or record the request and end the round.

    Raises InvalidParams for an unusable `requestState` or `inputResponses`.
    """

    waits_for_response = False

    def __init__(
        self, call: Call, binding: bytes, limits: ConversationLimits, stored: "StoredRounds | None" = None
    ) -> None:
        """Read the earlier rounds from the params of the call, or from `stored`."""
        self._call = call
        self._binding = binding
        self._limits = limits
        self._run_once_keys = RunOnceKeys()
        self._request_counts = Counter[str]()
        self.pending_requests: dict[str, tuple[str, InputRequest]] = {}

        params = call.params
        state: dict[str, Any] = {
            "flow": "",
            "round": 0,
            "stale": 0,
            "answers": {},
            "asked": {},
            "once": {},
            "taken": [],
        }
        if stored is not None:
            state |= stored.state
        elif "requestState" in params:
            state |= call.server.ports.state_sealer.unseal(params["requestState"], binding)

        self._state = state
        self._recorded = {key: _RecordedResponse(*record) for key, record in state["answers"].items()}
        self._accepted = set(state["taken"])
        responses = self._check_responses(params) if stored is None else stored.responses
        # Only requests that the state records as sent take a response. Keys are predictable, so a response to any other
        # request proves nothing: the client may not have shown that request to its user.
        self._unread_responses = state["asked"].keys() & responses.keys()
        for key in self._unread_responses:
            self._recorded[key] = _RecordedResponse(state["asked"][key], responses[key])
        self._unreached = {*self._recorded, *(f"once:{key}" for key in state["once"])}
        self._is_past_replay = False
        self._needs_conversation_id = False
        call.record.conversation = weakref.ref(self)  # weak: avoids a reference cycle
        if state["round"]:
            self._record_round(state["flow"])

    @property
    def binding(self) -> bytes:
        """Binding of the sealed state."""
        return self._binding

    @property
    def needs_another_round(self) -> bool:
        """True if the call needs another round."""
        return bool(self.pending_requests) or self._needs_conversation_id

    async def consume_state(self) -> None:
        """Consume the state that came with this request.

        Raises InvalidParams if any process has consumed it before.
        """
        state, server = self._call.params.get("requestState"), self._call.server
        if state is not None:
            digest = hashlib.sha256(state.encode()).hexdigest()
            if not await server.ports.idempotency_store.consume(digest, ttl=self._limits.state_ttl):
                raise server.ports.state_sealer.build_error()

    def _check_responses(self, params: JSONObject) -> JSONObject:
        responses = params.get("inputResponses", {})
        if type(responses) is not dict or not all(type(answer) is dict for answer in responses.values()):
            raise InvalidParams("inputResponses must be an object that maps each key to a result object")
        if len(responses) > self._limits.answers:
            raise InvalidParams(f"inputResponses may hold {self._limits.answers} answers at most")
        return responses

    @property
    def replaying(self) -> bool:
        return bool(self._unreached) and not self._is_past_replay

    async def request_input(self, request: InputRequest) -> Any:
        key, digest = self._identify(request)

        record = self._recorded.get(key)
        if record is not None:
            if record.digest == digest:
                self._unreached.discard(key)
                self._unread_responses.discard(key)
                try:
                    value = await self._parse_response(key, request, record.response)
                except InvalidInputResponse as problem:
                    request = request.with_problem(problem)
                else:
                    self._accepted.add(key)
                    return value
            del self._recorded[key]
            self._accepted.discard(key)

        self._call.require_capability(request.required_capability)
        self.pending_requests[key] = digest, request
        self._is_past_replay = True
        raise CallSuspended

    async def _parse_response(self, key: str, request: InputRequest, response: object) -> object:
        """Return the value of a recorded response. Raises InvalidInputResponse."""
        parse = request.parse_again if key in self._accepted else None
        return await parse_value(parse or request.parse, response)

    def record_response(self, key: str, response: object) -> None:
        """Record a valid response to a pending request, which is then no longer pending."""
        digest, _ = self.pending_requests.pop(key)
        self._recorded[key] = _RecordedResponse(digest, response)
        self._accepted.add(key)

    async def run_once(self, key: str, run: RunStep, *, durable: bool = False) -> Any:
        self._run_once_keys.claim(key)
        self._unreached.discard(f"once:{key}")
        results, conversation_id = self._state["once"], self._state["flow"]

        if key not in results:
            self._is_past_replay = True
            if not durable:
                results[key] = round_trip_json(await run())
            elif conversation_id:
                steps = _forbid_requests(key, run)
                results[key] = await run_at_most_once(
                    self._call, conversation_id, key, steps, ttl=self._limits.max_state_seconds
                )
            else:
                # A client repeats a lost request unchanged. The repetition is recognized only if the client already
                # holds the conversation id. So this round ends with the state alone.
                self._needs_conversation_id = True
                raise CallSuspended

        return results[key]

    def build_input_required(self) -> InputRequired:
        """Build the result that ends the round.

        Raises InputUnavailable if the conversation makes no progress or exceeds its limits.
        """
        sealed = self.seal_state(self.build_next_state(), self._binding)
        requests = {key: question.to_wire() for key, (_, question) in self.pending_requests.items()}
        input_requests = {"inputRequests": requests} if requests else {}
        return InputRequired(**input_requests, requestState=sealed, resultType=INPUT_REQUIRED)

    def build_next_state(self) -> JSONObject:
        """Return the state with which the next round begins.

        Raises InputUnavailable if the conversation makes no progress or exceeds its limits.
        """
        state, limits = self._state, self._limits
        stale = state["stale"] + 1 if self._unread_responses else 0
        if stale > limits.stale_rounds:
            raise InputUnavailable(
                "The tool sent a different request in every round; the conversation cannot be continued"
            )
        if state["round"] >= limits.rounds:
            raise InputUnavailable(f"The conversation took more than {limits.rounds} rounds")
        if len(self._recorded) + len(self.pending_requests) > limits.answers:
            raise InputUnavailable(f"The tool sent more than {limits.answers} requests to the client")

        id = state["flow"] or secrets.token_hex(16)
        self._record_round(id)
        self._record_questions()
        return {
            **self.get_state(),
            "flow": id,
            "round": state["round"] + 1,
            "stale": stale,
        }

    def _record_round(self, id: str) -> None:
        """Note in the record of the call that it is a round of a conversation."""
        self._call.record.conversation_id = id
        self._call.record.round = self._state["round"] + 1

    def _record_questions(self) -> None:
        """Note the questions that end this round in the record of the call."""
        for _digest, request in self.pending_requests.values():
            self._call.record.start_wait(request.method, request.key)

    def seal_state(self, payload: JSONObject, binding: bytes) -> str:
        """Return a sealed payload that contains the state. Raises InputUnavailable if it is too large."""
        try:
            return self._call.server.ports.state_sealer.seal(payload, binding, ttl=self._limits.state_ttl)
        except StateTooLarge:
            raise InputUnavailable(
                "The conversation is too large for a state; reduce the requests and answers"
            ) from None

    def get_state(self) -> JSONObject:
        """Return the state of the conversation after this run, as JSON."""
        return {
            **self._state,
            "answers": {key: [*record] for key, record in self._recorded.items()},
            "asked": {key: digest for key, (digest, _) in self.pending_requests.items()},
            "taken": sorted(self._accepted),
        }

    def _identify(self, request: InputRequest) -> tuple[str, str]:
        """Return the name of the request in this run, and the digest of its content."""
        digest = hashlib.sha256(jsonrpc.dumps_sorted(request.identity_json)).hexdigest()[:24]
        name = request.key or f"{request.method.partition('/')[0]}-{digest[:10]}"
        self._request_counts[name] += 1
        return (name if self._request_counts[name] == 1 else f"{name}-{self._request_counts[name]}"), digest


def _forbid_requests(key: str, run: RunStep) -> RunStep:
    """Reject requests to the client in a durable step, which they would repeat."""

    async def steps() -> Any:
        try:
            return await run()
        except BaseException as problem:
            if is_suspension(problem):
                raise RuntimeError(
                    f"run_once({key!r}, durable=True) may not send requests to the client; send them before it"
                ) from problem
            raise

    return steps


def is_suspension(problem: BaseException) -> bool:
    """Return True for a suspension, or for a group of suspensions only.

    A TaskGroup wraps the exceptions of its tasks in a group.
    """
    if isinstance(problem, BaseExceptionGroup):
        return all(is_suspension(inner) for inner in problem.exceptions)
    return isinstance(problem, CallSuspended)


async def gather(*branches: Awaitable[object]) -> list[Any]:
    """Run branches concurrently, so that one round sends the requests of all of them.

    Each branch runs to its end or to its suspension. Errors take precedence over suspensions.
    """
    outcomes = await asyncio.gather(*branches, return_exceptions=True)
    for kinds in (MCPError, Exception, BaseException):
        for outcome in outcomes:
            if isinstance(outcome, kinds):
                raise outcome
    return outcomes
