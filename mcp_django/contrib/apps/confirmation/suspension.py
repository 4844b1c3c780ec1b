"""Calls whose tool may show a form in an app, and their result while the form waits for the user."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.utils.translation import gettext as _

from mcp_django.contrib.apps.confirmation.conversation import FORM_CAPABILITY, AppConversation
from mcp_django.contrib.apps.confirmation.tokens import SuspendedToolCall
from mcp_django.contrib.apps.declaration import expects_question
from mcp_django.extensions import Call
from mcp_django.extensions.calls import Connection, Era, EraStrategy, jsonrpc
from mcp_django.extensions.conversations import (
    INPUT_REQUIRED,
    InputRequest,
    InputUnavailable,
    StoredRounds,
    compute_state_binding,
)
from mcp_django.extensions.errors import MCPError
from mcp_django.extensions.primitives import Tool, build_tool_error
from mcp_django.protocol.meta import QUESTION_KEY

ANSWER_TOOL = "answer_question"
"""Name of the tool that the app calls with the answer."""
WAITING_MEMBER = "waitingForUser"
"""Member of the structured content of a result that waits for the user."""
WAITING_MESSAGE = (
    "The user is asked in the panel that this call opened, and nothing was done yet. The user answers there. Do not "
    "repeat the call, and do not answer in the user's place; continue when the user has answered"
)
_TASKS_CAPABILITY: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


class AppEra:
    """Strategy of an era for calls whose forms are shown by an app. See `calls.call.EraStrategy`."""

    def __init__(self, inner: EraStrategy, declared: Call, stored: StoredRounds | None = None) -> None:
        self.name = inner.name
        self.conversation: AppConversation | None = None
        self._inner = inner
        self._declared = declared
        self._stored = stored

    def extend(self, call: Call) -> Call:
        """Return the call with this strategy, and with the capability for forms."""
        elicitation = call.capabilities.get("elicitation")
        modes = {**(elicitation if isinstance(elicitation, dict) else {}), "form": {}}
        return replace(call, era=self, capabilities={**call.capabilities, "elicitation": modes})

    def parse(self, raw: Any, connection: Connection) -> jsonrpc.Message | list[Any]:
        return self._inner.parse(raw, connection)

    def create_call(self, message: Any, connection: Connection, outbox: Any) -> Call:
        return self.extend(self._inner.create_call(message, connection, outbox))

    def check(self, call: Call) -> None:
        self._inner.check(call)

    def add_result_fields(self, call: Call, body: dict[str, Any], *, private: bool = True) -> dict[str, Any]:
        return self._inner.add_result_fields(call, body, private=private)

    def add_round_fields(self, call: Call, body: dict[str, Any]) -> dict[str, Any]:
        return self._inner.add_round_fields(call, body)

    def get_http_status(self, problem: MCPError) -> int:
        return self._inner.get_http_status(problem)

    def resume_conversation(self, call: Call) -> AppConversation | None:
        if self._stored is None and self._inner.resume_conversation(call) is None:
            return None
        return self.start_conversation(call)

    def start_conversation(self, call: Call) -> AppConversation:
        if self.conversation is None:
            root = call.root
            binding = b"" if self.name is Era.HANDSHAKE else compute_state_binding(root)
            limits = root.server.options.conversation_limits
            self.conversation = AppConversation(root, self._declared, binding, limits, self._stored)
        return self.conversation


def can_ask_in_app(call: Call, tool: Tool) -> bool:
    """Return True if a form of the tool goes to its app.

    A client with elicitation shows it itself. A call that becomes a task has a conversation of its own.
    """
    if "form" not in call.revision.elicitation or call.supports(FORM_CAPABILITY):
        return False
    return tool.task is None or not ("task" in call.params or call.supports(_TASKS_CAPABILITY))


def finish_run(call: Call, era: AppEra, tool: Tool, arguments: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a run: its own, or the result that waits for the user."""
    conversation = era.conversation
    form = None if conversation is None else conversation.form
    if conversation is None or form is None or body.get("resultType") != INPUT_REQUIRED:
        return body
    key, request = form
    try:
        state = conversation.build_next_state()
        token = SuspendedToolCall(tool.name, arguments, key, state).seal(call, conversation)
    except InputUnavailable as problem:
        return build_tool_error(problem)
    return call.revision.shape_call_result(build_waiting_result(tool, describe_question(request, token)))


def describe_question(request: InputRequest, token: str) -> dict[str, Any]:
    """Return the form as the app receives it, with the token."""
    params: Mapping[str, Any] = request.params or {}
    question = {
        "tool": ANSWER_TOOL,
        "token": token,
        "message": params["message"],
        "schema": params["requestedSchema"],
        "labels": {"accept": _("Confirm"), "decline": _("Decline"), "yes": _("Yes"), "no": _("No")},
    }
    if request.problem is not None:
        question["problem"] = str(request.problem)
        question["errors"] = {name: list(texts) for name, texts in request.problem.errors.items()}
    return question


def build_waiting_result(tool: Tool, question: dict[str, Any]) -> dict[str, Any]:
    """Build the result of a call whose form waits for the user.

    The form is in `_meta`, which no model receives. A tool whose output schema has no place for this result ends with
    an error instead: the handler has not finished.
    """
    body: dict[str, Any] = {
        "content": [{"type": "text", "text": WAITING_MESSAGE}],
        "isError": False,
        "_meta": {QUESTION_KEY: question},
    }
    if tool.output is None:
        return body
    if expects_question(tool):
        return {**body, "structuredContent": {WAITING_MEMBER: True}}
    return {**body, "isError": True}


def build_output_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the output schema of a tool whose result may wait for the user."""
    own = {name: value for name, value in schema.items() if name not in ("$defs", "$schema")}
    waiting = {
        "type": "object",
        "properties": {
            WAITING_MEMBER: {"const": True, "description": "The user is asked first; nothing was done yet."}
        },
        "required": [WAITING_MEMBER],
        "additionalProperties": False,
    }
    shared = {name: schema[name] for name in ("$schema", "$defs") if name in schema}
    return {"type": "object", "anyOf": [own, waiting], **shared}
