"""Leases: attempts that stop in time, commits of their own rows only, and leases after an outage."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connection
from django.utils import timezone

from mcp_django import ToolError, wiring
from mcp_django.aio.tasks import wait_for_event
from mcp_django.contrib.tasks.attempts import runner
from mcp_django.contrib.tasks.attempts.attempt import Attempt
from mcp_django.contrib.tasks.attempts.claims import ClaimedTask
from mcp_django.contrib.tasks.attempts.heartbeats import TaskLease, get_usable_seconds, store_results
from mcp_django.contrib.tasks.backend import get_backend
from mcp_django.contrib.tasks.models import AttemptOutcome, Task, TaskAttempt, TaskStatus, TaskStep
from mcp_django.contrib.tasks.rows import leases, store
from mcp_django.contrib.tasks.rows.database import Availability
from mcp_django.contrib.tasks.upkeep import get_interval, maintain_tasks
from mcp_django.server.execution import invoke
from mcp_django.server.ports import Overloaded
from mcp_django.types import TaskOptions, ToolAnnotations
from tests.contrib.tasks.clients import TaskClient
from tests.contrib.tasks.conftest import ALIAS, AT_ONCE, Gate
from tests.contrib.tasks.creation.test_task_rows import save_task
from tests.support.clock import Clock

pytestmark = pytest.mark.django_db
LEASE = 30.0


def fail(*args: Any, **options: Any) -> Any:
    raise OperationalError("down")


class FailingOnce:
    """A function that fails as a database does at its first call."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn
        self.calls = 0

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.calls += 1
        return fail() if self.calls == 1 else self._fn(*args, **options)


async def claim(client: TaskClient, monkeypatch: pytest.MonkeyPatch, tool: str, **arguments: Any) -> Task:
    """Create a task that no backend runs, and claim it."""

    async def enqueue(task: Task) -> None:
        return None

    with monkeypatch.context() as patched:
        patched.setattr(get_backend(), "enqueue", enqueue)
        id = (await client.start(tool, **arguments))["taskId"]
    task = await store.run_on_rows(leases.claim_task, id, worker=f"worker of {id}", lease=LEASE)
    assert task is not None
    return task


def run_task(task: Task) -> Awaitable[None]:
    """Run the attempt of a claimed task on this loop."""
    return runner.run_claimed_task(ClaimedTask(task, TaskLease(task, asyncio.get_running_loop())))


@pytest.fixture
def effects(gate: Gate, clock: Clock) -> list[float]:
    """Times at which the tool `tick` had an effect. It may run again."""
    effects: list[float] = []

    @wiring.get_server(ALIAS).tool(task=AT_ONCE, annotations=ToolAnnotations(idempotent=True))
    async def tick() -> str:
        """Have an effect each second."""
        for _ in range(1000):
            await wait_for_event(asyncio.Event(), 1.0)
            effects.append(clock.monotonic())
        return "done"

    return effects


async def test_an_attempt_whose_lease_cannot_be_extended_stops_before_the_lease_ends(
    client: TaskClient, effects: list[float], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "extend_leases", fail)
    begun = clock.monotonic()
    task = await claim(client, monkeypatch, "tick")
    running = asyncio.ensure_future(run_task(task))
    await clock.advance_until(running.done)
    await running
    assert begun + LEASE / 2 < effects[-1] < begun + get_usable_seconds(LEASE) < begun + LEASE
    row = await Task.objects.aget(pk=task.pk)
    assert (row.status, row.worker, row.losses) == ("working", "", 1), "it runs again as soon as the database answers"
    assert (await TaskAttempt.objects.aget()).outcome == AttemptOutcome.LOST


