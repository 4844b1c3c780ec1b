"""Worker processes: which tasks they claim, how they stop, and that they report."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mcp_django import wiring
from mcp_django.contrib.tasks.models import AttemptOutcome, Task, TaskAttempt, TaskStatus, TaskWorker
from mcp_django.contrib.tasks.rows import leases
from mcp_django.contrib.tasks.worker import WorkerOptions, WorkerProcess, parse_queues
from mcp_django.protocol.errors import InvalidParams, MCPError
from mcp_django.types import TaskOptions
from tests.contrib.tasks.clients import TaskClient
from tests.contrib.tasks.conftest import ALIAS, Gate
from tests.contrib.tasks.creation.test_task_rows import SAVEPOINT_STATEMENTS
from tests.server.client import accept
from tests.support.clock import Clock

pytestmark = pytest.mark.django_db
BURST = WorkerOptions(is_burst=True)


@pytest.fixture(autouse=True)
def worker_backend(gate: Gate, change: Callable[..., None]) -> None:
    change(BACKEND="mcp_django.contrib.tasks.worker.WorkerBackend", BACKEND_OPTIONS={})


async def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await Task.objects.aexists()  # lets the threads of the worker's queries run
    raise AssertionError("the condition is still false")


async def wait_for_row(**state: Any) -> None:
    """Wait for a task in some state."""
    for _ in range(500):
        if await Task.objects.filter(**state).aexists():
            return
    raise AssertionError(f"no task is {state}")


async def test_serving_processes_run_nothing(client: TaskClient, gate: Gate) -> None:
    gate.open()
    id = (await client.start("wait"))["taskId"]
    assert (await client.get(id))["status"] == "working"
    assert gate.runs == []


@pytest.fixture
def in_call(clock: Clock) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Run a call whose row the worker finds, and return its answer."""

    async def run(request: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
        calling = asyncio.ensure_future(request)
        await wait_for_row(status="working", worker="")
        await WorkerProcess(BURST).run()
        await clock.advance_until(calling.done, step=0.5)
        return await calling

    return run


async def test_a_call_whose_worker_is_quick_gets_a_plain_result(in_call: Any, client: TaskClient) -> None:
    assert (await in_call(client.call("quick", label="now")))["content"][0]["text"] == "now"


async def test_an_error_within_the_grace_is_that_of_the_call(in_call: Any, client: TaskClient, gate: Gate) -> None:
    client.capabilities = {"extensions": client.capabilities["extensions"]}
    with pytest.raises(MCPError) as refused:
        await in_call(client.call("introduce"))
    assert (refused.value.code, refused.value.http_status) == (-32021, 400)


async def test_a_question_to_a_worker_within_the_grace_is_asked_by_the_call(
    in_call: Any, client: TaskClient, gate: Gate, clock: Clock
) -> None:  # TM-13
    asked = await in_call(client.call("introduce"))
    assert asked.keys() == {"resultType", "inputRequests", "requestState", "_meta"}
    assert asked["inputRequests"]["user_name"]["method"] == "elicitation/create"
    row = await Task.objects.aget()
    assert row.pk not in str(asked)

    def repeat(**responses: Any) -> Coroutine[Any, Any, dict[str, Any]]:
        state = {"inputResponses": responses, "requestState": asked["requestState"]}
        return client.request("tools/call", {"name": "introduce", "arguments": {}, **state})

    again = await repeat()  # without an answer
    assert (again["resultType"], again["inputRequests"]) == ("input_required", asked["inputRequests"])
    clock.move(2000)
    created = await clock.advance_while(repeat(user_name=accept(value="Alice")))
    assert (created["resultType"], created["taskId"]) == ("task", row.pk)
    late = await clock.advance_while(repeat(user_name=accept(value="Bob")))  # the round has ended
    assert late["taskId"] == row.pk

    clock.move(3000)  # the lifetime began with the answer
    gate.open()
    await WorkerProcess(BURST).run()
    done = await client.get(row.pk)
    assert done["result"]["content"][0]["text"] == "Hello Alice"


async def test_a_question_of_the_call_expires_with_its_state(in_call: Any, client: TaskClient, clock: Clock) -> None:
    asked = await in_call(client.call("introduce"))
    await Task.objects.all().aupdate(expires=timezone.now())
    state = {"inputResponses": {"user_name": accept(value="A")}, "requestState": asked["requestState"]}
    with pytest.raises(InvalidParams, match="expired"):
        await client.request("tools/call", {"name": "introduce", "arguments": {}, **state})


async def test_a_call_that_its_client_gives_up_leaves_no_task(client: TaskClient, clock: Clock) -> None:
    calling = asyncio.ensure_future(client.call("quick"))
    await wait_for_row()
    await clock.advance(0.05)
    calling.cancel()
    await wait_for_row(status="cancelled")


def test_a_task_takes_three_statements_and_a_poll_one(client: TaskClient) -> None:
    async_to_sync(client.start)("wait")  # the statements of the first call of a process, and the lock of the owner
    with CaptureQueriesContext(connection) as statements:
        id = async_to_sync(client.start)("wait")["taskId"]
    assert len(statements) <= 3 + SAVEPOINT_STATEMENTS, [each["sql"][:80] for each in statements]
    with CaptureQueriesContext(connection) as statements:
        assert async_to_sync(client.get)(id)["status"] == "working"
    assert len(statements) == 1, [each["sql"][:80] for each in statements]


async def test_a_burst_runs_all_waiting_tasks(client: TaskClient, gate: Gate) -> None:
    gate.open()
    ids = [(await client.start("wait", label=str(number)))["taskId"] for number in range(3)]
    assert await WorkerProcess(BURST).run() == 3
    assert [(await client.get(id))["status"] for id in ids] == ["completed"] * 3
    assert sorted(gate.runs) == ["0", "1", "2"]


async def test_a_question_is_answered_between_two_bursts(client: TaskClient, gate: Gate) -> None:
    id = (await client.start("confirm", name="a"))["taskId"]
    await WorkerProcess(BURST).run()
    asked = await client.get(id)
    assert asked["status"] == "input_required"
    await client.update(id, **{key: {"action": "accept", "content": {"value": True}} for key in asked["inputRequests"]})
    await WorkerProcess(BURST).run()
    assert (await client.get(id))["result"]["content"][0]["text"] == "a: accept True"
    assert gate.steps == ["a"]


async def test_a_worker_runs_the_tasks_of_its_queues_alone(client: TaskClient, gate: Gate) -> None:
    @wiring.get_server(ALIAS).tool(task=TaskOptions(grace=0, queue="reports"))
    async def report_queue() -> str:
        """Run in a queue of its own."""
        return "done"

    gate.open()
    other, own = (await client.start("wait"))["taskId"], (await client.start("report_queue"))["taskId"]
    await WorkerProcess(WorkerOptions(is_burst=True, queues=("reports",))).run()
    assert [(await client.get(id))["status"] for id in (other, own)] == ["working", "completed"]


def test_queues_are_named_by_options() -> None:
    assert parse_queues(None) is None
    assert parse_queues([" ", ","]) is None
    assert parse_queues(["a, b", "a", "c"]) == ("a", "b", "c")


async def test_a_worker_runs_no_more_than_its_concurrency(client: TaskClient, gate: Gate) -> None:
    for number in range(3):
        await client.start("wait", label=str(number))
    worker = WorkerProcess(WorkerOptions(concurrency=2, poll=0.01))
    running = asyncio.ensure_future(worker.run())
    await wait_until(lambda: len(gate.runs) == 2)
    assert await Task.objects.filter(worker="").acount() == 1
    gate.open()
    await wait_until(lambda: len(gate.runs) == 3)
    worker.stop()
    assert await running == 3


async def test_a_stopped_worker_finishes_its_attempts_and_claims_no_more(client: TaskClient, gate: Gate) -> None:
    id = (await client.start("wait"))["taskId"]
    worker = WorkerProcess(WorkerOptions(poll=0.01))
    running = asyncio.ensure_future(worker.run())
    await wait_until(lambda: bool(gate.runs))
    worker.stop()
    later = (await client.start("wait"))["taskId"]
    gate.open()
    await running
    assert [(await client.get(each))["status"] for each in (id, later)] == ["completed", "working"]


async def test_attempts_beyond_the_drain_are_repeated_or_fail(client: TaskClient, gate: Gate, clock: Clock) -> None:
    once, again = (await client.start("wait"))["taskId"], (await client.start("repeatable"))["taskId"]
    worker = WorkerProcess(WorkerOptions(poll=0.01, drain=5))
    running = asyncio.ensure_future(worker.run())
    await wait_until(lambda: len(gate.runs) == 2)
    worker.stop()
    while not running.done():  # a claim may still be on its way
        await clock.advance(1)
        await Task.objects.aexists()

    assert (await client.get(once))["status"] == "failed"
    assert (await client.get(again))["status"] == "working"
    assert await TaskAttempt.objects.filter(outcome=AttemptOutcome.STOPPED).acount() == 2
    gate.open()
    await WorkerProcess(BURST).run()
    assert (await client.get(again))["status"] == "completed"


async def test_a_second_stop_cancels_the_attempts(client: TaskClient, gate: Gate) -> None:
    await client.start("wait")
    worker = WorkerProcess(WorkerOptions(poll=0.01, drain=1000))
    running = asyncio.ensure_future(worker.run())
    await wait_until(lambda: bool(gate.runs))
    worker.stop()
    worker.stop()
    await running
    assert await Task.objects.filter(status=TaskStatus.FAILED).acount() == 1


async def test_a_worker_reports_while_it_lives(gate: Gate) -> None:
    worker = WorkerProcess(WorkerOptions(queues=("a", "b"), concurrency=3, poll=0.01))
    running = asyncio.ensure_future(worker.run())
    rows: list[Any] = []
    while not rows:
        await asyncio.sleep(0)
        rows = [row async for row in TaskWorker.objects.all()]
    assert (rows[0].queues, rows[0].concurrency, rows[0].running) == ("a b", 3, 0)
    worker.stop()
    await running
    assert not await TaskWorker.objects.aexists()


def test_a_silent_worker_is_not_alive() -> None:
    row = TaskWorker(host="host", pid=1, concurrency=1)
    leases.report_worker(row, 0, 0)
    assert leases.is_worker_alive(row)
    row.seen = timezone.now() - timedelta(minutes=1)
    assert not leases.is_worker_alive(row)
    TaskWorker.objects.update(seen=timezone.now() - timedelta(minutes=61))
    leases.report_worker(TaskWorker(host="host", pid=2, concurrency=1), 0, 0)
    assert not TaskWorker.objects.filter(pk=row.pk).exists()


async def test_a_failing_database_is_tried_again(
    client: TaskClient, gate: Gate, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    gate.open()
    id = (await client.start("wait"))["taskId"]
    worker = WorkerProcess(WorkerOptions(is_burst=True))
    claim, failures = worker._claim, [OSError("down")]

    def fail_once(limit: int) -> Any:
        if failures:
            raise failures.pop()
        return claim(limit)

    monkeypatch.setattr(worker, "_claim", fail_once)
    running = asyncio.ensure_future(worker.run())
    for _ in range(20):
        await clock.advance(1)
        await Task.objects.aexists()
    await running
    assert (await client.get(id))["status"] == "completed"
