"""Deploys: a process that does not know the tool of a task returns it, and another process runs it."""

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from mcp_django.contrib.tasks.attempts.unknown_tools import RETURN_SECONDS
from mcp_django.contrib.tasks.models import Task, TaskAttempt
from mcp_django.contrib.tasks.worker import WorkerOptions, WorkerProcess
from mcp_django.server.primitives.base import Tool
from mcp_django.server.primitives.registry import get_registry
from tests.contrib.tasks.clients import TaskClient
from tests.contrib.tasks.conftest import ALIAS, Gate
from tests.support.clock import Clock

pytestmark = pytest.mark.django_db
WAIT_SECONDS = 600.0
"""UNKNOWN_TOOL_WAIT of these tests."""


@pytest.fixture(autouse=True)
def _worker_backend(gate: Gate, change: Callable[..., None]) -> None:
    change(BACKEND="mcp_django.contrib.tasks.worker.WorkerBackend", BACKEND_OPTIONS={}, UNKNOWN_TOOL_WAIT=WAIT_SECONDS)
    gate.open()


@pytest.fixture
def release(gate: Gate) -> "Release":
    return Release()


class Release:
    """The code of this process, before and after a deploy."""

    def __init__(self) -> None:
        self._registry = get_registry(ALIAS)
        self._tools: dict[str, Tool] = {}

    def remove(self, name: str) -> None:
        tool = self._registry.tools.get(name)
        assert tool is not None
        self._tools[name] = tool
        self._registry.remove("tool", name)

    def add(self, name: str) -> None:
        tool = self._tools.pop(name)
        self._registry.add(lambda: tool, "the new release")


async def run_worker() -> None:
    """Run all tasks that wait now."""
    await WorkerProcess(WorkerOptions(is_burst=True)).run()


async def test_a_tool_that_one_process_does_not_know_runs_in_another(
    client: TaskClient, gate: Gate, clock: Clock, release: Release
) -> None:
    id = (await client.start("wait"))["taskId"]
    release.remove("wait")
    await run_worker()
    assert (await client.get(id))["status"] == "working"
    assert not await TaskAttempt.objects.filter(task=id).aexists()

    release.add("wait")
    await run_worker()
    assert gate.runs == []  # not before some seconds
    await clock.advance(RETURN_SECONDS)
    await run_worker()
    assert (await client.get(id))["result"]["content"][0]["text"] == "done"
    task = await Task.objects.aget(pk=id)
    assert (gate.runs, task.attempts, task.losses) == (["done"], 1, 0)


async def test_a_tool_that_no_process_knows_fails_after_a_time(
    client: TaskClient, clock: Clock, release: Release
) -> None:
    id = (await client.start("wait"))["taskId"]
    await clock.advance(2 * WAIT_SECONDS)  # the time begins when a worker has found the task
    release.remove("wait")
    await run_worker()
    for _ in range(2):
        await clock.advance(WAIT_SECONDS / 4)
        await run_worker()
        assert (await client.get(id))["status"] == "working"
    await clock.advance(WAIT_SECONDS / 2)
    await run_worker()
    task = await client.get(id)
    assert (task["status"], task["error"]) == ("failed", {"code": -32602, "message": "Unknown tool: wait"})


async def test_the_time_begins_again_after_an_attempt_that_knew_the_tool(
    client: TaskClient, clock: Clock, release: Release
) -> None:
    """A client may answer a question long after the deploy, and another deploy may be under way then."""
    id = (await client.start("confirm", name="x"))["taskId"]
    release.remove("confirm")
    await run_worker()
    release.add("confirm")
    await clock.advance(RETURN_SECONDS)
    await run_worker()
    assert (await client.get(id))["status"] == "input_required"

    await clock.advance(2 * WAIT_SECONDS)
    await client.update(id, confirm={"action": "accept", "content": {"value": True}})
    release.remove("confirm")
    await run_worker()
    assert (await client.get(id))["status"] == "working"


@pytest.mark.parametrize("change_row", [{"server": "of_the_new_release"}, {"revision": "2199-01-01"}], ids=str)
async def test_a_server_or_revision_that_one_process_does_not_know_is_no_error_yet(
    client: TaskClient, gate: Gate, clock: Clock, change_row: dict[str, Any]
) -> None:
    id = (await client.start("wait"))["taskId"]
    known = await Task.objects.filter(pk=id).values(*change_row).aget()
    await Task.objects.filter(pk=id).aupdate(**change_row)
    await run_worker()
    await Task.objects.filter(pk=id).aupdate(**known)
    await clock.advance(RETURN_SECONDS)
    await run_worker()
    assert (await client.get(id))["status"] == "completed"


async def test_a_tool_that_is_hidden_from_the_caller_fails_at_once(client: TaskClient) -> None:
    id = (await client.start("wait"))["taskId"]
    await sync_to_async(Task.objects.filter(pk=id).update)(tool="orders")
    await run_worker()
    assert (await client.get(id))["error"]["message"] == "Unknown tool: orders"
