"""Core tasks of 2025-11-25: asked for by the client, read from the same rows."""

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from mcp_django import wiring
from mcp_django.contrib.tasks.core_questions import (
    CLAIM_SECONDS,
    EXTENSION_SECONDS,
    SESSION_STREAM_SECONDS,
    claim_questions,
)
from mcp_django.contrib.tasks.models import Task, TaskInput
from mcp_django.contrib.tasks.rows.wire import RELATED_TASK_KEY
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError, InvalidParams, MCPError, MethodNotFound, MissingClientCapability
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.runtime.streams.session_sink import PROBE_SECONDS
from mcp_django.runtime.streams.session_stream import SessionStream
from mcp_django.runtime.subscriptions import SessionEventSource
from mcp_django.server.calls.call import Connection
from tests.contrib.tasks.clients import TaskClient, make_caller
from tests.contrib.tasks.conftest import ALIAS, Gate
from tests.server.client import HANDSHAKE, accept
from tests.support.clock import Clock
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db
SESSION_PK = 7


class CoreClient(TaskClient):
    """A client of the handshake era, with a session."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("capabilities", {"elicitation": {"form": {}}, "sampling": {}})
        super().__init__(wiring.get_server(ALIAS), version=HANDSHAKE, **options)
        assert self.session is not None
        self.session.pk = SESSION_PK

    async def start(self, tool: str, **arguments: Any) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments, "task": {"ttl": 60_000}}
        task: dict[str, Any] = (await self.request("tools/call", params))["task"]
        return task

    async def result(self, id: str) -> dict[str, Any]:
        return await self.request("tasks/result", {"taskId": id})


@pytest.fixture
def core(gate: Gate) -> CoreClient:
    return CoreClient()


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tasks/result` reads the row again at once."""
    monkeypatch.setattr("mcp_django.contrib.tasks.core_results.CHECK_SECONDS", (0.0, 0.0))


async def test_the_session_declares_tasks_and_the_support_of_tools(core: CoreClient) -> None:  # TL-1, TL-2, TM-7
    capabilities = core.server.capabilities(REVISIONS[HANDSHAKE])
    assert capabilities["tasks"] == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    assert "extensions" not in capabilities
    entries = {entry["name"]: entry.get("execution") for entry in (await core.request("tools/list"))["tools"]}
    assert entries["wait"] == {"taskSupport": "optional"}
    assert entries["export"] == {"taskSupport": "required"}
    assert entries["greet"] is None


async def test_a_client_asks_for_a_task(core: CoreClient, gate: Gate, no_pause: None) -> None:  # TL-3, TL-4, TL-5
    task = await core.start("wait", label="ready")
    assert task.keys() == {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}
    assert (task["status"], task["ttl"]) == ("working", 60_000)
    assert (await core.get(task["taskId"]))["status"] == "working"

    waiting = asyncio.ensure_future(core.result(task["taskId"]))
    await asyncio.sleep(0)
    gate.open()
    result = await waiting
    assert result["content"] == [{"type": "text", "text": "ready"}]
    assert result["_meta"] == {RELATED_TASK_KEY: {"taskId": task["taskId"]}}  # TL-6
    assert await core.result(task["taskId"]) == result
    assert "resultType" not in result


async def test_without_task_the_call_is_plain_or_refused(core: CoreClient, gate: Gate) -> None:  # TL-2
    gate.open()
    assert await core.text("wait") == "done"
    with pytest.raises(MethodNotFound, match="runs as a task only"):
        await core.call("export")
    with pytest.raises(MethodNotFound, match="greet does not run as a task"):  # 2025-11-25, tool-level negotiation
        await core.request("tools/call", {"name": "greet", "arguments": {}, "task": {}})
    for task in ("now", {"ttl": 0}, {"ttl": "1"}):
        with pytest.raises(InvalidParams):
            await core.request("tools/call", {"name": "wait", "arguments": {}, "task": task})


async def test_errors_of_tools_and_of_the_protocol(core: CoreClient, no_pause: None) -> None:  # TL-5, TL-11
    id = (await core.start("export", kind="tool"))["taskId"]
    task = await core.until(id)
    assert (task["status"], task["statusMessage"]) == ("failed", "No such export")
    assert (await core.result(id))["isError"] is True

    id = (await core.start("export", kind="protocol"))["taskId"]
    assert (await core.until(id))["statusMessage"] == "Refused"
    with pytest.raises(MCPError, match="Refused") as refused:
        await core.result(id)
    assert refused.value.data == {"why": "test"}


