"""Rows of tasks: claims, leases, lost workers, expiry, and the number of statements."""

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from mcp_django.contrib.tasks.attempts import executions, runner
from mcp_django.contrib.tasks.backend import get_backend
from mcp_django.contrib.tasks.models import (
    MESSAGE_CHARACTERS,
    AttemptOutcome,
    Task,
    TaskAttempt,
    TaskInput,
    TaskStatus,
    TaskWorker,
)
from mcp_django.contrib.tasks.options import get_settings
from mcp_django.contrib.tasks.rows import leases, store
from mcp_django.contrib.tasks.signals import task_created, task_finished
from mcp_django.contrib.tasks.upkeep import maintain_tasks
from tests.contrib.tasks.clients import TaskClient
from tests.contrib.tasks.conftest import Gate
from tests.support.clock import Clock

pytestmark = pytest.mark.django_db
SAVEPOINT_STATEMENTS = 2
"""Statements of a transaction within the transaction of a test."""


def make_task(**values: Any) -> Task:
    """An unsaved task."""
    now = timezone.now()
    given: dict[str, Any] = {
        "owner_hash": "a" * 64,
        "owner": "tests|ada|",
        "server": "long_jobs",
        "tool": "wait",
        "arguments": "{}",
        "context": "{}",
        "origin": "extension",
        "revision": "r",
        "ttl_ms": 1000,
        "poll_ms": 1000,
        "queue": "default",
        "expires": now + timedelta(hours=1),
    }
    return Task(**{**given, **values})


def save_task(**values: Any) -> Task:
    task = make_task(**values)
    task.save()
    return task


def test_creation_takes_a_transaction_of_three_statements_and_a_poll_one(django_assert_num_queries: Any) -> None:
    store.create(make_task(), {}, get_settings())  # the first one inserts the lock
    with django_assert_num_queries(3 + SAVEPOINT_STATEMENTS):
        store.create(make_task(), {}, get_settings())
    running = make_task(worker="w", attempts=1)
    with django_assert_num_queries(4 + SAVEPOINT_STATEMENTS):
        store.create(running, {}, get_settings())
    with django_assert_num_queries(1):
        assert store.find(running.pk, running.owner_hash) == running


def test_one_worker_wins_a_claim() -> None:
    task = save_task()
    claimed = leases.claim_task(task.pk, worker="one", lease=30)
    assert claimed is not None
    assert (claimed.worker, claimed.attempts) == ("one", 1)
    assert leases.claim_task(task.pk, worker="two", lease=30) is None
    assert TaskAttempt.objects.get().worker == "one"


def test_the_next_claim_takes_the_oldest_task_of_a_queue() -> None:
    now = timezone.now()
    later, first = save_task(created=now), save_task(created=now - timedelta(minutes=1))
    other = save_task(queue="other", created=now - timedelta(minutes=2))
    claimed = [leases.claim_next_tasks(["default"], worker=f"w{number}", lease=30, limit=1) for number in range(3)]
    assert claimed == [[first], [later], []]
    assert leases.claim_next_tasks(None, worker="w", lease=30, limit=1) == [other]


def test_a_claim_takes_several_tasks_up_to_its_limit() -> None:
    now = timezone.now()
    first, second, third = (save_task(created=now + timedelta(seconds=number)) for number in range(3))
    claimed = leases.claim_next_tasks(None, worker="w", lease=30, limit=2)
    assert claimed == [first, second]
    assert [(task.worker, task.attempts) for task in claimed] == [("w", 1), ("w", 1)]
    for task in claimed:
        row = Task.objects.get(pk=task.pk)
        assert (row.worker, row.attempts, row.lease_expires) == (task.worker, task.attempts, task.lease_expires)
    assert leases.claim_next_tasks(None, worker="v", lease=30, limit=2) == [third]
    assert set(TaskAttempt.objects.values_list("task", "worker")) == {
        (first.pk, "w"),
        (second.pk, "w"),
        (third.pk, "v"),
    }


