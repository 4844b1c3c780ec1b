"""The tools `task_status` and `task_cancel`, for clients without tasks."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mcp_django import wiring
from mcp_django.contrib.tasks.models import Task
from mcp_django.protocol.errors import MCPError
from tests.contrib.tasks.clients import TaskClient, make_caller
from tests.contrib.tasks.conftest import ALIAS, Gate
from tests.server.client import HANDSHAKE, STATELESS, accept

pytestmark = pytest.mark.django_db
ELICITATION: dict[str, Any] = {"elicitation": {"form": {}}}


@pytest.fixture(params=[STATELESS, HANDSHAKE])
def plain(gate: Gate, change: Callable[..., None], monkeypatch: pytest.MonkeyPatch, request: Any) -> TaskClient:
    """A client without tasks, of each era, on a server with the tools."""
    monkeypatch.setattr("mcp_django.contrib.tasks.operations.CHECK_SECONDS", (0.0, 0.0))
    change(TOOLS=True, GRACE=0)
    client = TaskClient(wiring.get_server(ALIAS), version=request.param, capabilities=ELICITATION)
    if client.session is not None:
        client.session.pk = 7
    return client


async def start(client: TaskClient, tool: str, **arguments: Any) -> str:
    """Start a call that outlives its grace; return the id of its task."""
    text = (await client.call(tool, **arguments))["content"][0]["text"]
    task = await Task.objects.order_by("-created").afirst()
    assert task is not None
    assert f"Call task_status with task_id={task.pk}" in text
    return task.pk


async def status_until(client: TaskClient, id: str, text: str) -> dict[str, Any]:
    for _ in range(500):
        body = await client.call("task_status", task_id=id)
        if text in body["content"][0]["text"]:
            return body
        await asyncio.sleep(0)
    raise AssertionError(body)


async def test_without_the_setting_there_are_no_tools(gate: Gate, client: TaskClient) -> None:
    assert not {"task_status", "task_cancel"} & set(await client.names())


async def test_a_long_call_returns_the_id_of_a_task(plain: TaskClient, gate: Gate) -> None:
    assert {"task_status", "task_cancel"} <= set(await plain.names())
    id = await start(plain, "wait", label="ready")
    assert "is running" in (await plain.call("task_status", task_id=id))["content"][0]["text"]
    gate.open()
    body = await status_until(plain, id, "ready")
    assert body["isError"] is False
    assert gate.runs == ["ready"]


async def test_a_call_within_the_grace_is_plain(plain: TaskClient, gate: Gate, change: Callable[..., None]) -> None:
    change(TOOLS=True, GRACE=60)
    plain = TaskClient(wiring.get_server(ALIAS), version=plain.version, capabilities=ELICITATION)
    assert await plain.text("quick") == "quick"


async def test_a_tool_with_an_output_schema_is_pending_as_an_error(plain: TaskClient, gate: Gate) -> None:
    """Clients refuse other results without structured content."""
    assert (await plain.call("export"))["isError"] is True
    task = await Task.objects.aget()
    body = await status_until(plain, task.pk, "ok")
    assert body["isError"] is False


async def test_questions_are_asked_by_the_status_tool(plain: TaskClient, gate: Gate) -> None:
    id = await start(plain, "confirm", name="a.txt")
    plain.answer = lambda method, params: accept(value=True)
    await status_until(plain, id, "a.txt: accept True")
    assert gate.steps == ["a.txt"]


async def test_errors_are_errors_of_the_status_tool(plain: TaskClient) -> None:
    for kind, text in (("tool", "No such export"), ("protocol", "Refused")):
        try:
            await plain.call("export", kind=kind)
        except MCPError:
            continue  # it ended at once
        task = await Task.objects.order_by("-created").afirst()
        assert task is not None
        body = await status_until(plain, task.pk, text)
        assert body["isError"] is True


async def test_a_task_is_cancelled_by_its_tool(plain: TaskClient, gate: Gate) -> None:
    id = await start(plain, "wait")
    assert await plain.text("task_cancel", task_id=id) == "The task was cancelled."
    assert await plain.text("task_cancel", task_id=id) == "The task had ended already."
    assert "was cancelled" in await plain.error("task_status", task_id=id)
    gate.open()


async def test_tasks_of_others_are_unknown_to_the_tools(plain: TaskClient, gate: Gate) -> None:
    id = await start(plain, "wait")
    other = TaskClient(plain.server, principal=make_caller("bob"), version=plain.version, capabilities=ELICITATION)
    for tool in ("task_status", "task_cancel"):
        assert await other.error(tool, task_id=id) == "Unknown task"
    await gate.close()


async def test_clients_with_tasks_still_get_tasks(plain: TaskClient, gate: Gate) -> None:
    await TaskClient(plain.server).start("wait")
    await gate.close()
