"""Backends that hand attempts to Celery and to Django's task framework."""

from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import django
import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command
from django.utils import timezone

from mcp_django.contrib.tasks.backend import get_backend
from mcp_django.contrib.tasks.backends import celery
from tests.contrib.tasks.clients import TaskClient
from tests.contrib.tasks.conftest import Gate
from tests.contrib.tasks.test_task_rows import save_task

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


def test_the_maintenance_command_sends_the_tasks_of_lost_workers_again(sent: list[dict[str, Any]]) -> None:
    past = timezone.now() - timedelta(seconds=1)
    lost = save_task(worker="w", lease_expires=past, max_losses=1)
    out = StringIO()
    call_command("mcp_cleartasks", stdout=out)
    assert out.getvalue() == "Lost: 1. Expired: 0. Deleted: 0.\n"
    assert [message["args"] for message in sent] == [[lost.pk]]
