"""Tasks of the stateless era: creation, status, results, questions, cancellation."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from mcp_django import wiring
from mcp_django.contrib.tasks.models import Task, TaskAttempt, TaskInput
from mcp_django.extensions import Call, Extension, ProceedWithCall, Tool
from mcp_django.protocol import meta
from mcp_django.protocol.errors import HeaderMismatch, InvalidParams, MethodNotFound, MissingClientCapability
from mcp_django.protocol.headers import Headers
from mcp_django.runtime.calls.observer import add_outcome_recorder, remove_outcome_recorder
from mcp_django.server.calls.call import Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.ports import Overloaded
from mcp_django.server.primitives.registry import get_registry
from tests.contrib.tasks.clients import DECLARED, IDENTIFIER, TaskClient, make_caller
from tests.contrib.tasks.conftest import ALIAS, Gate
from tests.server.client import HANDSHAKE, accept
from tests.support.clock import Clock

pytestmark = pytest.mark.django_db


class OuterRecorder(Extension):
    """Records the types of the results that it sees."""

    identifier = "com.example/outer-recorder"
    seen: list[str]

    def __init__(self) -> None:
        type(self).seen = []

    async def call_tool(
        self, call: Call, tool: Tool, arguments: dict[str, Any], proceed: ProceedWithCall
    ) -> Mapping[str, Any]:
        body = await proceed(call)
        self.seen.append(body.get("resultType", "complete"))
        return body


class InnerRecorder(OuterRecorder):
    identifier = "com.example/inner-recorder"


async def test_discovery_names_the_extension_and_no_core_tasks(client: TaskClient) -> None:  # TM-1, TM-7
    capabilities = (await client.request("server/discover"))["capabilities"]
    assert capabilities["extensions"] == {IDENTIFIER: {}}
    assert "tasks" not in capabilities
    entries = (await client.request("tools/list"))["tools"]
    assert not any("execution" in entry for entry in entries)


async def test_a_call_becomes_a_task_whose_result_is_that_of_the_call(client: TaskClient, gate: Gate) -> None:
    created = await client.start("wait", label="ready")  # TM-10, TM-11
    id = created["taskId"]
    assert created.keys() == {
        "resultType",
        "taskId",
        "status",
        "createdAt",
        "lastUpdatedAt",
        "ttlMs",
        "pollIntervalMs",
        "_meta",
    }
    assert (created["status"], created["ttlMs"], created["pollIntervalMs"]) == ("working", 3_600_000, 1000)
    assert len(id) == 32  # TM-14: 192 random bits

    working = await client.get(id)
    assert (working["resultType"], working["status"]) == ("complete", "working")
    gate.open()
    done = await client.until(id)
    assert done["status"] == "completed"
    assert done["result"]["content"] == [{"type": "text", "text": "ready"}]
    assert done["result"]["isError"] is False
    assert "io.modelcontextprotocol/related-task" not in str(done)  # TM-26
    assert gate.runs == ["ready"]


async def test_a_call_within_the_grace_gets_a_plain_result_without_a_row(client: TaskClient) -> None:  # TM-4
    assert await client.text("quick") == "quick"
    assert not await Task.objects.aexists()


async def test_a_call_beyond_the_grace_becomes_a_task(client: TaskClient, gate: Gate, clock: Clock) -> None:
    calling = asyncio.ensure_future(client.start("slow"))
    await clock.advance(1.5)
    created = await calling
    id = created["taskId"]

    gate.open()
    asked = await client.until(id, "input_required")
    (key,) = asked["inputRequests"]
    await client.update(id, **{key: accept(value=True)})
    done = await client.until(id)
    assert done["result"]["content"][0]["text"] == "accept: True"
    assert (gate.runs, gate.steps) == (["slow", "slow"], ["first"])  # the step ran once, before the row existed


async def test_questions_before_the_task_are_asked_first(client: TaskClient, gate: Gate, clock: Clock) -> None:
    asked = await client.call("introduce")  # TM-13
    assert asked["resultType"] == "input_required"
    assert not await Task.objects.aexists()

    answers = {key: accept(value="Alice") for key in asked["inputRequests"]}
    params = {"name": "introduce", "arguments": {}, "inputResponses": answers, "requestState": asked["requestState"]}
    calling = asyncio.ensure_future(client.request("tools/call", params))
    await clock.advance(1.5)
    created = await calling
    assert created["resultType"] == "task"
    assert "requestState" not in created
    gate.open()
    done = await client.until(created["taskId"])
    assert done["result"]["content"][0]["text"] == "Hello Alice"


async def test_only_a_declaring_request_gets_a_task(client: TaskClient, gate: Gate) -> None:  # TM-2, TM-3, TM-6
    gate.open()
    client.capabilities = {"tasks": {}}
    params = {"name": "wait", "arguments": {}, "task": {"ttl": 1000}}
    assert (await client.request("tools/call", params))["content"][0]["text"] == "done"
    with pytest.raises(MissingClientCapability) as refused:
        await client.call("export")
    assert refused.value.data["requiredCapabilities"]["extensions"] == {IDENTIFIER: {}}

    client.capabilities = DECLARED
    assert (await client.request("tools/call", {"name": "greet", "task": {}}))["content"][0]["text"] == "hello"


async def test_only_calls_of_tools_become_tasks(client: TaskClient) -> None:  # TM-5, TM-10
    @client.server.prompt
    def advise() -> str:
        """Advise."""
        return "Wait."

    @client.server.resource("notes://one")
    def note() -> str:
        """A note."""
        return "one"

    try:
        for method, params in (("prompts/get", {"name": "advise"}), ("resources/read", {"uri": "notes://one"})):
            assert (await client.request(method, {**params, "task": {"ttl": 1000}}))["resultType"] == "complete"
    finally:
        get_registry(ALIAS).remove("prompt", "advise")
        get_registry(ALIAS).remove("resource", "notes://one")
    assert not await Task.objects.aexists()


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_the_declaration_is_checked_before_the_id(client: TaskClient, method: str) -> None:  # TM-40, TM-23
    params = {"taskId": "unknown", "inputResponses": {}}
    with pytest.raises(InvalidParams, match="Unknown task"):
        await client.request(method, params)
    client.capabilities = {}
    for given in (params, {}):
        with pytest.raises(MissingClientCapability):
            await client.request(method, given)


@pytest.mark.parametrize("method", ["tasks/result", "tasks/list"])
async def test_core_methods_do_not_exist(client: TaskClient, method: str) -> None:  # TM-43
    with pytest.raises(MethodNotFound):
        await client.request(method, {"taskId": "x"})


async def test_the_name_header_must_match_and_may_be_absent(client: TaskClient, gate: Gate) -> None:  # TM-52
    gate.open()
    id = (await client.start("wait"))["taskId"]
    await client.until(id)
    envelope = {meta.PROTOCOL_VERSION: client.version, meta.CLIENT_CAPABILITIES: DECLARED}
    raw = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"taskId": id, "_meta": envelope}}
    routing = [(b"mcp-protocol-version", client.version.encode()), (b"mcp-method", b"tasks/get")]

    def send(*name: tuple[bytes, bytes]) -> Any:
        connection = Connection(client.principal, headers=Headers([*routing, *name]))
        return client.pipeline.handle(client.pipeline.stateless, raw, connection, Outbox())

    for accepted in ((), ((b"mcp-name", id.encode()),)):
        assert id.encode() in await send(*accepted).run
    with pytest.raises(HeaderMismatch):
        send((b"mcp-name", b"other"))


async def test_tool_errors_complete_and_protocol_errors_fail(client: TaskClient) -> None:  # TM-21, TM-22
    done = await client.until((await client.start("export", kind="tool"))["taskId"])
    assert (done["status"], done["result"]["isError"]) == ("completed", True)

    failed = await client.until((await client.start("export", kind="protocol"))["taskId"])
    assert (failed["status"], failed["error"]["message"]) == ("failed", "Refused")
    assert failed["error"]["data"] == {"why": "test"}
    assert failed["statusMessage"] == "Refused"
    assert "result" not in failed

    bug = await client.until((await client.start("export", kind="bug"))["taskId"])
    assert bug["result"]["isError"] is True
    assert "swordfish" not in str(bug)


async def test_a_large_error_is_stored_without_its_data(client: TaskClient, change: Any, gate: Gate) -> None:
    """A client would get it with each poll."""
    change(RESULT_BYTES=40)
    failed = await client.until((await client.start("export", kind="protocol"))["taskId"])
    assert failed["error"].keys() == {"code", "message"}
    assert failed["error"]["message"].startswith("Refused (shortened: the error has ")


async def test_a_question_is_answered_by_update(client: TaskClient, gate: Gate) -> None:  # TM-21, TM-30, TM-33
    id = (await client.start("confirm", name="a.txt"))["taskId"]
    asked = await client.until(id, "input_required")
    ((key, request),) = asked["inputRequests"].items()
    assert request["method"] == "elicitation/create"
    assert request["params"]["message"] == "Delete a.txt?"

    ack = await client.update(id, **{"unknown-key": accept(), key: accept(value=True)})
    assert ack.keys() == {"resultType", "_meta"}
    done = await client.until(id)
    assert done["result"]["content"][0]["text"] == "a.txt: accept True"
    assert (gate.runs, gate.steps) == (["a.txt", "a.txt"], ["a.txt"])
    assert [row.outcome async for row in TaskAttempt.objects.order_by("number")] == ["suspended", "finished"]

    await client.update(id, **{key: accept(value=False)})  # TM-31: terminal tasks acknowledge as well
    assert await client.get(id) == done


async def test_the_attempts_of_a_task_that_asks_are_one_conversation(client: TaskClient) -> None:
    found: list[tuple[str | None, list[str]]] = []

    def record(call: Call, *outcome: Any) -> None:
        if call.record.is_continued:
            found.append((call.record.conversation_id, [wait.cause for wait in call.record.waits]))

    add_outcome_recorder(record)
    try:
        id = (await client.start("confirm", name="a"))["taskId"]
        (key,) = (await client.until(id, "input_required"))["inputRequests"]
        await client.update(id, **{key: accept(value=True)})
        await client.until(id)
        await client.until((await client.start("export"))["taskId"])
    finally:
        remove_outcome_recorder(record)
    assert found == [(id, ["elicitation/create"]), (id, []), (None, [])]


async def test_several_questions_are_answered_one_by_one(client: TaskClient) -> None:  # TM-32, TM-35
    id = (await client.start("both"))["taskId"]
    asked = await client.until(id, "input_required")
    assert asked["inputRequests"].keys() == {"first", "second"}
    await client.update(id, first=accept(value="1"))
    rest = await client.get(id)
    assert (rest["status"], list(rest["inputRequests"])) == ("input_required", ["second"])
    await client.update(id, first=accept(value="again"), second=accept(value="2"))
    assert (await client.until(id))["result"]["content"][0]["text"] == "1 2"


async def test_a_malformed_answer_is_asked_again_under_a_new_key(client: TaskClient) -> None:  # TM-33, TM-36
    id = (await client.start("confirm", name="b"))["taskId"]
    (key,) = (await client.until(id, "input_required"))["inputRequests"]
    with pytest.raises(InvalidParams):
        await client.request("tasks/update", {"taskId": id, "inputResponses": {key: "yes"}})
    await client.update(id, **{key: accept(value="perhaps")})
    asked = await client.until(id, "input_required")
    (second,) = asked["inputRequests"]
    assert second != key
    await client.update(id, **{key: accept(value=True)})
    assert (await client.get(id))["status"] == "input_required"
    await client.update(id, **{second: {"action": "decline"}})
    assert (await client.until(id))["result"]["content"][0]["text"] == "b: decline None"


async def test_a_question_that_the_client_cannot_answer_fails(client: TaskClient) -> None:  # TM-34
    client.capabilities = {"extensions": {IDENTIFIER: {}}}
    failed = await client.until((await client.start("confirm", name="c"))["taskId"])
    assert (failed["status"], failed["error"]["code"]) == ("failed", -32021)


async def test_a_cancelled_task_has_no_result(client: TaskClient, gate: Gate) -> None:  # TM-20, TM-41
    id = (await client.start("wait"))["taskId"]
    await client.until(id, "working")
    for _ in range(2):
        assert (await client.cancel(id)).keys() == {"resultType", "_meta"}
    gate.open()
    cancelled = await client.until(id)
    assert cancelled["status"] == "cancelled"
    assert not cancelled.keys() & {"result", "error", "inputRequests"}


async def test_a_task_of_another_caller_is_unknown(client: TaskClient, gate: Gate) -> None:  # TM-14, TL-10
    id = (await client.start("wait"))["taskId"]
    server = wiring.get_server(ALIAS)
    strangers = [
        TaskClient(server, principal=make_caller("bob")),
        TaskClient(server, principal=make_caller("ada", "other")),
        TaskClient(server, principal=make_caller("")),
        TaskClient(server, kwargs={"tenant": "b"}),
    ]
    for stranger in strangers:
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            with pytest.raises(InvalidParams, match="Unknown task"):
                await stranger.request(method, {"taskId": id, "inputResponses": {}})
    assert (await client.get(id))["status"] == "working"
    await gate.close()


@pytest.mark.parametrize("id", ["", "x" * 33, "a\0b", "ä", "a b"])
async def test_hostile_ids_are_unknown(client: TaskClient, id: str) -> None:
    with pytest.raises(InvalidParams, match="Unknown task"):
        await client.get(id)


async def test_progress_becomes_the_status_message(client: TaskClient, gate: Gate) -> None:  # TM-51
    id = (await client.start("report"))["taskId"]
    while "statusMessage" not in (task := await client.get(id)):
        await asyncio.sleep(0)
    assert (task["status"], task["statusMessage"]) == ("working", "a quarter")
    row = await Task.objects.aget(pk=id)
    assert (row.progress, row.total) == (1, 4)
    gate.open()
    await client.until(id)
    assert client.received == []


async def test_limits_of_tasks(client: TaskClient, gate: Gate, change: Any) -> None:
    change(TASKS_PER_OWNER=1, ARGUMENT_BYTES=64, RESULT_BYTES=64)
    client = TaskClient(wiring.get_server(ALIAS))
    await client.start("wait")
    with pytest.raises(Overloaded, match="Too many"):
        await client.start("wait")
    await TaskClient(client.server, principal=make_caller("bob")).start("wait")
    with pytest.raises(InvalidParams, match="at most 64"):
        await client.call("wait", label="x" * 64)
    await gate.close()


async def test_an_expired_task_is_unknown(client: TaskClient, gate: Gate, clock: Clock) -> None:  # TM-23, TM-24
    id = (await client.start("confirm", name="a"))["taskId"]
    await client.until(id, "input_required")
    clock.move(3000)
    assert (await client.get(id))["status"] == "input_required"
    clock.move(700)
    with pytest.raises(InvalidParams, match="Unknown task"):
        await client.get(id)


async def test_the_user_is_loaded_again_and_permissions_are_decided_again(
    client: TaskClient, gate: Gate, django_user_model: Any
) -> None:
    user = await django_user_model.objects.acreate(username="ada", is_superuser=True)
    client = TaskClient(client.server, principal=make_caller(user=user))
    done = await client.until((await client.start("orders"))["taskId"])
    assert done["result"]["content"][0]["text"] == "ada"

    id = (await client.start("confirm", name="x"))["taskId"]
    (key,) = (await client.until(id, "input_required"))["inputRequests"]
    await django_user_model.objects.filter(pk=user.pk).aupdate(is_active=False)
    await client.update(id, **{key: accept(value=True)})
    failed = await client.until(id)
    assert failed["status"] == "failed"
    assert "not active" in failed["error"]["message"]
    assert await TaskInput.objects.acount() == 1


async def test_the_acting_user_is_in_every_attempt_and_its_end_stops_them(
    client: TaskClient, gate: Gate, django_user_model: Any
) -> None:
    operator = await django_user_model.objects.acreate(username="grace")
    user = await django_user_model.objects.acreate(username="ada", is_superuser=True)
    found: list[tuple[str, Any]] = []

    def record(call: Call, *outcome: Any) -> None:
        if call.record.is_continued:
            principal: Any = call.principal
            found.append((principal.user.username if principal.user else "", principal.actor))

    add_outcome_recorder(record)
    try:
        for caller in (make_caller(user=user, actor=operator), make_caller(actor=operator)):
            client = TaskClient(client.server, principal=caller)
            id = (await client.start("confirm", name="x"))["taskId"]
            (key,) = (await client.until(id, "input_required"))["inputRequests"]
            await client.update(id, **{key: accept(value=True)})
            assert (await client.until(id))["status"] == "completed"
        assert found == [("ada", operator)] * 2 + [("", operator)] * 2

        id = (await client.start("confirm", name="x"))["taskId"]
        (key,) = (await client.until(id, "input_required"))["inputRequests"]
        await django_user_model.objects.filter(pk=operator.pk).aupdate(is_active=False)
        await client.update(id, **{key: accept(value=True)})
        assert "not active" in (await client.until(id))["error"]["message"]
    finally:
        remove_outcome_recorder(record)


async def test_old_revisions_have_no_tasks(client: TaskClient, gate: Gate) -> None:  # TL-1
    old = TaskClient(client.server, version="2025-06-18")
    gate.open()
    assert (await old.call("wait"))["content"][0]["text"] == "done"
    for method in ("tasks/get", "tasks/list"):
        with pytest.raises(MethodNotFound):
            await old.request(method, {"taskId": "x"})
    assert old.version < HANDSHAKE


async def test_the_order_of_extensions_decides_which_of_them_see_a_task(
    gate: Gate, change: Callable[..., None]
) -> None:
    here = __name__
    change(
        {"EXTENSIONS": [f"{here}.OuterRecorder", "mcp_django.contrib.tasks.Tasks", f"{here}.InnerRecorder"]},
    )
    client = TaskClient(wiring.get_server(ALIAS))
    gate.open()
    assert (await client.until((await client.start("wait"))["taskId"]))["status"] == "completed"
    assert (OuterRecorder.seen, InnerRecorder.seen) == (["task"], [])  # The run itself is seen by neither.

    assert await client.text("quick") == "quick"
    assert (OuterRecorder.seen, InnerRecorder.seen) == (["task", "complete"], [])

    without = TaskClient(wiring.get_server(ALIAS), capabilities={})
    assert await without.text("quick") == "quick"
    assert (OuterRecorder.seen, InnerRecorder.seen) == (["task", "complete", "complete"], ["complete"])