def test_several_ends_take_one_statement_each_and_two_together(django_assert_num_queries: Any) -> None:
    for _ in range(4):
        save_task()
    claimed = [task for task in (leases.claim_task(pk, worker="w", lease=30) for pk in list_ids()) if task is not None]
    store.cancel(claimed[3].pk)
    ends = [store.TaskEnd(task, TaskStatus.COMPLETED, {"result": "{}"}) for task in claimed]
    with django_assert_num_queries(4 + 2 + SAVEPOINT_STATEMENTS):
        finished = store.finish_attempts(ends)
    assert {row.pk for row in finished} == {task.pk for task in claimed[:3]}
    assert store.finish_attempts(ends) == []
    assert set(TaskAttempt.objects.exclude(task=claimed[3]).values_list("outcome", flat=True)) == {"finished"}
    assert TaskAttempt.objects.get(task=claimed[3]).outcome == ""


def list_ids() -> list[str]:
    return list(Task.objects.values_list("pk", flat=True))


def test_only_the_holder_of_the_lease_ends_a_task() -> None:
    claimed = leases.claim_task(save_task().pk, worker="one", lease=30)
    assert claimed is not None
    assert store.extend_leases({(claimed.pk, "two")}, 30) == (set(), {(claimed.pk, "two")})
    stranger = Task.objects.get()
    stranger.worker = "two"
    completed = {"result": "{}"}
    assert store.finish_attempts([store.TaskEnd(stranger, TaskStatus.COMPLETED, completed)]) == []
    assert store.write_progress(claimed.pk, "one", {"status_message": "half"}) is True
    assert store.finish_attempts([store.TaskEnd(claimed, TaskStatus.COMPLETED, completed)]) == [claimed]
    for status in TaskStatus:
        assert store.finish_row(store.TaskEnd(claimed, status, {})) is False
    assert store.cancel(claimed.pk) is None
    row = Task.objects.get()
    assert (row.status, row.status_message, row.worker) == ("completed", "half", "")
    assert TaskAttempt.objects.get().outcome == AttemptOutcome.FINISHED


def test_a_claim_that_is_given_up_leaves_its_tasks_as_they_were() -> None:
    first, second, other = (save_task() for _ in range(3))
    claimed = leases.claim_next_tasks(None, worker="w", lease=30, limit=2)
    leases.claim_task(other.pk, worker="v", lease=30)
    leases.return_claim("w")
    assert {task.pk for task in claimed} == {first.pk, second.pk}
    assert set(Task.objects.filter(worker="", attempts=0, losses=0).values_list("pk", flat=True)) == {
        first.pk,
        second.pk,
    }
    assert TaskAttempt.objects.get().task_id == other.pk


def test_a_lease_that_was_extended_meanwhile_is_not_ended() -> None:
    leases.claim_task(save_task().pk, worker="w", lease=30)
    Task.objects.update(lease_expires=timezone.now() - timedelta(seconds=1))
    read = Task.objects.get()
    store.extend_leases({(read.pk, "w")}, 30)
    assert leases.end_expired_attempt(read) is None
    assert Task.objects.get().worker == "w"


def test_a_committed_result_is_neither_failed_nor_given_up() -> None:
    claimed = leases.claim_task(save_task(max_losses=1).pk, worker="w", lease=30)
    assert claimed is not None
    assert store.commit_result(claimed.pk, "w", {"result": "{}"}) is True
    assert store.give_up_lease(claimed.pk, "w") is False
    assert store.finish_row(store.TaskEnd(claimed, TaskStatus.FAILED, {})) is False
    row = leases.end_lost_attempt(claimed, AttemptOutcome.LOST, "lost")
    assert row is not None
    assert row.status == "completed"


def test_a_lost_task_fails_unless_it_may_run_again() -> None:
    once, repeated = save_task(), save_task(max_losses=1)
    for task in (once, repeated):
        leases.claim_task(task.pk, worker=f"w{task.pk}", lease=30)
    assert leases.end_lost_attempts() == []
    Task.objects.update(lease_expires=timezone.now() - timedelta(seconds=1))

    ended = {task.pk: task for task in leases.end_lost_attempts()}
    assert ended[once.pk].status == "failed"
    assert "lost" in ended[once.pk].error
    assert (ended[repeated.pk].status, ended[repeated.pk].worker) == ("working", "")
    assert set(TaskAttempt.objects.values_list("outcome", flat=True)) == {AttemptOutcome.LOST}

    leases.claim_task(repeated.pk, worker="again", lease=30)
    Task.objects.update(lease_expires=timezone.now() - timedelta(seconds=1))
    assert [task.status for task in leases.end_lost_attempts()] == ["failed"]


