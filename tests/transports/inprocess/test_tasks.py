"""Calls in the same process of tools that run as tasks only."""

import asyncio
from typing import Any

import pytest

from mcp_django import Server
from mcp_django.auth.principal import local_principal
from mcp_django.extensions import Call, Extension, ExtensionResult, Tool, method
from mcp_django.protocol.errors import MCPError, MissingClientCapability
from mcp_django.server.context.context import Context
from mcp_django.transports.inprocess.client import InProcessClient
from mcp_django.transports.inprocess.profile import ELICITATION, InProcessProfile
from mcp_django.transports.inprocess.tasks import TASKS_EXTENSION
from tests.server.client import accept, make_server
from tests.support.clock import Clock

DONE = {"content": [{"type": "text", "text": "done"}], "isError": False}
COMPLETED = {"status": "completed", "result": DONE}
FORM = {
    "method": "elicitation/create",
    "params": {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {"value": {"type": "boolean"}}}},
}


class ScriptedTasks(Extension):
    """An extension whose tasks go through these states, one for each poll."""

    identifier = TASKS_EXTENSION
    result_types = frozenset({"task"})

    def __init__(self, *states: dict[str, Any]) -> None:
        self.states = list(states)
        self.updates: list[Any] = []
        self.cancelled: list[str] = []

    async def call_tool(self, call: Call, tool: Tool, arguments: Any, proceed: Any) -> Any:
        self.require_declaration(call)
        return ExtensionResult("task", taskId="t1", status="working")

    @method("tasks/get")
    async def get_task(self, ctx: Context, task_id: str) -> dict[str, Any]:
        return {"taskId": task_id, **(self.states.pop(0) if len(self.states) > 1 else self.states[0])}

    @method("tasks/update")
    async def update_task(self, ctx: Context, task_id: str, input_responses: dict[str, Any]) -> dict[str, Any]:
        self.updates.append(input_responses)
        return {}

    @method("tasks/cancel")
    async def cancel_task(self, ctx: Context, task_id: str) -> dict[str, Any]:
        self.cancelled.append(task_id)
        return {}


def make_client(extension: Extension, **options: Any) -> InProcessClient:
    server: Server = make_server(extensions=[extension])

    @server.tool
    def survey() -> str:
        return "never run"

    return InProcessClient(server, local_principal(), **options)


async def test_a_task_is_polled_to_its_result(clock: Clock) -> None:
    tasks = ScriptedTasks(
        {"status": "working", "statusMessage": "half", "pollIntervalMs": 10},
        {"status": "working", "statusMessage": "half"},
        COMPLETED,
    )
    notifications: list[Any] = []
    calling = make_client(tasks, on_notification=lambda method, params: notifications.append(params)).call_tool(
        "survey", {}
    )
    assert await clock.advance_while(calling) == DONE
    assert notifications == [{"level": "info", "data": "half"}]


async def test_questions_of_a_task_are_answered_once(clock: Clock) -> None:
    asking = {"status": "input_required", "inputRequests": {"a": FORM}}
    tasks, asked = ScriptedTasks(asking, asking, COMPLETED), list[str]()

    async def respond(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["params"]["message"])
        return accept(value=True)

    client = make_client(tasks, profile=InProcessProfile(capabilities=ELICITATION), respond=respond)
    assert await clock.advance_while(client.call_tool("survey", {})) == DONE
    assert (asked, tasks.updates) == (["Sure?"], [{"a": accept(value=True)}])


@pytest.mark.parametrize(
    ("state", "code", "message"),
    [
        ({"status": "failed", "error": {"code": -32000, "message": "broken"}}, -32000, "broken"),
        ({"status": "cancelled"}, -32603, "was cancelled"),
    ],
)
async def test_a_task_without_a_result_is_an_error(state: dict[str, Any], code: int, message: str) -> None:
    with pytest.raises(MCPError, match=message) as caught:
        await make_client(ScriptedTasks(state)).call_tool("survey", {})
    assert caught.value.code == code


async def test_a_cancelled_caller_cancels_its_task(clock: Clock) -> None:
    tasks = ScriptedTasks({"status": "working"})
    calling = asyncio.ensure_future(make_client(tasks).call_tool("survey", {}))
    await clock.advance(3)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert tasks.cancelled == ["t1"]


async def test_other_missing_capabilities_are_errors() -> None:
    class Other(ScriptedTasks):
        identifier = "com.example/other"

    with pytest.raises(MissingClientCapability):
        await make_client(Other(COMPLETED)).call_tool("survey", {})
