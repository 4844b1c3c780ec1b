"""Conversation of an attempt with the client of its task, by replay from rows.

A question without an answer ends the attempt. The task then waits for input, and no worker is busy with it. The answers
start another attempt, which runs the tool from its first line, reads the answers from the rows, and skips the steps of
`ctx.run_once`. It is therefore the same whether the process has been restarted in between.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp_django.contrib.tasks.rows.store import Question, StoredConversation
from mcp_django.extensions import Call
from mcp_django.extensions.calls import jsonrpc
from mcp_django.extensions.conversations import (
    INPUT_REQUIRED,
    MAX_ATTEMPTS,
    InputRefused,
    InputRequest,
    InputRequired,
    InputUnavailable,
    InvalidInputResponse,
    ReplayConversation,
    RunStep,
    StoredRounds,
)

RecordStep = Callable[[str, Any], Awaitable[None]]


class TaskConversation(ReplayConversation):
    """Conversation of one attempt, which replays the stored answers of earlier attempts."""

    def __init__(
        self,
        call: Call,
        binding: bytes,
        base: Mapping[str, Any],
        stored: StoredConversation,
        record_step: RecordStep,
    ) -> None:
        """Read the earlier attempts from `stored`.

        `base` is the state of the rounds before the task existed, or empty.
        """
        rounds = _build_rounds(call.id, base, stored)
        super().__init__(call, binding, call.server.options.conversation_limits, rounds)
        self._record_step = record_step
        self.missing_stream: str | None = None
        """Reason for which no question can reach the client, whose transport carries only responses."""
        self._known_steps = set(rounds.state["once"])
        self._question_count = len(stored.inputs)
        self._answer_counts = Counter(row.name for row in stored.inputs if row.answer and not row.is_accepted)
        """Number of answers that the tool has not accepted, by the name of the question."""
        if stored.inputs:
            self._record_round(rounds.state["flow"])

    async def request_input(self, request: InputRequest) -> Any:
        if self.missing_stream is not None:
            # As in a plain call: the task must not wait for an answer that cannot come.
            self._call.require_capability(request.required_capability)
            raise InputUnavailable(self.missing_stream)
        return await super().request_input(request)

    async def _parse_response(self, key: str, request: InputRequest, response: Any) -> Any:
        """Return the value of an answer.

        Raises InvalidInputResponse, InputRefused for an error of the client, and InputUnavailable after some invalid
        answers.
        """
        if isinstance(response, str):  # the text of a refusal: see store.answer
            raise InputRefused(response)
        try:
            return await super()._parse_response(key, request, response)
        except InvalidInputResponse as problem:
            if self._answer_counts[key] < MAX_ATTEMPTS:
                raise
            text = f"The client gave no valid answer in {MAX_ATTEMPTS} attempts; the last one: {problem}"
            raise InputUnavailable(text) from None

    async def run_once(self, key: str, run: RunStep, *, durable: bool = False) -> Any:
        """Run a step once in the life of the task, and store its value at once."""
        value = await super().run_once(key, run, durable=durable)
        if key not in self._known_steps:
            self._known_steps.add(key)
            await self._record_step(key, value)
        return value

    def build_input_required(self) -> InputRequired:
        """Return the mark of a suspended attempt. Raises InputUnavailable above the limit of answers."""
        if self._question_count + len(self.pending_requests) > self._limits.answers:
            raise InputUnavailable(f"The tool sent more than {self._limits.answers} requests to the client")
        self._record_round(self._state["flow"])
        self._record_questions()
        return InputRequired(resultType=INPUT_REQUIRED)

    def build_round(self) -> InputRequired:
        """Build the result of a call that asks before it becomes a task.

        Raises InputUnavailable.
        """
        return super().build_input_required()

    def get_questions(self) -> list[Question]:
        """Return the questions that this attempt could not answer."""
        return [Question(name, digest, request.to_wire()) for name, (digest, request) in self.pending_requests.items()]

    @property
    def accepted(self) -> frozenset[str]:
        """Names of the questions whose answers the tool has accepted."""
        return frozenset(self._accepted)


def _build_rounds(id: Any, base: Mapping[str, Any], stored: StoredConversation) -> StoredRounds:
    """Build the earlier rounds of a task."""
    answers: dict[str, Any] = dict(base.get("answers", {}))
    taken: set[str] = set(base.get("taken", ()))
    for row in stored.inputs:  # in the order of creation: a later question replaces an earlier one of the same name
        if row.answer:
            answers[row.name] = [row.digest, jsonrpc.loads(row.answer)]
            taken = taken | {row.name} if row.is_accepted else taken - {row.name}
    once = {**base.get("once", {}), **{key: jsonrpc.loads(value) for key, value in stored.steps.items()}}
    state = {
        **base,
        "flow": base.get("flow") or id,
        "asked": {},
        "answers": answers,
        "taken": sorted(taken),
        "once": once,
    }
    return StoredRounds(state, {})
