"""Pages of tasks and workers in the admin."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from mcp_django.contrib.tasks.models import Task, TaskAttempt, TaskStatus, TaskWorker
from tests.contrib.tasks.conftest import Gate, get_url

pytestmark = pytest.mark.django_db
CONTEXT = json.dumps({"principal": {"kind": "token"}, "rounds": {}})


@pytest.fixture
def browser(gate: Gate, client: Any) -> Client:
    """A browser of a superuser."""
    browser = Client()
    browser.force_login(User.objects.create_superuser("root"))
    return browser


@pytest.fixture
def client() -> None:
    """Replaced, because a client of the protocol is not needed here."""


def make_task(**values: Any) -> Task:
    call = {"tool": "survey", "server": "long_jobs", "arguments": '{"secret": "swordfish"}', "context": CONTEXT}
    row = {"ttl_ms": 1000, "poll_ms": 1000, "queue": "default", "expires": timezone.now()}
    return Task.objects.create(**{**call, **row, **values})


def test_the_list_shows_state_and_progress(browser: Client) -> None:
    make_task(progress=3, total=10, status_message="Reading\u202e runways", owner="tests|ada|cli")
    page = browser.get(reverse("admin:mcp_tasks_task_changelist")).content.decode()
    assert "3 / 10 · Reading runways" in page
    assert "swordfish" not in page


def test_the_list_shows_the_figures_of_all_tasks(browser: Client) -> None:
    later = timezone.now() + timedelta(hours=1)
    make_task(expires=later, updated=timezone.now() - timedelta(minutes=7))
    make_task(expires=later, status=TaskStatus.INPUT_REQUIRED)
    TaskWorker.objects.create(host="build-7", pid=42, concurrency=4)
    url = reverse("admin:mcp_tasks_task_changelist")
    page = " ".join(browser.get(url, {"status": "failed"}).content.decode().split())  # a filter has no effect on them
    for figure in (
        "Waiting: <strong>1",
        "Oldest waiting for: <strong>7 minutes",
        "Worker processes alive: <strong>1",
    ):
        assert figure in page


def test_the_page_has_the_attempts_and_no_data_of_the_call(browser: Client) -> None:
    task = make_task(result='{"content": "swordfish"}')
    TaskAttempt.objects.create(task=task, number=1, worker="host:1:ab")
    page = browser.get(get_url("change", task)).content.decode()
    assert "host:1:ab" in page
    assert "swordfish" not in page


def test_a_task_is_cancelled_after_a_confirmation(browser: Client) -> None:
    task = make_task()
    url = get_url("cancel", task)
    assert "cannot be undone" in browser.get(url).content.decode()
    task.refresh_from_db()
    assert task.status == TaskStatus.WORKING

    page = browser.post(url, follow=True).content.decode()
    task.refresh_from_db()
    assert (task.status, "The task was cancelled." in page, url in page) == (TaskStatus.CANCELLED, True, False)
    assert LogEntry.objects.get().object_id == task.pk
    assert "had ended already" in browser.post(url, follow=True).content.decode()


def test_an_id_that_looks_like_an_escape_of_the_admin_leads_to_its_task(browser: Client) -> None:
    task = make_task(id="a_5Fb")
    link = get_url("cancel", task)
    assert link in browser.get(get_url("change", task)).content.decode()
    page = browser.post(link, follow=True)
    assert page.request["PATH_INFO"] == get_url("change", task)
    assert "The task was cancelled." in page.content.decode()


def test_an_ended_task_runs_again_as_a_new_one(browser: Client, change: Callable[..., None]) -> None:
    change(BACKEND="mcp_django.contrib.tasks.worker.WorkerBackend", BACKEND_OPTIONS={})
    task = make_task(owner_hash="a" * 64, attempts=3, result="{}")
    url = get_url("repeat", task)
    assert url not in browser.get(get_url("change", task)).content.decode()
    assert "not ended yet" in browser.post(url, follow=True).content.decode()

    Task.objects.update(status=TaskStatus.FAILED)
    assert url in browser.get(get_url("change", task)).content.decode()
    browser.post(url)
    new = Task.objects.exclude(pk=task.pk).get()
    assert (new.status, new.attempts, new.result, new.worker) == (TaskStatus.WORKING, 0, "", "")
    assert (new.tool, new.arguments, new.owner_hash) == (task.tool, task.arguments, task.owner_hash)
    assert new.expires > timezone.now()
    assert new.pk in str(LogEntry.objects.order_by("-pk")[0].change_message)


def test_the_session_of_a_core_task_is_notified_of_its_repetition(
    browser: Client, change: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    change(BACKEND="mcp_django.contrib.tasks.worker.WorkerBackend", BACKEND_OPTIONS={})
    told: list[tuple[int, str]] = []
    monkeypatch.setattr(
        "mcp_django.contrib.tasks.publishing.notify_session",
        lambda session, method, params: told.append((session, params["taskId"])),
    )
    task = make_task(status=TaskStatus.FAILED, origin="core", session=7)
    browser.post(get_url("repeat", task))
    assert told == [(7, Task.objects.exclude(pk=task.pk).get().pk)]


def test_viewers_change_nothing(gate: Gate) -> None:
    task = make_task(status=TaskStatus.COMPLETED)
    assert repeat_status(task) == 403
    task = make_task()
    viewer = User.objects.create_user("vera", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_task"))
    browser = Client()
    browser.force_login(viewer)
    url = get_url("cancel", task)
    assert url not in browser.get(get_url("change", task)).content.decode()
    assert browser.post(url).status_code == 403


def repeat_status(task: Task) -> int:
    """The HTTP status of a viewer's request to run a task again."""
    viewer = User.objects.create_user("vic", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_task"))
    browser = Client()
    browser.force_login(viewer)
    return browser.post(get_url("repeat", task)).status_code


def test_workers_are_listed(browser: Client) -> None:
    TaskWorker.objects.create(host="build-7", pid=42, concurrency=4, queues="reports")
    page = browser.get(reverse("admin:mcp_tasks_taskworker_changelist")).content.decode()
    assert "build-7:42" in page
    assert "icon-yes" in page
