"""Forwarded calls as tasks of this server: ids, owners, questions and cancellation."""

import asyncio
from typing import Any

import pytest

from mcp_django import wiring
from mcp_django.client.pool import factory
from mcp_django.protocol.errors import InvalidParams
from tests.client.task_server import COMPLETED, FORM, WORKING, TaskServer, asks
from tests.contrib.proxies.test_tasks import Tasks
from tests.contrib.tasks.clients import TaskClient, make_caller
from tests.server.client import HANDSHAKE, accept
from tests.support.clock import Clock

pytestmark = pytest.mark.django_db
ALIAS = "proxied_jobs"


@pytest.fixture
def remote(settings: Any, monkeypatch: pytest.MonkeyPatch) -> TaskServer:
    """A remote server whose calls are tasks, behind a server with the extension."""
    server = TaskServer("stateless", WORKING)
    monkeypatch.setattr(factory, "create_target", lambda *args: Tasks(server))
    settings.MCP = {
        "AUTH": "none",
        "CLIENTS": {"maps": {"URL": "https://maps.example/mcp"}},
        "SERVERS": {
            "default": {},
            ALIAS: {
                "EXTENSIONS": ["mcp_django.contrib.tasks.Tasks"],
                "STORED": False,
                "PROXIES": {"maps": {"PERMISSION": "any"}},
            },
        },
        "TASKS": {"BACKEND_OPTIONS": {"WSGI_THREAD": False}},
    }
    return server


async def start(client: TaskClient, clock: Clock) -> str:
    """The id of the task of a forwarded call."""
    created = await clock.advance_while(client.start("maps__survey"))
    assert created["taskId"] != "t1"
    return str(created["taskId"])


async def until(client: TaskClient, clock: Clock, id: str, status: str) -> dict[str, Any]:
    """The task once it has a status."""
    for _ in range(100):
        task = await client.get(id)
        if task["status"] == status:
            return task
        await clock.advance(1)
    raise AssertionError(f"the task is still {task['status']}")


async def test_a_forwarded_call_becomes_a_task_with_an_id_of_this_server(remote: TaskServer, clock: Clock) -> None:
    client = TaskClient(wiring.get_server(ALIAS))
    id = await start(client, clock)
    assert "t1" not in str(await client.get(id))
    with pytest.raises(InvalidParams):
        await client.get("t1")

    remote.states[:] = [COMPLETED]
    done = await until(client, clock, id, "completed")
    assert done["result"]["content"] == [{"type": "text", "text": "done"}]
    assert remote.count("tools/call") == 1


async def test_a_short_task_of_a_remote_is_a_plain_result(remote: TaskServer, clock: Clock, settings: Any) -> None:
    settings.MCP = settings.MCP | {"TASKS": settings.MCP["TASKS"] | {"GRACE": 3600}}  # more than threads can take
    remote.states[:] = [COMPLETED]
    client = TaskClient(wiring.get_server(ALIAS))
    assert await clock.advance_while(client.text("maps__survey"), 0.5) == "done"


async def test_the_task_of_a_forwarded_call_belongs_to_its_caller(remote: TaskServer, clock: Clock) -> None:
    client = TaskClient(wiring.get_server(ALIAS))
    id = await start(client, clock)
    stranger = TaskClient(wiring.get_server(ALIAS), principal=make_caller("bob"))
    for method in (stranger.get, stranger.cancel, stranger.update):
        with pytest.raises(InvalidParams):
            await method(id)
    assert remote.count("tasks/cancel") == 0
    await client.cancel(id)
    await clock.advance_until(lambda: remote.count("tasks/cancel"))


async def test_questions_of_a_remote_task_are_questions_of_the_task(remote: TaskServer, clock: Clock) -> None:
    client = TaskClient(wiring.get_server(ALIAS))
    id = await start(client, clock)
    remote.states[:] = [asks(a=FORM)]
    asked = await until(client, clock, id, "input_required")
    ((key, question),) = asked["inputRequests"].items()
    assert question["params"]["message"] == "maps: Your name?"

    remote.states[:] = [COMPLETED]
    await client.update(id, **{key: accept(name="Ada")})
    done = await until(client, clock, id, "completed")
    assert done["result"]["isError"] is False
    assert remote.responses == [{"a": {"action": "accept", "content": {"name": "Ada"}}}]
    assert remote.count("tools/call") == 1


async def test_a_client_of_the_handshake_era_requests_the_task(remote: TaskServer, clock: Clock) -> None:
    client = TaskClient(wiring.get_server(ALIAS), version=HANDSHAKE)
    (tool,) = (await client.request("tools/list"))["tools"]
    assert tool["execution"] == {"taskSupport": "optional"}
    call = client.request("tools/call", {"name": "maps__survey", "arguments": {}, "task": {}})
    created = (await clock.advance_while(call))["task"]
    remote.states[:] = [COMPLETED]
    waiting = asyncio.ensure_future(client.request("tasks/result", {"taskId": created["taskId"]}))
    await clock.advance_until(waiting.done)
    assert (await waiting)["content"] == [{"type": "text", "text": "done"}]
