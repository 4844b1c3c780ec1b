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
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidParams, MCPError, ToolError
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.session import Session
from mcp_django.server.client_requests.idempotency import OnceKeys, Run, at_most_once, through_json
from mcp_django.server.ports import StateTooLarge

INPUT_REQUIRED = "input_required"
"""`resultType` of a result that ends a round."""
ATTEMPTS = 3
"""Maximum invalid responses to one request in the handshake era."""
TOLD = 1000
"""Maximum characters of the validation error that is shown to the user."""
ASKED_IN_TRANSACTION = (
    "A request to the client inside a transaction would hold the transaction open while the user thinks. Send the "
    "request before the transaction starts. If it is the call's own (atomic= or ATOMIC_REQUESTS), declare the handler "
    "with atomic=False and put the writes into a transaction.atomic() after the request"
)


class Suspended(BaseException):
    """The handler cannot continue in this round.

    Not an Exception, so that `except Exception` does not swallow it.
    """


class InvalidAnswer(ValueError):
    """The client's response does not have the requested shape."""


class InvalidContent(InvalidAnswer):
    """Form values that break a rule; the user sees the text and is prompted again."""


class Refused(ToolError):
    """The client answered a request with an error (handshake era only)."""


class Unanswered(ToolError):
    """Missing or unusable response, or a conversation that cannot continue."""


class Question(NamedTuple):
    """Request to the client, with the parser of its response."""

    method: str
    params: dict[str, Any] | None
    needs: dict[str, Any]
    """Client capability that the request requires."""
    read: Callable[[Any], Any]
    """Parser of the raw response: a value or awaitable, or InvalidInputResponse."""
    key: str | None = None
    """Name given by the author; visible on the wire in the stateless era."""
    identity: Any = None
    """JSON that identifies the request if its parameters can differ between runs."""
    read_again: Callable[[Any], Any] | None = None
    """Parser for a response that an earlier round accepted.

    The handler may have changed the data since then, which does not make the response invalid.
    """

    @property
    def known_by(self) -> list[Any]:
        """JSON that is equal for equal requests."""
        return [self.method, self.params if self.identity is None else self.identity]

    def again(self, problem: InvalidAnswer) -> "Question":
        """Return the same request with the validation error in its message."""
        if type(problem) is not InvalidContent or self.params is None:
            return self
        return self._replace(params={**self.params, "message": f"{self.params['message']}\n\n{str(problem)[:TOLD]}"})


class InputRequired(dict[str, Any]):
    """Result body that ends a round (basic/patterns/mrtr)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskLimits:
    """Limits of one conversation."""

    wait: float = 600.0
    """Seconds that a request waits for its response in the handshake era."""
    page_wait: float = 60.0
    """Seconds that a round waits in the stateless era for a user to finish a page."""
    answers: int = 64
    rounds: int = 32
    stale_rounds: int = 3
    ttl: float = 3600.0
    """Seconds that a client may take for one round in the stateless era."""

    @property
    def kept(self) -> float:
        """Seconds after which no state of the conversation is valid, with all extensions."""
        return self.ttl * (self.rounds + 1)


class Conversation(Protocol):
    """Requests of one call to its client."""

    waits: bool
    """True if a request waits for its response; False if it ends the round."""

    @property
    def replaying(self) -> bool:
        """True while the handler repeats steps of an earlier round."""

    async def ask(self, question: Question) -> Any:
        """Return the parsed response to a request."""

    async def once(self, key: str, run: Run, *, durable: bool = False) -> Any:
        """Run a step once and record its value; with `durable`, in a database row."""


async def _value(read: Callable[[Any], Any], raw: Any) -> Any:
    value = read(raw)
    return await value if inspect.isawaitable(value) else value


class Live:
    """Handshake era: send a request on the call's stream and wait for the response."""

    replaying = False
    waits = True

    def __init__(self, call: Call, limits: AskLimits) -> None:
        self._call, self._limits, self._once = call, limits, OnceKeys()

    async def ask(self, question: Question) -> Any:
        call = self._call
        if call.session is None:
            raise Unanswered(_unaskable(call))
        call.require(question.needs)
        if not call.outbox.interactive:
            raise Unanswered(_unaskable(call))
        if not await _is_ready(call, call.session):
            # basic/lifecycle: a server sends no requests before `initialized`.
            raise Unanswered("The client has not sent notifications/initialized, so it cannot receive requests yet")

        asked = question
        async with call.server.replies.listening(call.session):
            for attempt in range(1, ATTEMPTS + 1):
                # The previous response may have been parsed on a thread.
                call.server.executor.rest()
                reply = await self._send(call.session, asked)
                if reply.error is not None:
                    raise Refused(str(reply.error.get("message") or "The client refused the request"))
                try:
                    return await _value(question.read, reply.result)
                except InvalidAnswer as problem:
                    if attempt == ATTEMPTS:
                        raise Unanswered(
                            f"The client gave no valid answer in {ATTEMPTS} attempts; the last one: {problem}"
                        ) from None
                    asked = question.again(problem)

    async def _send(self, session: Session, question: Question) -> jsonrpc.Response:
        call, wait = self._call, self._limits.wait
        id = call.server.replies.new_id(session)
        try:
            return await session.ask(call.outbox, id, question.method, question.params, timeout=wait)
        except TimeoutError:
            raise Unanswered(f"The client did not answer within {wait:g} seconds") from None

    async def once(self, key: str, run: Run, *, durable: bool = False) -> Any:
        self._once.claim(key)
        if not durable:
            return through_json(await run())
        call, session = self._call, self._call.session
        # A client must not reuse an id within a session (basic), so a repeated id marks a repeated request.
        flow = secrets.token_hex(16) if session is None else f"{session.pk} {jsonrpc.dumps(call.id).decode()}"
        return await at_most_once(call, flow, key, run, ttl=self._limits.kept)


