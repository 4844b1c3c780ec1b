"""Backends that hand attempts to Celery and to Django's task framework."""

import threading
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import django
import pytest
from asgiref.sync import async_to_sync, sync_to_async
from celery import Celery
from celery.signals import worker_process_init
from django.core.management import call_command
from django.db import connections
from django.utils import timezone

from mcp_django import wiring
from mcp_django.contrib.tasks import upkeep
from mcp_django.contrib.tasks.backend import get_backend
from mcp_django.contrib.tasks.backends import celery, loop_thread
from mcp_django.contrib.tasks.models import Task
from mcp_django.contrib.tasks.options import get_settings
from mcp_django.contrib.tasks.upkeep import maintain_tasks
from tests.contrib.tasks.clients import TaskClient
from tests.contrib.tasks.conftest import Gate
from tests.contrib.tasks.creation.test_task_rows import save_task
from tests.support.clock import Clock
from tests.support.waiting import WAIT_SECONDS

pytestmark = pytest.mark.django_db
FRAMEWORK = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"
DJANGO_TASKS = "mcp_django.contrib.tasks.backends.django_tasks.DjangoTasksBackend"
CELERY = "mcp_django.contrib.tasks.backends.celery.CeleryBackend"


@pytest.fixture
def django_tasks(gate: Gate, change: Callable[..., None], settings: Any) -> Callable[..., None]:
    """Use Django's task framework, with options of its backend."""

    def configure(kind: str = "dummy.DummyBackend", queues: Any = ("default", "mcp"), **options: Any) -> None:
        settings.TASKS = {"default": {"BACKEND": f"{FRAMEWORK}.backends.{kind}", "QUEUES": list(queues)}}
        change(BACKEND=DJANGO_TASKS, BACKEND_OPTIONS=options)

    return configure


