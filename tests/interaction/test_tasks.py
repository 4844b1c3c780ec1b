"""Tasks over every transport that can carry them, in both eras."""

import asyncio
from typing import Any

import pytest

from tests.interaction import jobs
from tests.interaction.test_subscriptions_listen import ID, acknowledged, change, disconnect, listen
from tests.interaction.transports import contract, contract_with_headers, on_http

pytestmark = pytest.mark.django_db
IDENTIFIER = "io.modelcontextprotocol/tasks"
DECLARED: dict[str, Any] = {"elicitation": {"form": {}}, "extensions": {IDENTIFIER: {}}}
POLLS = 500


@pytest.fixture(autouse=True)
def _on_the_loop_of_the_test(settings: Any) -> None:
    """Run attempts on the loop of the test, over every transport."""
    settings.MCP = {**settings.MCP, "TASKS": {"BACKEND_OPTIONS": {"WSGI_THREAD": False}}}


async def until(client: Any, id: str, *statuses: str) -> dict[str, Any]:
    for _ in range(POLLS):
        task = (await client.request("tasks/get", {"taskId": id})).result
        if task["status"] in statuses:
            return dict(task)
        await asyncio.sleep(0)
    raise AssertionError(f"the task is still {task['status']}")


async def start(client: Any, tool: str, **arguments: Any) -> str:
    reply = await client.tool(tool, arguments)
    assert reply.result["resultType"] == "task", reply.message
    return str(reply.result["taskId"])


@contract
async def test_a_task_asks_and_ends_over_every_transport(modern):
    client = modern(server=jobs.SERVER, capabilities=DECLARED)
    id = await start(client, "confirm", name="a")
    (key,) = (await until(client, id, "input_required"))["inputRequests"]
    answer = {"action": "accept", "content": {"value": True}}
    ack = await client.request("tasks/update", {"taskId": id, "inputResponses": {key: answer}})
    assert ack.result.keys() <= {"resultType", "_meta"}
    done = await until(client, id, "completed")
    assert done["result"]["content"][0]["text"].startswith("a: accept True, by ")


@contract_with_headers
async def test_a_subscriber_gets_the_same_as_a_poll(modern):  # TM-50, TM-51
    client = modern(server=jobs.SERVER, capabilities=DECLARED)
    id = await start(client, "confirm", name="a")
    await until(client, id, "input_required")
    exchange = listen(client, taskIds=[id, "unknown"])
    assert await acknowledged(exchange) == {"taskIds": [id]}

    await client.request("tasks/cancel", {"taskId": id})
    await change("extension", {"field": "taskIds", "key": id}, jobs.SERVER)
    message = await exchange.message()
    assert message["method"] == "notifications/tasks"
    assert message["params"].pop("_meta").keys() == {ID}
    polled = await until(client, id, "cancelled")
    assert message["params"] == {name: value for name, value in polled.items() if name not in ("resultType", "_meta")}
    await disconnect(exchange)


@on_http
async def test_another_caller_can_neither_read_nor_subscribe_to_a_task(modern):
    client = modern(server=jobs.SERVER, capabilities=DECLARED)
    id = await start(client, "confirm", name="a")
    other = modern(server=jobs.SERVER, capabilities=DECLARED, token="bob")
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        reply = await other.request(method, {"taskId": id, "inputResponses": {}})
        assert reply.refused(400, -32602)
    exchange = listen(other, taskIds=[id])
    assert await acknowledged(exchange) == {}
    await disconnect(exchange)
    await client.request("tasks/cancel", {"taskId": id})


@on_http
async def test_a_task_belongs_to_the_user_with_the_client_and_not_to_the_token(settings, modern):
    settings.MCP = {**settings.MCP, "AUTH": "tests.interaction.verifiers.Clients"}
    id = await start(modern(server=jobs.SERVER, capabilities=DECLARED, token="ann.app.1"), "confirm", name="a")
    for stranger in ("ben.app.1", "ann.other.1"):
        other = modern(server=jobs.SERVER, capabilities=DECLARED, token=stranger)
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            assert (await other.request(method, {"taskId": id, "inputResponses": {}})).refused(400, -32602)
    refreshed = modern(server=jobs.SERVER, capabilities=DECLARED, token="ann.app.2")
    assert (await refreshed.request("tasks/get", {"taskId": id})).result["taskId"] == id
    await refreshed.request("tasks/cancel", {"taskId": id})


@on_http
async def test_a_revoked_token_cannot_read_tasks(settings, monkeypatch, modern):
    known = ["alice", "bob"]
    monkeypatch.setattr("tests.interaction.verifiers.KNOWN", known)
    settings.MCP = {**settings.MCP, "TOKEN_CACHE_SECONDS": 0}
    client = modern(server=jobs.SERVER, capabilities=DECLARED, token="alice")
    id = await start(client, "confirm", name="a")
    known.remove("alice")
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        assert (await client.request(method, {"taskId": id, "inputResponses": {}})).status == 401
    known.append("alice")
    await client.request("tasks/cancel", {"taskId": id})


@on_http
async def test_listening_needs_the_declaration(modern):
    client = modern(server=jobs.SERVER, capabilities={})
    reply = await client.request("subscriptions/listen", {"notifications": {"taskIds": ["x"]}})
    assert reply.refused(400, -32021)
    assert (await client.tool("confirm", {"name": "a"})).message["error"][
        "code"
    ] == -32021  # the question, not the task


@on_http
async def test_a_plain_function_runs_in_a_task_of_its_tenant(modern):
    client = modern(server=jobs.SERVER, capabilities=DECLARED)
    done = await until(client, await start(client, "tenant"), "completed")
    assert done["result"]["content"][0]["text"] == "{}"
    assert done["statusMessage"] == "found"


@contract
async def test_core_tasks_over_every_transport(latest_legacy):
    client = await latest_legacy(server=jobs.SERVER, capabilities={"elicitation": {"form": {}}})
    params = {"name": "confirm", "arguments": {"name": "a"}, "task": {"ttl": 60_000}}
    task = (await client.request("tools/call", params)).result["task"]
    await until(client, task["taskId"], "input_required")
    listed = (await client.request("tasks/list")).result["tasks"]
    assert [one["taskId"] for one in listed] == [task["taskId"]]

    answer = {"action": "accept", "content": {"value": True}}
    reply = await client.converse("tasks/result", {"taskId": task["taskId"]}, lambda method, params: answer)
    assert reply.result["content"][0]["text"].startswith("a: accept True, by ")
    assert reply.result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task["taskId"]}