async def _is_ready(call: Call, session: Session) -> bool:
    """Return True if the client has sent `initialized`, to any process."""
    if not session.initialized:
        await call.server.sessions.load(session.key, session.owner)
    return session.initialized


def _unaskable(call: Call) -> str:
    """Explain why no request can reach this client."""
    if not call.connection.streams:
        return (
            "The request could not be sent to the client: this server runs under WSGI, which can send only responses. "
            "Under ASGI it can send requests to clients of this revision"
        )
    if call.session is None:
        return (
            "The request could not be sent to the client: this server has no sessions (REQUIRE_SESSION), which clients "
            "of this revision need to answer"
        )
    return "The request could not be sent to the client: its Accept header does not allow text/event-stream"


class _Record(NamedTuple):
    digest: str
    answer: Any


class Replay:
    """Stateless era: replay responses, or record the request and end the round.

    Raises InvalidParams for an unusable `requestState` or `inputResponses`.
    """

    waits = False

    def __init__(self, call: Call, binding: bytes, limits: AskLimits) -> None:
        self._call, self._binding, self._limits = call, binding, limits
        self._once, self._count = OnceKeys(), Counter[str]()
        self.pending: dict[str, tuple[str, Question]] = {}

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
        if "requestState" in params:
            state |= call.server.state_sealer.open(params["requestState"], binding)

        self._state = state
        self._answers = {key: _Record(*record) for key, record in state["answers"].items()}
        self._taken = set(state["taken"])
        self._fresh = self._responses(params)
        self._answered = {key for key in state["asked"] if key in self._fresh}
        for key in self._answered:
            self._answers[key] = _Record(state["asked"][key], self._fresh.pop(key))
        self._unread = {*self._answers, *(f"once:{key}" for key in state["once"])}
        self._live = False
        self._needs_flow = False
        call.fate.conversation = weakref.ref(self)  # weak: avoids a reference cycle

    @property
    def unfinished(self) -> bool:
        """True if the call needs another round."""
        return bool(self.pending) or self._needs_flow

    async def spend(self) -> None:
        """Consume the state that came with this request.

        Raises InvalidParams if any process has consumed it before.
        """
        state, server = self._call.params.get("requestState"), self._call.server
        if state is not None:
            digest = hashlib.sha256(state.encode()).hexdigest()
            if not await server.ledger.spend(digest, ttl=self._limits.ttl):
                raise server.state_sealer.refused()

    def _responses(self, params: dict[str, Any]) -> dict[str, Any]:
        responses = params.get("inputResponses", {})
        if type(responses) is not dict or not all(type(answer) is dict for answer in responses.values()):
            raise InvalidParams("inputResponses must be an object that maps each key to a result object")
        if len(responses) > self._limits.answers:
            raise InvalidParams(f"inputResponses may hold {self._limits.answers} answers at most")
        return dict(responses)

    @property
    def replaying(self) -> bool:
        return bool(self._unread) and not self._live

    async def ask(self, question: Question) -> Any:
        key, digest = self._identify(question)

        record = self._answers.get(key)
        if record is None and key in self._fresh:
            # A client can answer a request that this conversation has not sent. The response is validated as usual.
            record = self._answers[key] = _Record(digest, self._fresh.pop(key))

        if record is not None:
            if record.digest == digest:
                self._unread.discard(key)
                self._answered.discard(key)
                read = question.read_again if key in self._taken else None
                try:
                    value = await _value(read or question.read, record.answer)
                except InvalidAnswer as problem:
                    question = question.again(problem)
                else:
                    self._taken.add(key)
                    return value
            del self._answers[key]
            self._taken.discard(key)

        self._call.require(question.needs)
        self.pending[key] = digest, question
        self._live = True
        raise Suspended

    async def once(self, key: str, run: Run, *, durable: bool = False) -> Any:
        self._once.claim(key)
        self._unread.discard(f"once:{key}")
        results, flow = self._state["once"], self._state["flow"]

        if key not in results:
            self._live = True
            if not durable:
                results[key] = through_json(await run())
            elif flow:
                steps = _without_questions(key, run)
                results[key] = await at_most_once(self._call, flow, key, steps, ttl=self._limits.kept)
            else:
                # A client repeats a lost request unchanged. The repetition is recognized only if the client already
                # holds the conversation id. So this round ends with the state alone.
                self._needs_flow = True
                raise Suspended

        return results[key]

    def input_required(self) -> InputRequired:
        """Build the result that ends the round.

        Raises InputUnavailable if the conversation makes no progress or exceeds its limits.
        """
        state, limits = self._state, self._limits
        stale = state["stale"] + 1 if self._answered else 0
        if stale > limits.stale_rounds:
            raise Unanswered("The tool sent a different request in every round; the conversation cannot be continued")
        if state["round"] >= limits.rounds:
            raise Unanswered(f"The conversation took more than {limits.rounds} rounds")
        if len(self._answers) + len(self.pending) > limits.answers:
            raise Unanswered(f"The tool sent more than {limits.answers} requests to the client")

        payload = {
            **state,
            "flow": state["flow"] or secrets.token_hex(16),
            "round": state["round"] + 1,
            "stale": stale,
            "answers": {key: [*record] for key, record in self._answers.items()},
            "asked": {key: digest for key, (digest, _) in self.pending.items()},
            "taken": sorted(self._taken),
        }

        try:
            sealed = self._call.server.state_sealer.seal(payload, self._binding, ttl=limits.ttl)
        except StateTooLarge:
            raise Unanswered("The conversation is too large for a state; reduce the requests and answers") from None
        requests = {
            key: {"method": question.method, "params": question.params}
            if question.params is not None
            else {"method": question.method}
            for key, (_, question) in self.pending.items()
        }
        asked = {"inputRequests": requests} if requests else {}
        return InputRequired(**asked, requestState=sealed, resultType=INPUT_REQUIRED)

    def _identify(self, question: Question) -> tuple[str, str]:
        """Return the name of the request in this run, and the digest of its content."""
        digest = hashlib.sha256(jsonrpc.dumps_sorted(question.known_by)).hexdigest()[:24]
        name = question.key or f"{question.method.partition('/')[0]}-{digest[:10]}"
        self._count[name] += 1
        return (name if self._count[name] == 1 else f"{name}-{self._count[name]}"), digest


def _without_questions(key: str, run: Run) -> Run:
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
    return isinstance(problem, Suspended)


async def gather(*branches: Awaitable[Any]) -> list[Any]:
    """Run branches concurrently, so that one round sends the requests of all of them.

    Each branch runs to its end or to its suspension. Errors take precedence over suspensions.
    """
    outcomes = await asyncio.gather(*branches, return_exceptions=True)
    for kinds in (MCPError, Exception, BaseException):
        for outcome in outcomes:
            if isinstance(outcome, kinds):
                raise outcome
    return outcomes