@pytest.fixture
def sent(gate: Gate, change: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Messages to Celery's broker."""
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(celery.run_mcp_task, "apply_async", lambda **message: sent.append(message))
    change(BACKEND=CELERY, BACKEND_OPTIONS={})
    return sent


def test_an_attempt_runs_as_a_task_of_django(django_tasks: Callable[..., None], client: TaskClient, gate: Gate) -> None:
    from mcp_django.contrib.tasks.backends.django_tasks import run_mcp_task

    django_tasks()
    gate.open()
    id = async_to_sync(client.start)("wait")["taskId"]
    assert run_mcp_task.call(id) is True
    assert async_to_sync(client.get)(id)["status"] == "completed"
    assert run_mcp_task.call(id) is False
    assert gate.runs == ["done"]


def test_django_gets_the_id_and_the_queue(django_tasks: Callable[..., None]) -> None:
    django_tasks(QUEUE_NAME="mcp")
    backend: Any = get_backend()
    backend._send("an id")  # on this thread: the framework has a backend for each
    (sent,) = backend._get_framework_backend().results
    assert (sent.args, sent.task.queue_name) == (["an id"], "mcp")


def test_an_unknown_queue_of_django_is_reported(django_tasks: Callable[..., None]) -> None:
    django_tasks(QUEUE_NAME="lost")
    (problem,) = get_backend().check()
    assert (problem.id, "'lost'" in problem.msg) == ("mcp_django.E062", True)
    django_tasks(ALIAS="missing")
    (problem,) = get_backend().check()
    assert (problem.id, "'missing'" in problem.msg) == ("mcp_django.E062", True)
    django_tasks(QUEUE_NAME="mcp")
    assert list(get_backend().check()) == []


def test_a_message_of_celery_runs_an_attempt_once(sent: list[dict[str, Any]], client: TaskClient, gate: Gate) -> None:
    gate.open()
    id = async_to_sync(client.start)("wait")["taskId"]
    assert sent == [{"args": [id]}]
    for _ in range(2):  # a broker may deliver a message twice
        celery.run_mcp_task.apply(args=[id])
    assert async_to_sync(client.get)(id)["status"] == "completed"
    assert gate.runs == ["done"]


@pytest.mark.parametrize(
    ("name", "options", "ids"),
    [
        ("default", {}, ["mcp_django.W067"]),
        ("default", {"broker": "redis://broker"}, []),
        ("config", {}, []),
    ],
    ids=str,
)
def test_a_process_without_the_celery_app_of_the_project_is_reported(
    name: str, options: dict[str, Any], ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Celery(name, set_as_current=False, **options)
    monkeypatch.setattr("celery._state.default_app", app)  # the app of all threads
    assert [problem.id for problem in celery.CeleryBackend().check()] == ids


async def test_celery_gets_the_options(
    sent: list[dict[str, Any]], change: Callable[..., None], client: TaskClient
) -> None:
    change(BACKEND=CELERY, BACKEND_OPTIONS={"QUEUE": "mcp", "OPTIONS": {"priority": 3}})
    id = (await client.start("wait"))["taskId"]
    assert sent == [{"args": [id], "queue": "mcp", "priority": 3}]


async def test_a_task_outlives_a_broker_that_fails(
    sent: list[dict[str, Any]], client: TaskClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(**message: Any) -> None:
        raise OSError("broker down")

    monkeypatch.setattr(celery.run_mcp_task, "apply_async", fail)
    id = (await client.start("wait"))["taskId"]
    assert (await client.get(id))["status"] == "working"
    assert "could not be enqueued" in caplog.text


async def test_serving_processes_maintain_the_tasks_with_each_backend(
    sent: list[dict[str, Any]], client: TaskClient, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process of the package runs anywhere else if Celery has the attempts."""
    monkeypatch.setattr(upkeep, "is_async_to_sync_loop", lambda: False)  # as on the loop of a server
    await client.start("wait")
    past = timezone.now() - timedelta(seconds=1)
    lost, expired = (
        await sync_to_async(save_task)(worker="w", lease_expires=past),
        await sync_to_async(save_task)(expires=past),
    )

    async def has_ended() -> bool:
        return not await Task.objects.filter(pk__in=[lost.pk, expired.pk], status="working").aexists()

    for _ in range(100):
        await clock.advance(1)
        if await has_ended():
            break
    assert dict([row async for row in Task.objects.values_list("pk", "status")]) == {
        lost.pk: "failed",
        expired.pk: "cancelled",
        sent[0]["args"][0]: "working",
    }


def test_processes_of_workers_maintain_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    started = threading.Event()

    async def run_attempt(id: str) -> bool:
        return id == "waits"

    monkeypatch.setattr(connections["default"], "in_atomic_block", False)
    monkeypatch.setattr(loop_thread, "run_attempt", run_attempt)
    monkeypatch.setattr(upkeep, "start_maintenance", started.set)
    assert loop_thread.run_attempt_from_thread("waits") is True
    assert started.is_set()

    started.clear()
    worker_process_init.send(sender=None)
    assert started.wait(WAIT_SECONDS)


def test_a_message_is_repeated_by_one_process_and_rarely(
    sent: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = save_task(updated=timezone.now() - timedelta(minutes=1))
    save_task()  # may still have its first message

    def maintain() -> list[str]:
        sent.clear()
        async_to_sync(maintain_tasks)(get_backend())
        return [message["args"][0] for message in sent]

    assert [maintain(), maintain()] == [[waiting.pk], []]
    Task.objects.filter(pk=waiting.pk).update(sent=timezone.now() - timedelta(minutes=6))
    assert [maintain(), maintain()] == [[waiting.pk], []]

    def fail(**message: Any) -> None:
        raise OSError("broker down")

    Task.objects.filter(pk=waiting.pk).update(sent=None)
    with monkeypatch.context() as broken:
        broken.setattr(celery.run_mcp_task, "apply_async", fail)
        maintain()
    assert maintain() == [waiting.pk]


def test_the_maintenance_command_sends_the_tasks_of_lost_workers_again(sent: list[dict[str, Any]]) -> None:
    now, lease = timezone.now(), timedelta(seconds=get_settings().lease)
    lost = save_task(worker="w", lease_expires=now - 2 * lease, max_losses=1)
    save_task(worker="v", lease_expires=now - lease / 2)  # perhaps the database was away
    out = StringIO()
    call_command("mcp_cleartasks", stdout=out)
    assert out.getvalue() == "Lost: 1. Expired: 0. Deleted: 0.\n"
    assert [message["args"] for message in sent] == [[lost.pk]]


async def test_a_serving_process_takes_a_waiting_task_from_its_start_on(
    client: TaskClient, gate: Gate, change: Callable[..., None], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only server was restarted, and its client does not poll."""
    gate.open()
    change(BACKEND="mcp_django.contrib.tasks.worker.WorkerBackend", BACKEND_OPTIONS={})
    id = (await client.start("wait"))["taskId"]
    change()
    monkeypatch.setattr(upkeep, "is_async_to_sync_loop", lambda: False)  # as on the loop of a server
    lifecycle = wiring.get_services().lifecycle
    lifecycle.loop_callbacks.add(upkeep.start_maintenance)
    try:
        await lifecycle.startup([])
    finally:
        lifecycle.loop_callbacks.discard(upkeep.start_maintenance)

    for _ in range(100):
        await clock.advance(1)
        if not await Task.objects.filter(pk=id, status="working").aexists():
            break
    assert (gate.runs, (await Task.objects.aget(pk=id)).status) == (["done"], "completed")