async def test_questions_travel_on_the_stream_of_the_result(core: CoreClient, gate: Gate, no_pause: None) -> None:
    """TL-6, TL-7."""
    core.answer = lambda method, params: accept(value=True)
    id = (await core.start("confirm", name="a"))["taskId"]
    await core.until(id, "input_required")

    result = await core.result(id)
    assert result["content"][0]["text"] == "a: accept True"
    (asked,) = [message for message in core.received if "id" in message]
    assert asked["method"] == "elicitation/create"
    assert asked["params"]["_meta"] == {RELATED_TASK_KEY: {"taskId": id}}
    assert gate.steps == ["a"]


async def test_two_questions_are_asked_at_once(core: CoreClient, no_pause: None) -> None:
    core.answer = lambda method, params: accept(value=params["message"])
    id = (await core.start("both"))["taskId"]
    assert (await core.result(id))["content"][0]["text"] == "First? Second?"
    assert len([message for message in core.received if "id" in message]) == 2


async def test_a_refused_question_is_an_error_of_the_tool_once(core: CoreClient, no_pause: None) -> None:
    """Sampling, roots and elicitation alike: the client answers the request with a JSON-RPC error."""
    core.refusal = {"code": -1, "message": "User rejected sampling"}
    for tool in ("sample", "confirm"):
        core.received.clear()
        id = (await core.start(tool, **({"name": "a"} if tool == "confirm" else {})))["taskId"]
        result = await core.result(id)
        assert (result["isError"], result["content"][0]["text"]) == (True, "User rejected sampling")
        assert len([message for message in core.received if "id" in message]) == 1


async def test_a_question_in_a_transaction_is_not_asked(core: CoreClient, no_pause: None) -> None:
    """With `atomic=True`, or ATOMIC_REQUESTS: the tool needs `atomic=False` to ask."""
    text = (await core.result((await core.start("charge"))["taskId"]))["content"][0]["text"]
    assert text.startswith("A request to the client inside a transaction")
    assert not [message for message in core.received if "id" in message]


async def test_invalid_answers_end_the_call(core: CoreClient, no_pause: None) -> None:
    core.answer = lambda method, params: accept(value="perhaps")
    id = (await core.start("confirm", name="a"))["taskId"]
    text = (await core.result(id))["content"][0]["text"]
    assert text.startswith("The client gave no valid answer in 3 attempts")
    assert len([message for message in core.received if "id" in message]) == 3


async def test_a_question_reaches_a_client_that_polls_only(core: CoreClient, no_pause: None, clock: Clock) -> None:
    """The stream of the session carries it once, also when `tasks/result` is opened later."""
    assert core.session is not None
    publisher = wiring.get_services().event_publisher
    source = SessionEventSource(core.server, publisher=publisher, executor=core.server.ports.executor)
    stream = SessionStream(core.session, source, max_waiting=8)
    await stream.open(None, Connection(core.principal, session=core.session))
    id = (await core.start("confirm", name="a"))["taskId"]
    await core.until(id, "input_required")
    assert not stream.waiting

    await clock.advance(SESSION_STREAM_SECONDS + 1)
    await core.get(id)
    await eventually(lambda: any("elicitation/create" in str(message) for message in stream.waiting))
    await core.get(id)
    waiting = asyncio.ensure_future(core.result(id))
    asked = [jsonrpc.loads(item.message) for item in await stream.read(60) or ()]
    (question,) = [message for message in asked if "id" in message]
    assert question["params"]["_meta"] == {RELATED_TASK_KEY: {"taskId": id}}
    core.session.receive_response(jsonrpc.Response(question["id"], accept(value=True), None))

    result = await clock.advance_while(waiting)
    assert result["content"][0]["text"] == "a: accept True"
    assert not [message for message in core.received if "id" in message]
    stream.close()


async def test_without_a_stream_a_question_waits_for_the_result(core: CoreClient, no_pause: None, clock: Clock) -> None:
    id = (await core.start("confirm", name="a"))["taskId"]
    await core.until(id, "input_required")
    await clock.advance(SESSION_STREAM_SECONDS + 1)
    await core.get(id)
    await clock.advance(PROBE_SECONDS + 1)
    core.answer = lambda method, params: accept(value=True)
    assert (await clock.advance_while(core.result(id)))["content"][0]["text"] == "a: accept True"


