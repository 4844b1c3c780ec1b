"""The tool that apps call with the answer of their user, and the continued call.

The tool is listed to clients with apps, for apps only. Its list entry is equal for all callers. Clients hide it
from their model, but the server cannot distinguish the two: the token is the proof, which only the app receives.
"""

from collections.abc import Iterable
from dataclasses import replace
from time import perf_counter
from typing import Any, Literal

from mcp_django.contrib.apps.confirmation.suspension import ANSWER_TOOL, AppEra, finish_run
from mcp_django.contrib.apps.confirmation.tokens import SuspendedToolCall, consume_token, unseal_token
from mcp_django.contrib.apps.pages import accepts_html
from mcp_django.extensions import Call
from mcp_django.extensions.calls import CallRecord, Connection, Context, Pipeline, Server, jsonrpc, run_request
from mcp_django.extensions.conversations import StoredRounds
from mcp_django.extensions.errors import InvalidParams
from mcp_django.extensions.primitives import (
    Provider,
    RelayedResult,
    Tool,
    ToolResult,
    build_tool,
    check_permission,
    find_provided_tool,
)

TOOLS_CALL = "tools/call"
ANSWER_TIMEOUT_SECONDS = 86_400.0
"""Time limit of the tool; the continued call has the limit of its own tool."""

Action = Literal["accept", "decline", "cancel"]


class ContinuedCallEra(AppEra):
    """Strategy of an era for the call that an answer continues."""

    def __init__(self, answer: Call, stored: StoredRounds, record: CallRecord) -> None:
        super().__init__(answer.era, answer, stored)
        self._answer = answer
        self._record = record

    def parse(self, raw: Any, connection: Connection) -> jsonrpc.Message | list[Any]:
        return jsonrpc.read(raw)

    def create_call(self, message: Any, connection: Connection, outbox: Any) -> Call:
        call = replace(
            self._answer,
            message=message,
            connection=connection,
            record=self._record,
            started_at=perf_counter(),
        )
        return self.extend(call)

    def check(self, call: Call) -> None:
        """The answer's own message has been checked."""


async def answer_question(
    ctx: Context, token: str, values: dict[str, Any] | None = None, action: Action = "accept"
) -> ToolResult:
    """Pass on the answer of the user to a question that this app shows.

    Args:
        token: The token of the question.
        values: The values of the form.
        action: The decision of the user.
    """
    call = ctx.call.root
    suspended = unseal_token(call, token)
    tool = await _find_tool(call, suspended.tool)
    await check_permission(call, tool, _build_unknown_error(suspended.tool), suspended.arguments)
    await consume_token(call, token)
    body = await _continue_call(call, tool, suspended, {"action": action, "content": values or {}})
    return RelayedResult(body)  # type: ignore[return-value]  # the result of the other tool, complete


async def _continue_call(call: Call, tool: Tool, suspended: SuspendedToolCall, answer: dict[str, Any]) -> Any:
    """Run the tool again from its first line, as a message of its own. Raises MCPError and Overloaded."""
    server, record = call.server, CallRecord()
    assert isinstance(server, Server)
    record.is_continued = True
    record.outer_record = call.record
    connection = replace(call.connection)
    # The headers are those of the answer. The continued call mirrors none of its own.
    connection.message_headers = None
    era = ContinuedCallEra(call, StoredRounds(suspended.state, {suspended.key: answer}), record)
    params = {"name": suspended.tool, "arguments": suspended.arguments}
    raw = {"jsonrpc": "2.0", "id": call.id, "method": TOOLS_CALL, "params": params}

    body = await run_request(Pipeline(server), era, raw, connection, call.outbox)
    call.record.max_result_bytes = record.max_result_bytes
    return finish_run(call, era, tool, suspended.arguments, body)


async def _find_tool(call: Call, name: str) -> Tool:
    """Return a tool of the server. Raises InvalidParams."""
    tool = call.server.registry.tools.get(name) or await find_provided_tool(call, name)
    if tool is None:
        raise _build_unknown_error(name)
    return tool


def _build_unknown_error(name: str) -> InvalidParams:
    return InvalidParams(f"Unknown tool: {name[:128]}")


class AnswerProvider(Provider):
    """Provider of the tool for clients with apps."""

    offers = frozenset({"tools"})

    def __init__(self) -> None:
        tool = build_tool(
            answer_question,
            ANSWER_TOOL,
            title="Answer a question",
            visibility=["app"],
            timeout=ANSWER_TIMEOUT_SECONDS,
            atomic=False,
        )
        self._tools = (tool,)

    def get_permission_dependent(self) -> frozenset[str]:
        return frozenset()

    def for_mounting(self) -> None:
        """Return None: a server that mounts this one has the tool itself, or no apps."""

    async def tools(self, ctx: Context) -> Iterable[Tool]:
        return self._tools if accepts_html(ctx.call) else ()
