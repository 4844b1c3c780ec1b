"""Questions to the client, written once by a handler and asked in two ways.

`Live` sends a request on the call's stream and waits (handshake era). `Replay` answers from the record that the
client carries in the sealed `requestState`, or notes the question and ends the round (stateless era): the handler
then runs again from its first line when the client comes back with the answers.

A question is identified by its key and how often that key was asked before in this run; its answer counts
only while the question is still the same, which a digest of method and parameters tells. Answers that no run reached
are kept; a round that answers nothing the handler still asks is stale, and a few stale rounds in a row end the call,
because the handler asks something else each time. Decline and cancel are answers like any other.
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
"""The `resultType` of a result that ends a round."""
ATTEMPTS = 3
"""How often a handshake-era client may answer one question wrongly."""
TOLD = 1000
"""Characters of what was wrong with an answer that the person is told."""
ASKED_IN_TRANSACTION = (
    "A question inside a transaction would hold it open while somebody thinks. Ask before it begins; where it is the "
    "call's own (atomic= or ATOMIC_REQUESTS), declare the handler with atomic=False and put what must hold together "
    "into a transaction.atomic() after the question"
)


class Suspended(BaseException):
    """The handler cannot go on in this round. Not an Exception, so that `except Exception` does not swallow it."""


class InvalidAnswer(ValueError):
    """The client's answer does not have the shape that was asked for."""


class InvalidContent(InvalidAnswer):
    """What was filled in breaks a rule of the form. The text is for the person, who is asked again."""


class Refused(ToolError):
    """The client answered a question with an error instead of an answer (handshake era only)."""


class Unanswered(ToolError):
    """No usable answer came in time, or the conversation cannot go on."""


class Question(NamedTuple):
    """What is asked, and how its raw answer is read."""

    method: str
    params: dict[str, Any] | None
    needs: dict[str, Any]
    """The client capability that it takes."""
    read: Callable[[Any], Any]
    """Raw answer to value, or to an awaitable of it; raises InvalidAnswer."""
    key: str | None = None
    """The author's name for it, seen on the wire in the stateless era."""
    identity: Any = None
    """The JSON that it is known by, where the parameters may differ from run to run though it is the same question."""
    read_again: Callable[[Any], Any] | None = None
    """As `read`, for an answer that was taken in an earlier round: what the handler did upon it is no fault of it."""

    @property
    def known_by(self) -> list[Any]:
        """What tells whether another question is the same, as JSON."""
        return [self.method, self.params if self.identity is None else self.identity]

    def again(self, problem: InvalidAnswer) -> "Question":
        """The same question, which says what was wrong with the answer to it."""
        if type(problem) is not InvalidContent or self.params is None:
            return self
        return self._replace(params={**self.params, "message": f"{self.params['message']}\n\n{str(problem)[:TOLD]}"})


class InputRequired(dict[str, Any]):
    """The body of a result that ends a round (basic/patterns/mrtr)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskLimits:
    """What one conversation may take."""

    wait: float = 600.0
    """Seconds that a question waits for its answer in the handshake era."""
    page_wait: float = 60.0
    """Seconds that a round waits in the stateless era for somebody who has a page to finish."""
    answers: int = 64
    rounds: int = 32
    stale_rounds: int = 3
    ttl: float = 3600.0
    """Seconds that a client may take for one round in the stateless era."""

    @property
    def kept(self) -> float:
        """Seconds after which no state of a conversation opens any more, however it is prolonged."""
        return self.ttl * (self.rounds + 1)


class Conversation(Protocol):
    """One call's questions."""

    waits: bool
    """Does a question wait for its answer, or end the round?"""

    @property
    def replaying(self) -> bool:
        """Is the handler still on ground that an earlier round covered?"""

    async def ask(self, question: Question) -> Any:
        """The value of the answer."""

    async def once(self, key: str, run: Run, *, durable: bool = False) -> Any:
        """Run and remember; `durable`, in a row."""


async def _value(read: Callable[[Any], Any], raw: Any) -> Any:
    value = read(raw)
    return await value if inspect.isawaitable(value) else value