async def test_a_question_on_a_dead_session_stream_is_asked_elsewhere(
    core: CoreClient, no_pause: None, clock: Clock
) -> None:
    assert core.session is not None
    publisher = wiring.get_services().event_publisher
    source = SessionEventSource(core.server, publisher=publisher, executor=core.server.ports.executor)
    stream = SessionStream(core.session, source, max_waiting=8)
    await stream.open(None, Connection(core.principal, session=core.session))
    id = (await core.start("confirm", name="a"))["taskId"]
    await core.until(id, "input_required")
    await clock.advance(SESSION_STREAM_SECONDS + 1)
    await core.get(id)
    await eventually(lambda: any("elicitation/create" in str(message) for message in stream.waiting))
    stream.close()

    core.answer = lambda method, params: accept(value=True)
    asked = clock.monotonic()
    assert (await clock.advance_while(core.result(id)))["content"][0]["text"] == "a: accept True"
    assert clock.monotonic() - asked < 120  # without the check of the stream, the request waits for ten minutes


async def test_a_question_of_a_killed_process_is_asked_again(core: CoreClient, no_pause: None, clock: Clock) -> None:
    id = (await core.start("confirm", name="a"))["taskId"]
    await core.until(id, "input_required")
    assert len(await sync_to_async(claim_questions)(id)) == 1
    core.answer = lambda method, params: accept(value=True)
    waiting = asyncio.ensure_future(core.result(id))
    await clock.advance(CLAIM_SECONDS - 5)
    assert not core.received
    await clock.advance_until(waiting.done)
    assert (await waiting)["content"][0]["text"] == "a: accept True"


async def test_a_question_is_sent_once_while_its_process_waits(core: CoreClient, no_pause: None, clock: Clock) -> None:
    id = (await core.start("confirm", name="a"))["taskId"]
    await core.until(id, "input_required")
    first, second = (asyncio.ensure_future(core.result(id)) for _ in range(2))
    await clock.advance_until(lambda: core.received)
    for _ in range(6):
        before = (await TaskInput.objects.aget()).asked
        await clock.advance(EXTENSION_SECONDS)
        while (await TaskInput.objects.aget()).asked == before:
            await asyncio.sleep(0)
    assert len([message for message in core.received if "id" in message]) == 1
    await core.cancel(id)
    for waiting in (first, second):
        with pytest.raises(InternalError):
            await clock.advance_while(waiting)


async def test_a_lost_stream_leaves_its_question_open(core: CoreClient, no_pause: None) -> None:
    id = (await core.start("confirm", name="a"))["taskId"]
    await core.until(id, "input_required")
    waiting = asyncio.ensure_future(core.result(id))
    while not core.received:
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    while await TaskInput.objects.exclude(asked=None).aexists():
        await asyncio.sleep(0)
    core.answer = lambda method, params: {"action": "decline"}
    assert (await core.result(id))["content"][0]["text"] == "a: decline None"


async def test_cancellation_is_final(core: CoreClient, gate: Gate, no_pause: None) -> None:  # TL-5, TL-8
    id = (await core.start("wait"))["taskId"]
    waiting = asyncio.ensure_future(core.result(id))
    await core.get(id)
    assert (await core.cancel(id))["status"] == "cancelled"
    with pytest.raises(InternalError, match="was cancelled"):
        await waiting
    with pytest.raises(InvalidParams, match="ended already"):
        await core.cancel(id)
    gate.open()
    assert (await core.until(id))["status"] == "cancelled"