def test_a_returned_task_waits_for_its_delay_and_counts_no_attempt(clock: Clock) -> None:
    claimed = leases.claim_task(save_task().pk, worker="w", lease=30)
    assert claimed is not None
    returned = leases.return_task(claimed, delay=300)
    assert returned is not None
    assert (returned.status, returned.worker, returned.attempts, returned.losses) == ("working", "", 0, 0)
    assert not TaskAttempt.objects.exists()
    assert leases.return_task(claimed, delay=300) is None, "the lease is lost"

    def claim() -> list[Any]:
        now = timezone.now()
        waiting = leases.find_waiting(before=now), leases.claim_resends(before=now, repeat_before=now)
        claims = (
            leases.claim_task(claimed.pk, worker="x", lease=30),
            leases.claim_next_tasks(None, worker="y", lease=30, limit=1),
        )
        return [*waiting, *claims]

    assert claim() == [[], [], None, []]
    clock.move(600)
    found, resent, again, rest = claim()
    assert (found, resent, again, rest) == ([claimed], [claimed], claimed, [])
    assert (again.attempts, again.run_after, TaskAttempt.objects.get().number) == (1, None, 1)


def test_keys_of_questions_are_never_used_again() -> None:
    claimed = leases.claim_task(save_task().pk, worker="w", lease=30)
    assert claimed is not None
    request = {"method": "elicitation/create"}
    store.suspend(claimed.pk, "w", [store.Question("a", "1", request)], (), 1)
    assert store.answer(claimed.pk, {"a": {}, "b": {}}) is not None
    assert store.answer(claimed.pk, {"a": {"action": "cancel"}}) is None
    leases.claim_task(claimed.pk, worker="w2", lease=30)
    store.suspend(claimed.pk, "w2", [store.Question("a", "2", request)], (), 2)
    assert list(TaskInput.objects.order_by("pk").values_list("key", "answer")) == [("a", "{}"), ("a.2", "")]


def test_a_worker_without_the_lease_asks_nothing() -> None:
    claimed = leases.claim_task(save_task().pk, worker="w", lease=30)
    assert claimed is not None
    store.cancel(claimed.pk)
    assert store.suspend(claimed.pk, "w", [store.Question("a", "1", {})], (), 1) is None
    assert not TaskInput.objects.exists()


def test_the_command_ends_cancels_and_deletes() -> None:
    now = timezone.now()
    lost = save_task(worker="w", lease_expires=now - timedelta(minutes=10))
    expired = save_task(expires=now - timedelta(seconds=1))
    old = [save_task(status="completed", expires=now - timedelta(days=2)) for _ in range(3)]
    out = StringIO()
    call_command("mcp_cleartasks", stdout=out)
    assert out.getvalue() == "Lost: 1. Expired: 1. Deleted: 3.\n"
    statuses = dict(Task.objects.values_list("pk", "status"))
    assert statuses == {lost.pk: "failed", expired.pk: "cancelled"}
    assert not Task.objects.filter(pk__in=[task.pk for task in old]).exists()


def test_the_figures_count_tasks_and_workers() -> None:
    now = timezone.now()
    save_task(updated=now - timedelta(seconds=90))
    save_task()
    save_task(worker="a", lease_expires=now + timedelta(seconds=9))
    save_task(worker="b", lease_expires=now - timedelta(seconds=9))
    save_task(status="input_required")
    ended = save_task(status="failed")
    for number, minutes in ((1, 5), (2, 90)):
        past = now - timedelta(minutes=minutes)
        TaskAttempt.objects.create(task=ended, number=number, worker="w", outcome=AttemptOutcome.LOST, ended=past)
    TaskWorker.objects.create(host="alive", pid=1, concurrency=1)
    TaskWorker.objects.create(host="silent", pid=2, concurrency=1, seen=now - timedelta(minutes=2))

    out = StringIO()
    call_command("mcp_taskhealth", json=True, stdout=out)
    figures = json.loads(out.getvalue())
    assert 90 <= figures.pop("oldest_waiting_seconds") < 300
    counts = {"waiting": 2, "running": 2, "input_required": 1, "expired_leases": 1, "lost_attempts": 1, "workers": 1}
    assert figures == counts
    call_command("mcp_taskhealth", max_wait=3600, min_workers=1, max_lost=1, stdout=out)
    assert "expired leases: 1" in out.getvalue()
    with pytest.raises(CommandError) as failed:
        call_command("mcp_taskhealth", max_wait=60, min_workers=2, max_lost=0, stdout=StringIO())
    assert [part in str(failed.value) for part in ("waited for", "1 workers", "1 attempts")] == [True] * 3