class Live:
    """Handshake era: ask on the call's stream, wait for the answer."""

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
            # basic/lifecycle: before `initialized` a server asks nothing.
            raise Unanswered("The client must say notifications/initialized before it can be asked")
        asked = question
        async with call.server.replies.listening(call.session):
            for attempt in range(1, ATTEMPTS + 1):
                # The answer before may have been read on a lane.
                call.server.executor.rest()
                reply = await self._send(call.session, asked)
                if reply.error is not None:
                    raise Refused(str(reply.error.get("message") or "The client refused the question"))
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
            raise Unanswered(f"No answer came within {wait:g} seconds") from None

    async def once(self, key: str, run: Run, *, durable: bool = False) -> Any:
        self._once.claim(key)
        if not durable:
            return through_json(await run())
        call, session = self._call, self._call.session
        # A client must not use an id twice in a session (basic), so a request with a known one is a repetition.
        flow = secrets.token_hex(16) if session is None else f"{session.pk} {jsonrpc.dumps(call.id).decode()}"
        return await at_most_once(call, flow, key, run, ttl=self._limits.kept)


async def _is_ready(call: Call, session: Session) -> bool:
    """Has the client said `initialized`? Another process may have heard it."""
    if not session.initialized:
        await call.server.sessions.load(session.key, session.owner)
    return session.initialized


def _unaskable(call: Call) -> str:
    """Why no question can reach this client."""
    if not call.connection.streams:
        return (
            "The question could not be asked: this server runs under WSGI, where an answer is all it can send; under "
            "ASGI it can ask clients of this revision"
        )
    if call.session is None:
        return (
            "The question could not be asked: this server keeps no sessions (REQUIRE_SESSION), in which a client of "
            "this revision could answer"
        )
    return "The question could not be asked: the client's Accept header does not allow text/event-stream"


class _Record(NamedTuple):
    digest: str
    answer: Any


class Replay:
    """Stateless era: answer from the record, or note the question and end this round.

    Raises InvalidParams for a `requestState` or `inputResponses` that cannot be honoured.
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
        call.fate.conversation = weakref.ref(self)  # no cycle

    @property
    def unfinished(self) -> bool:
        """Does it take another round?"""
        return bool(self.pending) or self._needs_flow

    async def spend(self) -> None:
        """Use the state up that came with this request. Raises InvalidParams when it was used before, anywhere."""
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
            # The client may know the question without having been asked in this flow; the answer is checked like any
            # other.
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
                # A client whose request is lost sends it again as it was. Only when it already holds the name of this
                # conversation is the repetition known for one; so the round ends with a state alone.
                self._needs_flow = True
                raise Suspended
        return results[key]

    def input_required(self) -> InputRequired:
        """The end of a round. Raises Unanswered when the conversation goes nowhere or outgrows its limits."""
        state, limits = self._state, self._limits
        stale = state["stale"] + 1 if self._answered else 0
        if stale > limits.stale_rounds:
            raise Unanswered("The tool asked something else on every round; it cannot be continued")
        if state["round"] >= limits.rounds:
            raise Unanswered(f"The conversation took more than {limits.rounds} rounds")
        if len(self._answers) + len(self.pending) > limits.answers:
            raise Unanswered(f"The tool asked more than {limits.answers} questions")
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
            raise Unanswered("The conversation holds more than a state can carry") from None
        requests = {
            key: {"method": question.method, "params": question.params}
            if question.params is not None
            else {"method": question.method}
            for key, (_, question) in self.pending.items()
        }
        asked = {"inputRequests": requests} if requests else {}
        return InputRequired(**asked, requestState=sealed, resultType=INPUT_REQUIRED)

    def _identify(self, question: Question) -> tuple[str, str]:
        """The question's name in this run, and the digest that says whether it is still the same question."""
        digest = hashlib.sha256(jsonrpc.dumps_sorted(question.known_by)).hexdigest()[:24]
        name = question.key or f"{question.method.partition('/')[0]}-{digest[:10]}"
        self._count[name] += 1
        return (name if self._count[name] == 1 else f"{name}-{self._count[name]}"), digest


def _without_questions(key: str, run: Run) -> Run:
    """A question would run it again in the next round, which must not be."""

    async def steps() -> Any:
        try:
            return await run()
        except BaseException as problem:
            if is_suspension(problem):
                raise RuntimeError(f"once({key!r}, durable=True) may not ask; ask before it") from problem
            raise

    return steps


def is_suspension(problem: BaseException) -> bool:
    """Also when a TaskGroup wrapped it: a group suspends if nothing but suspensions is in it."""
    if isinstance(problem, BaseExceptionGroup):
        return all(is_suspension(inner) for inner in problem.exceptions)
    return isinstance(problem, Suspended)


async def gather(*branches: Awaitable[Any]) -> list[Any]:
    """Run branches side by side, each to its end or its question, so that one round asks them all. A real error comes
    first.
    """
    outcomes = await asyncio.gather(*branches, return_exceptions=True)
    for kinds in (MCPError, Exception, BaseException):
        for outcome in outcomes:
            if isinstance(outcome, kinds):
                raise outcome
    return outcomes
