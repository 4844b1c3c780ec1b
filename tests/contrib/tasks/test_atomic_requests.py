"""Tasks under ATOMIC_REQUESTS: no request about a task holds a transaction of its own."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from mcp_django import Context, wiring
from mcp_django.contrib.tasks.models import Task
from mcp_django.runtime.threads.executor import LeasingExecutor
from tests.contrib.tasks.clients import TaskClient
from tests.contrib.tasks.conftest import ALIAS, AT_ONCE, Gate
from tests.contrib.tasks.test_core_tasks import CoreClient
from tests.server.client import HANDSHAKE, STATELESS, accept

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:Overriding setting DATABASES")]


@pytest.fixture
def transactions(
    settings: Any, change: Callable[..., None], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> list[Sequence[str]]:
    """Databases of each transaction of a call. The server has tools for clients without tasks."""
    settings.DATABASES = {**settings.DATABASES, "default": {**settings.DATABASES["default"], "ATOMIC_REQUESTS": True}}
    change(TOOLS=True, GRACE=0)
    monkeypatch.setattr("mcp_django.contrib.tasks.operations.CHECK_SECONDS", (0.0, 0.0))
    monkeypatch.setattr("mcp_django.contrib.tasks.core_results.CHECK_SECONDS", (0.0, 0.0))
    transactions: list[Sequence[str]] = []
    atomic = LeasingExecutor.atomic

    def open_transaction(self: LeasingExecutor, databases: Sequence[str]) -> Any:
        transactions.append(databases)
        return atomic(self, databases)

    monkeypatch.setattr(LeasingExecutor, "atomic", open_transaction)

    @wiring.get_server(ALIAS).tool(task=AT_ONCE, atomic=False)
    async def paint(ctx: Context) -> str:
        """Ask for a color."""
        return (await ctx.elicit("Which color?", str, key="color")).data

    @wiring.get_server(ALIAS).tool
    async def rename() -> str:
        """Inherit the transaction."""
        return "renamed"

    return transactions


async def test_methods_wait_and_write_outside_of_a_transaction(transactions: list[Sequence[str]]) -> None:
    core, client = CoreClient(), TaskClient(wiring.get_server(ALIAS))
    core.answer = lambda method, params: accept(value="red")
    id = (await core.start("paint"))["taskId"]
    assert (await core.result(id))["content"][0]["text"] == "red"
    await core.request("tasks/list")
    id = (await client.start("paint"))["taskId"]
    await client.until(id, "input_required")
    await client.update(id)
    await client.cancel(id)
    assert transactions == []
    await client.call("rename")
    assert transactions == [("default",)]


@pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])
async def test_tools_for_clients_without_tasks_ask_and_wait_outside_of_a_transaction(
    version: str, transactions: list[Sequence[str]]
) -> None:
    client = TaskClient(wiring.get_server(ALIAS), version=version, capabilities={"elicitation": {"form": {}}})
    if client.session is not None:
        client.session.pk = 7
    client.answer = lambda method, params: accept(value="red")
    await client.call("paint")
    task = await Task.objects.aget()
    for _ in range(500):
        text = (await client.call("task_status", task_id=task.pk))["content"][0]["text"]
        if text == "red":
            break
    assert text == "red"
    await client.call("task_cancel", task_id=task.pk)
    assert transactions == []