async def test_an_attempt_has_no_effect_after_a_pause_of_its_process(
    client: TaskClient, effects: list[float], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await claim(client, monkeypatch, "tick")
    running = asyncio.ensure_future(run_task(task))
    await clock.advance_until(lambda: len(effects) == 3)
    before = list(effects)
    monkeypatch.setattr(store, "extend_leases", fail)
    clock.move(LEASE * 2)
    await clock.advance_until(running.done)
    await running
    assert effects == before


async def test_a_lease_that_is_extended_lasts(
    client: TaskClient, effects: list[float], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await claim(client, monkeypatch, "tick")
    running = asyncio.ensure_future(run_task(task))
    await clock.advance_until(lambda: len(effects) > 3 * LEASE)
    await client.cancel(task.pk)
    await clock.advance_until(running.done)
    assert (await TaskAttempt.objects.aget()).outcome == AttemptOutcome.CANCELLED


async def test_an_attempt_whose_lease_is_over_before_it_begins_does_not_run(
    client: TaskClient, effects: list[float], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await claim(client, monkeypatch, "tick")
    lease = TaskLease(task, asyncio.get_running_loop())
    clock.move(LEASE)
    await runner.run_claimed_task(ClaimedTask(task, lease))
    row = await Task.objects.aget(pk=task.pk)
    assert (row.status, row.worker, row.attempts, row.losses) == ("working", "", 0, 0)
    assert effects == []


async def test_a_running_call_whose_row_is_uncertain_leaves_no_task(
    client: TaskClient, gate: Gate, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call gets an error, so no client knows its task."""
    create = store.create

    def lose_answer(*args: Any) -> None:
        create(*args)
        fail()

    monkeypatch.setattr(store, "create", lose_answer)
    call = asyncio.ensure_future(client.call("slow"))
    await clock.advance_until(call.done)
    assert isinstance(call.exception(), Overloaded | OperationalError)
    row = await Task.objects.aget()
    assert (await client.until(row.pk))["status"] == "cancelled"


@pytest.fixture
def book(gate: Gate) -> Callable[[], Any]:
    """Declare an atomic tool that calls a function within its transaction."""

    def declare(within: Callable[[], None] = lambda: None) -> None:
        @wiring.get_server(ALIAS).tool(task=AT_ONCE, atomic=True)
        def book() -> str:
            """Write a row."""
            Group.objects.create(name="booked")
            within()
            return "booked"

    return declare


async def test_a_transaction_is_committed_only_by_the_holder_of_the_lease(
    client: TaskClient, book: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    book(lambda: Task.objects.update(worker="another") and None)
    await run_task(await claim(client, monkeypatch, "book"))
    assert not await Group.objects.aexists()


async def test_a_transaction_is_not_committed_after_the_deadline(
    client: TaskClient, book: Callable[..., None], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row may still belong to the attempt: no other process has looked at it yet."""
    book(lambda: clock.move(get_usable_seconds(LEASE)))
    await run_task(await claim(client, monkeypatch, "book"))
    assert not await Group.objects.aexists()


async def test_a_transaction_whose_last_statement_was_in_time_is_committed_after_the_deadline(
    client: TaskClient, book: Callable[..., None], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another tool may block the loop between the two. The row is locked, so no other attempt has begun."""
    commit = store.commit_result

    def commit_late(*args: Any) -> bool:
        is_held = commit(*args)
        clock.move(2 * LEASE)
        return is_held

    monkeypatch.setattr(store, "commit_result", commit_late)
    book()
    task = await claim(client, monkeypatch, "book")
    await run_task(task)
    assert await Group.objects.acount() == 1
    assert (await client.get(task.pk))["status"] == "completed"


async def test_a_commit_without_a_result_keeps_the_deadline(
    client: TaskClient, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An atomic tool that another tool calls commits in the middle of the attempt."""
    task = await claim(client, monkeypatch, "wait")
    attempt, call = Attempt(task, wiring.get_server(ALIAS), client.principal), Mock()
    attempt.lease = TaskLease(task, asyncio.get_running_loop())
    await attempt.confirm([store.get_alias()], call, None)
    assert (attempt.has_confirmed, attempt.is_over()) == (True, False)
    clock.move(LEASE)
    assert attempt.is_over()


async def test_a_committed_result_outlives_its_process(
    client: TaskClient, book: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    book()
    expected = (await client.until((await client.start("book"))["taskId"]))["result"]
    await Group.objects.all().adelete()

    async def die(*args: Any) -> None:
        return None

    monkeypatch.setattr(runner, "_store_end", die)
    task = await claim(client, monkeypatch, "book")
    await run_task(task)
    assert (await client.get(task.pk))["status"] == "working"
    assert await store.run_on_rows(store.cancel, task.pk) is None, "its effects cannot be undone"
    await Task.objects.filter(pk=task.pk).aupdate(lease_expires=timezone.now() - timedelta(seconds=1), max_losses=5)
    await maintain_tasks(get_backend())
    ended = await client.get(task.pk)
    assert (ended["status"], ended["result"]) == ("completed", expected)
    assert await Group.objects.acount() == 1


@pytest.fixture
def count(gate: Gate) -> Callable[[], list[str]]:
    """Declare a plain tool without a transaction; the list has an entry for each run."""

    def declare(**options: Any) -> list[str]:
        runs: list[str] = []

        @wiring.get_server(ALIAS).tool(task=AT_ONCE, **options)
        def count() -> str:
            """Run on a thread."""
            runs.append("count")
            return "counted"

        return runs

    return declare


async def test_the_end_of_a_plain_function_outlives_a_process_whose_loop_is_blocked(
    client: TaskClient, count: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A heartbeat stores the result that the loop has not stored; then the process is killed."""
    runs = count()
    expected = (await client.until((await client.start("count"))["taskId"]))["result"]

    async def die(attempt: Attempt, *args: Any) -> None:
        assert attempt.lease is not None
        await store.run_on_rows(store_results, [attempt.lease])
        assert (attempt.lease.result, attempt.lease.is_confirmed) == (None, True)

    monkeypatch.setattr(runner, "_store_end", die)
    task = await claim(client, monkeypatch, "count")
    await run_task(task)
    await Task.objects.filter(pk=task.pk).aupdate(lease_expires=timezone.now() - timedelta(seconds=1), max_losses=5)
    await maintain_tasks(get_backend())
    ended = await client.get(task.pk)
    assert (ended["status"], ended["result"], runs) == ("completed", expected, ["count"] * 2)


async def refuse_result(context: Any, call_next: Callable[[], Any]) -> Any:
    await call_next()
    raise ToolError("refused")


async def test_a_result_that_an_interceptor_may_change_is_not_stored_before_it_ran(
    client: TaskClient, count: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    count(interceptors=[refuse_result])
    kept: list[Any] = []
    monkeypatch.setattr(Attempt, "keep_result", lambda self, *args: kept.append(args))
    ended = await client.until((await client.start("count"))["taskId"])
    assert (ended["result"]["content"][0]["text"], kept) == ("refused", [])


async def test_a_commit_whose_answer_is_lost_completes_the_task(
    client: TaskClient, book: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    book()
    run = invoke.run_handler

    async def lose_answer(*args: Any) -> Any:
        await run(*args)
        raise OperationalError("the connection was closed")

    task = await claim(client, monkeypatch, "book")
    with monkeypatch.context() as broken:
        broken.setattr(invoke, "run_handler", lose_answer)
        await run_task(task)
    ended = await client.get(task.pk)
    assert (ended["status"], ended["result"]["content"][0]["text"]) == ("completed", "booked")


def test_a_step_is_recorded_by_the_holder_of_the_lease() -> None:
    claimed = leases.claim_task(save_task().pk, worker="own", lease=LEASE)
    assert claimed is not None
    assert store.record_step(claimed.pk, "other", "key", "1") is False
    assert store.record_step(claimed.pk, "own", "key", "2") is True
    assert TaskStep.objects.get().value == "2"


@pytest.mark.parametrize("is_one_of_many", [False, True])
def test_a_lease_counts_from_the_moment_before_its_claim(clock: Clock, is_one_of_many: bool) -> None:
    """However long the statements take, the process does not take its lease to last longer than the row does."""
    id, begun, begun_at = save_task().pk, clock.monotonic(), timezone.now()

    def delay(execute: Callable[..., Any], *arguments: Any) -> Any:
        clock.move(100)
        return execute(*arguments)

    with connection.execute_wrapper(delay):
        if is_one_of_many:
            (claimed,) = leases.claim_next_tasks(None, worker="w", lease=LEASE, limit=1)
        else:
            claimed = leases.claim_task(id, worker="w", lease=LEASE)
    assert claimed is not None
    assert claimed.lease_expires is not None
    seconds = (claimed.lease_expires - begun_at).total_seconds()
    assert claimed.lease_sent + LEASE <= begun + seconds + 50, "less than one statement"


def test_one_statement_extends_all_leases(django_assert_num_queries: Any) -> None:
    held = set()
    for number in range(3):
        claimed = leases.claim_task(save_task().pk, worker=f"w{number}", lease=LEASE)
        assert claimed is not None
        held.add((claimed.pk, claimed.worker))
    Task.objects.update(lease_expires=timezone.now())
    with django_assert_num_queries(1):
        assert store.extend_leases(held, LEASE) == (held, set())
    assert not Task.objects.filter(lease_expires__lt=timezone.now() + timedelta(seconds=LEASE / 2)).exists()
    lost = next(iter(held))
    Task.objects.filter(pk=lost[0]).update(worker="another")
    assert store.extend_leases(held, LEASE) == (held - {lost}, {lost})


async def test_a_refusal_before_the_tool_begins_is_tried_again_later(
    client: TaskClient, gate: Gate, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*args: Any) -> Any:
        raise Overloaded("All threads are in use; try again later", retry_after=20)

    task = await claim(client, monkeypatch, "wait")
    with monkeypatch.context() as busy:
        busy.setattr(invoke, "run_handler", refuse)
        await run_task(task)
    row = await Task.objects.aget(pk=task.pk)
    assert (row.status, row.worker, row.attempts, row.losses) == ("working", "", 0, 0)
    assert await runner.run_attempt(task.pk) is False, "it is too early"
    clock.move(300)
    gate.open()
    assert await runner.run_attempt(task.pk) is True
    assert (await client.get(task.pk))["status"] == "completed"
    assert gate.runs == ["done"]


async def test_a_refusal_after_the_tool_has_begun_repeats_only_tools_that_may_run_again(
    client: TaskClient, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse() -> str:
        raise Overloaded("try again later")

    for name, retry, status in (("once", 0, "failed"), ("again", 1, "working")):
        wiring.get_server(ALIAS).tool(refuse, name=name, task=TaskOptions(grace=0, retry=retry))
        task = await claim(client, monkeypatch, name)
        await run_task(task)
        assert (await Task.objects.aget(pk=task.pk)).status == status


async def test_a_tool_whose_database_fails_runs_again_if_it_may(
    client: TaskClient, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def query() -> str:
        raise OperationalError("terminating connection")

    wiring.get_server(ALIAS).tool(query, name="query", task=TaskOptions(grace=0, retry=1))
    task = await claim(client, monkeypatch, "query")
    await run_task(task)
    row = await Task.objects.aget(pk=task.pk)
    assert (row.status, row.worker, row.losses) == ("working", "", 1)
    assert await runner.run_attempt(task.pk) is True
    row = await Task.objects.aget(pk=task.pk)
    assert (row.status, row.is_error, "reference" in row.status_message) == ("completed", True, True)


@pytest.mark.parametrize("problem", [OperationalError("down"), Overloaded("Tokens cannot be verified")])
async def test_a_task_whose_caller_cannot_be_read_waits_again(
    problem: Exception, client: TaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(task: Task) -> None:
        raise problem

    monkeypatch.setattr(runner, "load_principal", refuse)
    task = await claim(client, monkeypatch, "wait")
    await run_task(task)
    row = await Task.objects.aget(pk=task.pk)
    assert (row.status, row.worker, row.attempts) == ("working", "", 0)


async def test_a_question_is_stored_after_an_outage(
    client: TaskClient, gate: Gate, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "suspend", FailingOnce(store.suspend))
    task = await claim(client, monkeypatch, "confirm", name="a")
    await clock.advance_while(run_task(task))
    assert (await client.get(task.pk))["status"] == "input_required"


async def test_a_step_is_recorded_after_an_outage_and_its_tool_goes_on(
    client: TaskClient, gate: Gate, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "record_step", FailingOnce(store.record_step))
    task = await claim(client, monkeypatch, "confirm", name="a")
    await clock.advance_while(run_task(task))
    assert (await client.get(task.pk))["status"] == "input_required"
    assert gate.steps == ["a"]
    assert (await TaskStep.objects.aget()).key == "prepare"


async def test_a_lease_is_extended_until_the_end_is_stored(
    client: TaskClient, gate: Gate, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish, end = store.finish_attempts, clock.monotonic() + 2 * LEASE
    monkeypatch.setattr(store, "finish_attempts", lambda ends: fail() if clock.monotonic() < end else finish(ends))
    task = await claim(client, monkeypatch, "wait")
    gate.open()
    running = asyncio.ensure_future(run_task(task))
    await clock.advance_until(lambda: clock.monotonic() > end - LEASE / 2)
    row = await Task.objects.aget(pk=task.pk)
    assert row.lease_expires is not None
    assert row.lease_expires > timezone.now()
    await clock.advance_until(running.done)
    assert (await client.get(task.pk))["status"] == "completed"


async def test_the_end_of_a_cancelled_attempt_is_stored_after_an_outage(
    client: TaskClient, gate: Gate, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "end_attempt", FailingOnce(store.end_attempt))
    task = await claim(client, monkeypatch, "wait")
    running = asyncio.ensure_future(run_task(task))
    await clock.advance_until(lambda: gate.runs)
    await client.cancel(task.pk)
    await clock.advance_until(running.done)
    assert (await TaskAttempt.objects.aget()).outcome == AttemptOutcome.CANCELLED


def test_the_availability_begins_with_the_first_answer_after_a_failure(clock: Clock) -> None:
    availability = Availability()
    assert not availability.has_lasted(0), "the process has not reached the database yet"
    availability.observe(lambda: None)
    assert availability.has_lasted(0)
    clock.move(10)
    assert availability.has_lasted(10)
    with pytest.raises(OperationalError):
        availability.observe(fail)
    clock.move(100)
    assert not availability.has_lasted(0)
    availability.observe(lambda: None)
    clock.move(10)
    availability.observe(clock.move, 20)  # the server was frozen
    assert not availability.has_lasted(1)
    for _ in range(3):
        clock.move(15)
        availability.observe(lambda: None)
    assert availability.has_lasted(45)
    clock.move(20)  # the server may have been away
    availability.observe(lambda: None)
    assert not availability.has_lasted(1)


async def test_leases_are_not_ended_soon_after_an_outage(
    client: TaskClient, gate: Gate, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await claim(client, monkeypatch, "wait")
    clock.move(1000)
    with pytest.raises(OperationalError):
        await store.run_on_rows(fail)
    assert (await maintain_tasks(get_backend())).lost == 0
    assert (await client.get(task.pk))["status"] == "working"
    for _ in range(2):
        clock.move(get_interval())
        await store.run_on_rows(Task.objects.count)
    assert (await maintain_tasks(get_backend())).lost == 1
    assert (await client.get(task.pk))["status"] == TaskStatus.FAILED


@pytest.mark.parametrize("difference", [-90.0, 90.0])
def test_leases_follow_the_clock_of_the_database(difference: float) -> None:
    """A process whose clock is wrong ends no lease of others, and its own last as long as theirs."""
    clock = wiring.get_services().event_publisher.clock
    lost = leases.claim_task(save_task().pk, worker="w", lease=LEASE)
    clock.difference = difference
    try:
        claimed = leases.claim_task(save_task().pk, worker="v", lease=LEASE)
        assert lost is not None
        assert claimed is not None
        expected = timezone.now() + timedelta(seconds=LEASE + difference)
        assert claimed.lease_expires is not None
        assert abs(claimed.lease_expires - expected) < timedelta(seconds=15)
        assert [row.pk for row in leases.end_lost_attempts()] == ([lost.pk] if difference > 0 else [])
    finally:
        clock.difference = 0.0
