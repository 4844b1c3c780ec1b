"""The recipes about long work: progress and cancellation, background jobs, and Celery."""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import celery
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import isolate_apps

from mcp_django import ToolError
from mcp_django.protocol.errors import ResourceNotFound
from tests.recipes.pages import Recipe, block_with
from tests.shop import models as shop_models
from tests.shop.models import Product


@pytest.fixture
def job_model(monkeypatch: pytest.MonkeyPatch, transactional_db: None) -> Iterator[Any]:
    """The model of the page, with a table."""
    found: dict[str, Any] = {"__name__": "tests.shop.models"}
    with isolate_apps("tests.shop"):
        exec(block_with("background-jobs", "class Job"), found)
    model = found["Job"]
    monkeypatch.setattr(shop_models, "Job", model, raising=False)
    with connection.schema_editor() as editor:
        editor.create_model(model)
    try:
        yield model
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(model)


@pytest.fixture
def ada(transactional_db: None) -> User:
    """A superuser."""
    return User.objects.create_superuser("ada")


@pytest.mark.django_db
async def test_a_long_job_reports_progress_and_stops_when_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(120):
        await Product.objects.acreate(name=f"P{number:03}", cost=number == 7)
    recipe = Recipe("long-jobs", "def find_losses", monkeypatch)
    client = recipe.client()
    params = {"name": "find_losses", "arguments": {}, "_meta": {"progressToken": "a"}}
    result = await client.request("tools/call", params)
    assert result["structuredContent"] == {"result": ["P007"]}
    progress = [sent["params"]["progress"] for sent in client.notifications]
    assert progress == [50, 100, 120]

    class Cancelled:
        cancelled = True

    with pytest.raises(ToolError, match="Stopped after 0 of 120 products"):
        await sync_to_async(recipe.module.find_losses)(Cancelled())
    [tool] = recipe.registry.tools
    assert tool.timeout == 120


async def test_a_background_job_has_a_state_for_its_owner(
    monkeypatch: pytest.MonkeyPatch, job_model: Any, ada: User
) -> None:
    await Product.objects.acreate(name="Tea")
    recipe = Recipe("background-jobs", "ctx.background", monkeypatch)
    told: list[str] = []
    monkeypatch.setattr(recipe.module, "notify_resource_updated", told.append)
    client = recipe.client(ada)
    job = (await client.call_tool("start_cleanup", {}))["content"][0]["text"]
    assert told == [f"shop://jobs/{job}"]
    assert (await client.call_tool("job_state", {"job": job}))["structuredContent"] == {"result": "done"}
    assert (await client.read_resource(f"shop://jobs/{job}"))[0]["text"] == "done"

    eve = recipe.client(await User.objects.acreate(username="eve", is_superuser=True))
    assert (await eve.call_tool("job_state", {"job": job}))["isError"]
    assert (await eve.call_tool("cancel_job", {"job": job}))["structuredContent"] == {"result": False}
    with pytest.raises(ResourceNotFound):
        await eve.read_resource(f"shop://jobs/{job}")

    row = await job_model.objects.acreate(owner=f"django|{ada.pk}")
    assert (await client.call_tool("cancel_job", {"job": str(row.pk)}))["structuredContent"] == {"result": True}
    await sync_to_async(recipe.module.run)(row)
    assert (await client.call_tool("job_state", {"job": str(row.pk)}))["structuredContent"] == {"result": "cancelled"}

    monkeypatch.setattr(recipe.module, "Product", None)
    failed = (await client.call_tool("start_cleanup", {}))["content"][0]["text"]
    assert (await client.call_tool("job_state", {"job": failed}))["structuredContent"] == {"result": "failed"}


async def test_a_celery_task_starts_on_commit_and_saves_its_result(
    monkeypatch: pytest.MonkeyPatch, job_model: Any, ada: User
) -> None:
    app = celery.Celery("shop", set_as_current=False)
    monkeypatch.setattr("celery._state.default_app", app)  # the app of all threads
    app.conf.update(task_always_eager=True, task_eager_propagates=True)
    await Product.objects.acreate(name="Tea")
    tasks = ModuleType("shop.tasks")
    monkeypatch.setitem(sys.modules, "shop.tasks", tasks)
    told: list[str] = []
    state = Recipe("background-jobs", "ctx.background", monkeypatch)  # imports the shop
    exec(block_with("celery", "@shared_task"), tasks.__dict__)
    monkeypatch.setattr(tasks, "notify_resource_updated", told.append)
    recipe = Recipe("celery", "clean_up.delay", monkeypatch)
    client = recipe.client(ada)
    job = (await client.call_tool("start_cleanup", {}))["content"][0]["text"]
    found = await client.call_tool("cleanup_state", {"pk": job})
    assert found["structuredContent"] == {"result": "done"}
    assert told == [f"shop://jobs/{job}"]
    assert state.module.Job is job_model

    monkeypatch.setattr(tasks, "Product", None)
    with pytest.raises(AttributeError):
        await sync_to_async(tasks.clean_up.run)(job)
    failed = await client.call_tool("cleanup_state", {"pk": job})
    assert failed["structuredContent"] == {"result": "failed"}