async def test_the_list_has_the_tasks_of_the_caller(
    core: CoreClient, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:  # TL-9, TL-10
    monkeypatch.setattr("mcp_django.contrib.tasks.extension.PAGE_ROWS", 2)
    gate.open()
    ids = [(await core.start("wait"))["taskId"] for _ in range(3)]
    first = await core.request("tasks/list")
    second = await core.request("tasks/list", {"cursor": first["nextCursor"]})
    assert [task["taskId"] for task in (*first["tasks"], *second["tasks"])] == ids
    assert "nextCursor" not in second
    with pytest.raises(InvalidParams):
        await core.request("tasks/list", {"cursor": "x"})

    other = CoreClient(principal=make_caller("bob"))
    assert await other.request("tasks/list") == {"tasks": []}
    with pytest.raises(InvalidParams, match="Unknown task"):
        await other.request("tasks/result", {"taskId": ids[0]})
    for id in ids:
        await core.until(id)


async def test_anonymous_sessions_do_not_see_each_others_tasks(core: CoreClient, gate: Gate) -> None:
    gate.open()
    one, two = (CoreClient(principal=make_caller("")) for _ in range(2))
    assert two.session is not None
    two.session.pk = SESSION_PK + 1
    id = (await one.start("wait"))["taskId"]
    assert [task["taskId"] for task in (await one.request("tasks/list"))["tasks"]] == [id]
    assert await two.request("tasks/list") == {"tasks": []}
    with pytest.raises(InvalidParams, match="Unknown task"):
        await two.get(id)
    await one.until(id)


async def test_the_era_of_the_request_decides(core: CoreClient, gate: Gate) -> None:  # TM-8
    """A session reads and cancels the tasks that it made; a stateless request needs the extension for the same rows."""
    id = (await core.start("wait"))["taskId"]
    stateless = TaskClient(core.server, capabilities={"tasks": {"cancel": {}}})
    for method in ("tasks/get", "tasks/cancel"):
        with pytest.raises(MissingClientCapability):
            await stateless.request(method, {"taskId": id})
    assert (await core.get(id))["status"] == "working"
    assert (await core.cancel(id))["status"] == "cancelled"


async def test_questions_are_plain_requests_to_clients_with_tasks_of_their_own(
    core: CoreClient, no_pause: None
) -> None:  # TL-15
    core.capabilities["tasks"] = {"requests": {"elicitation": {"create": {}}, "sampling": {"createMessage": {}}}}
    core.answer = lambda method, params: accept(value=True)
    id = (await core.start("confirm", name="a"))["taskId"]
    await core.result(id)
    (asked,) = [message for message in core.received if "id" in message]
    assert "task" not in asked["params"]


async def test_update_does_not_exist(core: CoreClient) -> None:
    with pytest.raises(MethodNotFound):
        await core.request("tasks/update", {"taskId": "x", "inputResponses": {}})


async def test_the_session_is_notified_of_each_status(
    core: CoreClient, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:  # TL-12
    sent: list[tuple[int, str, str]] = []
    monkeypatch.setattr(
        "mcp_django.contrib.tasks.publishing.notify_session",
        lambda session, method, params: sent.append((session, method, params["status"])),
    )
    id = (await core.start("confirm", name="a"))["taskId"]
    while not sent:
        await core.get(id)
    await core.cancel(id)
    method = "notifications/tasks/status"
    assert sent == [(SESSION_PK, method, "input_required"), (SESSION_PK, method, "cancelled")]


async def test_progress_of_the_call_belongs_to_the_task(
    core: CoreClient, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:  # TL-6, TL-12
    sent: list[dict[str, Any]] = []

    def note(session: int, method: str, params: dict[str, Any]) -> None:
        if method == "notifications/progress":
            sent.append(params)

    monkeypatch.setattr("mcp_django.contrib.tasks.publishing.notify_session", note)
    params = {"name": "report", "arguments": {}, "task": {}, "_meta": {"progressToken": "t"}}
    id = (await core.request("tools/call", params))["task"]["taskId"]
    while not sent:
        await core.get(id)
    related = {RELATED_TASK_KEY: {"taskId": id}}
    assert sent == [{"progressToken": "t", "progress": 1, "total": 4, "message": "a quarter", "_meta": related}]
    gate.open()
    await core.until(id)
    assert RELATED_TASK_KEY not in str(await core.get(id))


async def test_a_core_task_of_another_caller_is_unknown(core: CoreClient, gate: Gate) -> None:  # TL-10
    id = (await core.start("wait"))["taskId"]
    for caller in (make_caller("bob"), make_caller("ada", "other"), make_caller("")):
        stranger = CoreClient(principal=caller)
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            with pytest.raises(InvalidParams, match="Unknown task"):
                await stranger.request(method, {"taskId": id})
        assert await stranger.request("tasks/list") == {"tasks": []}
    await gate.close()


async def test_notifications_cancel_no_task(core: CoreClient, client: TaskClient, gate: Gate) -> None:  # TM-42, TL-8
    for each in (core, client):
        id = (await each.start("wait"))["taskId"]
        for request in (1, id):
            await each.notify("notifications/cancelled", {"requestId": request})
        assert (await each.get(id))["status"] == "working"
    gate.open()
    for task in [task async for task in Task.objects.all()]:
        await (core if task.origin == "core" else client).until(task.pk)
    assert gate.runs == ["done", "done"]


async def test_a_followed_task_is_published_to_listeners(
    client: TaskClient, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:  # TM-50
    sent: list[tuple[str, str, str]] = []
    monkeypatch.setattr(
        "mcp_django.contrib.tasks.publishing.notify_extension_key",
        lambda field, key, server: sent.append((field, key, server)),
    )
    id = (await client.start("confirm", name="a"))["taskId"]
    await client.until(id, "input_required")
    await Task.objects.filter(pk=id).aupdate(is_followed=True)
    await client.cancel(id)
    assert sent == [("taskIds", id, ALIAS)]
