"""Tools for clients without tasks: `task_status` and `task_cancel`, by `MCP["TASKS"]["TOOLS"]`.

A call of such a client that is not finished within the grace returns a text with the id of its task. The tools belong
to the caller as the methods do. `task_status` asks the open questions of a task in its own call.
"""

from collections.abc import Iterable
from typing import Any

from mcp_django.contrib.tasks.backend import get_backend
from mcp_django.contrib.tasks.creation.task_rows import build_task_row, get_grace, get_ttl, start_task_of_call
from mcp_django.contrib.tasks.models import Task, TaskOrigin, TaskStatus
from mcp_django.contrib.tasks.operations import (
    cancel_task,
    find_task,
    read_result,
    record_answers,
    wait_while_working,
)
from mcp_django.contrib.tasks.options import get_settings
from mcp_django.extensions import Call, InvalidParams, Tool, get_call
from mcp_django.extensions.calls import Context, jsonrpc
from mcp_django.extensions.conversations import InputRequest
from mcp_django.extensions.errors import MCPError, ToolError
from mcp_django.extensions.primitives import Provider, RelayedResult, build_tool
from mcp_django.types import ToolAnnotations

RESULT_MEMBERS = ("content", "structuredContent", "isError")
STATUS_TOOL = "task_status"
CANCEL_TOOL = "task_cancel"
CAPABILITIES: dict[str, dict[str, Any]] = {
    "elicitation/create": {"elicitation": {}},
    "sampling/createMessage": {"sampling": {}},
    "roots/list": {"roots": {}},
}
"""Capabilities of the client that its answers need."""


class TaskTools(Provider):
    """Provider of the tools. Servers that mount this one do not offer them."""

    offers = frozenset({"tools"})

    def __init__(self) -> None:
        self._tools = (
            build_tool(get_task_status, STATUS_TOOL, annotations=ToolAnnotations(read_only=True), atomic=False),
            build_tool(
                cancel_running_task,
                CANCEL_TOOL,
                annotations=ToolAnnotations(destructive=True, idempotent=True),
                atomic=False,
            ),
        )

    def for_mounting(self) -> None:
        return None

    async def tools(self, ctx: Context) -> Iterable[Tool]:
        return self._tools


async def get_task_status(ctx: Context, task_id: str) -> Any:
    """Return the result of a long call, or its status if it still runs. Waits a few seconds for its end."""
    task = await _find(ctx, task_id)
    if task.status == TaskStatus.INPUT_REQUIRED:
        await record_answers(task_id, await _ask_questions(ctx, task))
    try:
        task = await wait_while_working(get_call(ctx), task_id, get_settings().grace)
    except InvalidParams as problem:
        raise ToolError(str(problem)) from None
    if not task.is_terminal:
        return describe_status(task)
    try:
        return RelayedResult(_select_members(read_result(task)))
    except MCPError as problem:
        raise ToolError(str(problem)) from None


async def cancel_running_task(ctx: Context, task_id: str) -> str:
    """Cancel a long call that still runs."""
    await _find(ctx, task_id)
    cancelled = await cancel_task(task_id)
    return "The task had ended already." if cancelled is None else "The task was cancelled."


async def _find(ctx: Context, id: str) -> Task:
    try:
        return await find_task(get_call(ctx), id)
    except InvalidParams as problem:
        raise ToolError(str(problem)) from None


async def _ask_questions(ctx: Context, task: Task) -> dict[str, Any]:
    """Ask the open questions of a task in this call, and return the answers by their keys."""
    requests: dict[str, Any] = jsonrpc.loads(task.input_requests or "{}")
    return {
        key: await ctx.request_input(
            InputRequest(
                request["method"],
                request.get("params"),
                CAPABILITIES[request["method"]],
                lambda answer: answer,
                key=f"{task.pk}.{key}",
            )
        )
        for key, request in requests.items()
    }


async def call_tool_for_text(call: Call, tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """Run a call as a task; return its result if it ends within the grace, else a text with the id.

    Raises the errors of the tool, and Overloaded.
    """
    task = build_task_row(call, tool, arguments, origin=TaskOrigin.EXTENSION, rounds={}, ttl=get_ttl(tool))
    await start_task_of_call(get_backend(), task)
    task = await wait_while_working(call, task.pk, get_grace(tool))
    if task.is_terminal:
        return _select_members(read_result(task))
    # A client refuses a result without structured content if the tool has an output schema, unless it is an error.
    return {"content": [{"type": "text", "text": describe_status(task)}], "isError": tool.output is not None}


def describe_status(task: Task) -> str:
    """Return a text for the model: the status of a task, its progress, and the next call."""
    if task.status == TaskStatus.INPUT_REQUIRED:
        state = "has questions to the user"
    elif task.progress is not None:
        state = f"is running, {task.progress:g}" + ("" if task.total is None else f" of {task.total:g}")
    else:
        state = "is running"
    message = f" Last message: {task.status_message}." if task.status_message else ""
    return (
        f"The task {task.pk} {state}.{message} It has no result yet. Call {STATUS_TOOL} with task_id={task.pk} to "
        f"get its result, or {CANCEL_TOOL} to stop it."
    )


def _select_members(result: dict[str, Any]) -> dict[str, Any]:
    return {name: result[name] for name in RESULT_MEMBERS if name in result}