def test_signals_are_sent_once() -> None:
    seen: list[tuple[str, str]] = []

    def on_signal(signal: Any, task: Task, **_: Any) -> None:
        seen.append(("created" if signal is task_created else "finished", str(task.status)))

    task_created.connect(on_signal)
    task_finished.connect(on_signal)
    try:
        task = make_task()
        store.create(task, {}, get_settings())
        store.cancel(task.pk)
        store.cancel(task.pk)
    finally:
        task_created.disconnect(on_signal)
        task_finished.disconnect(on_signal)
    assert seen == [("created", "working"), ("finished", "cancelled")]


async def test_another_process_goes_on_after_a_restart(client: TaskClient, gate: Gate) -> None:
    """The process died between the answer and the attempt: maintenance finds the waiting task."""
    id = (await client.start("confirm", name="a"))["taskId"]
    (key,) = (await client.until(id, "input_required"))["inputRequests"]
    await store.run_on_rows(store.answer, id, {key: {"action": "accept", "content": {"value": True}}})
    await Task.objects.filter(pk=id).aupdate(updated=timezone.now() - timedelta(minutes=1))

    counts = await maintain_tasks(get_backend())
    assert (counts.enqueued, counts.expired, counts.deleted) == (1, 0, 0)
    assert (await client.until(id))["result"]["content"][0]["text"] == "a: accept True"
    assert gate.steps == ["a"]


async def test_a_poll_ends_the_task_of_a_lost_worker(client: TaskClient, gate: Gate) -> None:
    task = make_task(owner_hash="", worker="gone", lease_expires=timezone.now() - timedelta(seconds=1))
    template = await client.start("wait")
    row = await Task.objects.aget(pk=template["taskId"])
    task.owner_hash, task.context, task.revision = row.owner_hash, row.context, row.revision
    await task.asave()
    failed = await client.get(task.pk)
    assert (failed["status"], failed["error"]["code"]) == ("failed", -32603)
    await gate.close()


async def test_a_cancelled_attempt_of_this_process_stops(client: TaskClient, gate: Gate) -> None:
    id = (await client.start("wait"))["taskId"]
    while not gate.runs:
        await client.get(id)
    assert await runner.run_attempt(id) is False, "the task is running"
    await client.cancel(id)
    while await TaskAttempt.objects.filter(outcome="").aexists():
        await client.get(id)
    assert await Task.objects.values_list("status", flat=True).aget(pk=id) == "cancelled"
    assert (await TaskAttempt.objects.aget()).outcome == AttemptOutcome.CANCELLED
    assert executions.cancel_local_execution(id) is False


async def test_a_stopped_process_releases_or_fails_its_tasks(client: TaskClient, gate: Gate) -> None:
    for tool, status in (("wait", "failed"), ("repeatable", "working")):
        gate.runs.clear()
        id = (await client.start(tool))["taskId"]
        while not gate.runs:
            await client.get(id)
        backend: Any = get_backend()
        (running,) = backend._loops.get().running
        running.abort()
        while not running.task.done():
            await client.get(id)
        row = await Task.objects.aget(pk=id)
        assert (row.status, row.worker) == (status, "")


def test_a_status_message_is_one_line_of_visible_characters() -> None:
    assert store.clean_message("Reading\u202e\r\nrun\u200bways \x1b[31m\0") == "Reading runways [31m"
    assert len(store.clean_message("x" * 5000)) == MESSAGE_CHARACTERS
