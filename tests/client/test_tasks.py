"""Calls that servers answer with a task: awaited to the end, or as a handle, in both eras."""

import asyncio
from collections.abc import Callable
from typing import Any

import mcp_types as types
import pytest
from mcp import MCPError

from mcp_django.client import (
    Bridge,
    CallError,
    CallTimeout,
    Client,
    ClientConnectionError,
    InvalidAnswer,
    StreamableHTTP,
    TaskCancelled,
    TaskNotFound,
    ToolNotFound,
)
from mcp_django.client.options import TASKS_EXTENSION
from mcp_django.client.tasks import task_polling
from tests.client.listeners import Exchange, exchanges, listening
from tests.client.script import ERAS, Script
from tests.client.task_server import COMPLETED, FORM, TEXT, WORKING, TaskServer, asks
from tests.support.clock import Clock

CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def text_of(result: types.CallToolResult) -> str:
    return str(getattr(result.content[0], "text", None))


# The declaration


async def test_tasks_are_declared_in_each_request_of_the_stateless_era() -> None:
    script = Script("stateless", tools_call={"content": TEXT}, tools_list={"tools": []})
    async with Client(script, extensions={"com.example/x": {}}) as client:
        await client.call_tool("survey")
        await client.list_tools()
    for method, params in script.received:
        if method in ("tools/call", "tools/list"):
            assert params["_meta"][CAPABILITIES]["extensions"] == {TASKS_EXTENSION: {}, "com.example/x": {}}


async def test_the_extension_is_not_declared_in_a_handshake() -> None:
    script = Script("handshake")
    async with Client(script, protocol_version="handshake"):
        pass
    (params,) = [params for method, params in script.received if method == "initialize"]
    assert "extensions" not in params["capabilities"]


async def test_requests_for_a_task_name_it_in_a_header() -> None:
    names: dict[str, str | None] = {}

    async def answer(exchange: Exchange) -> None:
        method = exchange.message["method"]
        names[method] = exchange.headers.get("mcp-name")
        if method == "server/discover":
            await exchange.result(**Script("stateless")._greeting(method, {}))
        else:
            await exchange.result(resultType="complete", **TaskServer("stateless").task())

    async with listening(exchanges(answer)) as port:
        target = StreamableHTTP(f"http://127.0.0.1:{port}/mcp", environment_proxies=False)
        async with Client(target) as client:
            task = client.get_task("t1")
            await task.get_status()
            await task.cancel()
    assert names == {"server/discover": None, "tasks/get": "t1", "tasks/cancel": "t1"}


# A call that waits


async def test_a_call_follows_its_task_to_the_result(era: str, clock: Clock) -> None:
    server = TaskServer(era, WORKING, WORKING, COMPLETED)
    async with Client(server.script) as client:
        result = await clock.advance_while(client.call_tool("survey", {"a": 1}))
    assert text_of(result) == "done"
    assert (server.count("tasks/get"), server.count("tasks/cancel")) == (3, 0)
    assert server.sent("tasks/get")["taskId"] == "t1"


async def test_a_direct_result_needs_no_poll(era: str) -> None:
    script = Script(era, tools_call={"content": TEXT})
    async with Client(script) as client:
        assert text_of(await client.call_tool("survey")) == "done"
    assert script.methods() == ["tools/call"]


async def test_a_failed_task_is_the_error_of_the_call(era: str, clock: Clock) -> None:
    server = TaskServer(era, {"status": "failed", "error": {"code": -32001, "message": "broken", "data": {"a": 1}}})
    server.result = MCPError(-32001, "broken", {"a": 1})
    async with Client(server.script) as client:
        with pytest.raises(CallError, match="broken") as caught:
            await clock.advance_while(client.call_tool("survey"))
    assert (caught.value.code, caught.value.data) == (-32001, {"a": 1})


async def test_a_failed_tool_is_a_result(era: str, clock: Clock) -> None:
    failed = {"content": TEXT, "isError": True}
    status = "completed" if era == "stateless" else "failed"
    server = TaskServer(era, {"status": status, "result": failed})
    server.result = failed
    async with Client(server.script) as client:
        assert (await clock.advance_while(client.call_tool("survey"))).is_error


async def test_a_cancelled_task_is_an_error_of_its_own(era: str, clock: Clock) -> None:
    server = TaskServer(era, {"status": "cancelled"})
    async with Client(server.script) as client:
        with pytest.raises(TaskCancelled, match="cancelled"):
            await clock.advance_while(client.call_tool("survey"))


async def test_the_result_of_a_task_is_checked_like_any_other(era: str, clock: Clock) -> None:
    for invalid in [{"content": 3}, {"content": [{"type": "text"}]}, {"resultType": "input_required"}]:
        server = TaskServer(era, {"status": "completed", "result": invalid})
        server.result = invalid
        async with Client(server.script) as client:
            with pytest.raises(InvalidAnswer):
                await clock.advance_while(client.call_tool("survey"))


async def test_messages_of_a_task_are_progress(era: str, clock: Clock) -> None:
    steps: list[Any] = []
    server = TaskServer(
        era, {"statusMessage": "half"}, {"statusMessage": "half"}, {"statusMessage": "nearly"}, COMPLETED
    )
    async with Client(server.script) as client:
        client.on_progress(lambda progress: steps.append((progress.name, progress.message)))
        await clock.advance_while(client.call_tool("survey", on_progress=lambda *step: steps.append(step)))
    assert steps == [(1.0, None, "half"), ("survey", "half"), (2.0, None, "nearly"), ("survey", "nearly")]


@pytest.mark.parametrize(("suggested", "seconds"), [(None, 1), (5000, 5), (1, 0.1), (10**9, 60)])
async def test_the_suggested_interval_is_kept_within_bounds(
    era: str, suggested: int | None, seconds: float, clock: Clock
) -> None:
    server = TaskServer(era, COMPLETED, support="optional", poll=suggested)
    async with Client(server.script) as client:
        task = await client.call_tool_task("survey")
        waiting = asyncio.create_task(task.wait())
        await clock.advance(seconds * 0.9)
        assert server.count("tasks/get") == 0
        await clock.advance(seconds * 0.2)
        assert await waiting == "completed"


# Time, cancellation and outages


async def test_the_timeout_of_a_call_includes_its_task_and_cancels_it(era: str, clock: Clock) -> None:
    server = TaskServer(era, WORKING)
    async with Client(server.script, alias="slow") as client:
        with pytest.raises(CallTimeout, match="'slow' did not answer within 10 s"):
            await clock.advance_while(client.call_tool("survey", timeout=10))
    assert server.count("tasks/cancel") == 1


async def test_the_timeout_of_the_client_is_that_of_one_request(era: str, clock: Clock) -> None:
    server = TaskServer(era, *[WORKING] * 30, COMPLETED)
    async with Client(server.script, timeout=10) as client:
        assert text_of(await clock.advance_while(client.call_tool("survey"))) == "done"


async def test_a_cancelled_caller_cancels_the_task(era: str, clock: Clock) -> None:
    server = TaskServer(era, WORKING)
    async with Client(server.script) as client:
        call = asyncio.create_task(client.call_tool("survey"))
        await clock.advance_until(lambda: server.count("tasks/get"))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert server.sent("tasks/cancel")["taskId"] == "t1"


async def test_a_task_outlives_a_broken_connection(era: str, clock: Clock) -> None:
    server = TaskServer(era, WORKING, COMPLETED)
    async with Client(server.script) as client:
        call = asyncio.create_task(client.call_tool("survey"))
        await clock.advance_until(lambda: server.count("tasks/get"))
        server.script.refusals += [OSError()] * 10
        server.script.hang_up()
        assert text_of(await clock.advance_while(call)) == "done"  # type: ignore[arg-type]
    assert server.script.opened >= 12
    assert server.count("tools/call") == (1 if era == "stateless" else 2), "the call is not repeated"


async def test_a_server_that_does_not_return_ends_the_wait(era: str, clock: Clock) -> None:
    server = TaskServer(era, WORKING)
    async with Client(server.script) as client:
        call = asyncio.create_task(client.call_tool("survey"))
        await clock.advance_until(lambda: server.count("tasks/get"))
        server.script.refusals += [OSError()] * 1000
        server.script.hang_up()
        with pytest.raises(ClientConnectionError, match="cannot be reached"):
            await clock.advance_while(call, 10)  # type: ignore[arg-type]


async def test_a_closed_client_ends_the_wait_at_once(era: str, clock: Clock) -> None:
    server = TaskServer(era, WORKING)
    client = Client(server.script)
    call = asyncio.create_task(client.call_tool("survey"))
    await clock.advance_until(lambda: server.count("tasks/get"))
    await client.close()
    with pytest.raises(ClientConnectionError):
        await clock.advance_while(call)  # type: ignore[arg-type]


async def test_an_expired_task_is_not_waited_for(era: str, clock: Clock) -> None:
    server = TaskServer(era, WORKING)
    server.ttl = 10_000
    async with Client(server.script) as client:
        with pytest.raises(TaskNotFound, match="time to live"):
            await clock.advance_while(client.call_tool("survey"))
        assert 9 <= server.count("tasks/get") <= 12


async def test_a_task_that_the_server_has_deleted_is_not_found(era: str, clock: Clock) -> None:
    server = TaskServer(era, WORKING, MCPError(-32602, "Unknown task"))
    async with Client(server.script) as client:
        with pytest.raises(TaskNotFound, match="unknown to the server, or has expired"):
            await clock.advance_while(client.call_tool("survey"))


async def test_a_task_without_end_is_not_waited_for_without_end(
    era: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_polling, "MAX_WAIT_SECONDS", 100.0)
    server = TaskServer(era, WORKING)
    async with Client(server.script) as client:
        with pytest.raises(CallTimeout, match="within 100 s"):
            await clock.advance_while(client.call_tool("survey"), 10)
    assert server.count("tasks/cancel") == 1


# Questions


async def test_questions_of_a_task_are_answered_once(clock: Clock) -> None:
    asked: list[str] = []

    def elicit(params: types.ElicitRequestParams) -> dict[str, Any]:
        asked.append(params.message)
        return {"name": "Ada"}

    server = TaskServer("stateless", asks(a=FORM), asks(a=FORM, b=FORM), asks(b=FORM), COMPLETED)
    async with Client(server.script, elicitation=elicit) as client:
        assert text_of(await clock.advance_while(client.call_tool("survey"))) == "done"
    answer = {"action": "accept", "content": {"name": "Ada"}}
    assert server.responses == [{"a": answer}, {"b": answer}]
    assert len(asked) == 2


async def test_questions_of_a_handshake_task_are_answered_while_its_result_is_requested(clock: Clock) -> None:
    answers: list[Any] = []
    server = TaskServer("handshake", asks(), asks(), COMPLETED)

    async def ask_then_finish(params: dict[str, Any]) -> dict[str, Any]:
        answers.append(await server.script.request(FORM["method"], FORM["params"]))  # type: ignore[arg-type]
        return {"content": TEXT}

    server.result = ask_then_finish
    async with Client(server.script, elicitation=lambda params: {"name": "Ada"}) as client:
        assert text_of(await clock.advance_while(client.call_tool("survey"))) == "done"
    assert answers[0]["content"] == {"name": "Ada"}
    assert server.count("tasks/result") == 1


async def test_the_time_of_a_callback_does_not_count(clock: Clock) -> None:
    asked, typed = asyncio.Event(), asyncio.Event()

    async def elicit(params: types.ElicitRequestParams) -> dict[str, Any]:
        asked.set()
        await typed.wait()
        return {"name": "Ada"}

    server = TaskServer("stateless", asks(a=FORM), COMPLETED)
    async with Client(server.script, elicitation=elicit) as client:
        call = asyncio.create_task(client.call_tool("survey", timeout=10))
        await clock.advance_until(asked.is_set)
        await clock.advance(100)
        typed.set()
        assert text_of(await clock.advance_while(call)) == "done"  # type: ignore[arg-type]


async def test_a_request_that_the_client_cannot_answer_fails_the_call(clock: Clock) -> None:
    server = TaskServer("stateless", asks(a=FORM))
    async with Client(server.script) as client:
        with pytest.raises(CallError, match="does not support elicitation"):
            await clock.advance_while(client.call_tool("survey"))
    assert server.count("tasks/cancel") == 1


def _ask_endlessly() -> list[dict[str, Any]]:
    return [asks(**{f"{number}": FORM}) for number in range(300)]


def _ask_under_one_key() -> list[dict[str, Any]]:
    other = {**FORM, "params": {**FORM["params"], "message": "Your age?"}}  # type: ignore[dict-item]
    return [asks(a=FORM), asks(a=other)]


@pytest.mark.parametrize(
    ("build", "reason"),
    [(_ask_endlessly, "more than 256 questions"), (_ask_under_one_key, "under the same key")],
)
async def test_hostile_questions_end_the_call(
    build: Callable[[], list[dict[str, Any]]], reason: str, clock: Clock
) -> None:
    server = TaskServer("stateless", *build())
    async with Client(server.script, elicitation=lambda params: {"name": "Ada"}) as client:
        with pytest.raises(InvalidAnswer, match=reason):
            await clock.advance_while(client.call_tool("survey"), 10)
    assert server.count("tasks/cancel") == 1


@pytest.mark.parametrize(
    "state",
    [
        {"taskId": "t2"},
        {"taskId": None},
        {"status": "paused"},
        {"status": ["working"]},
        {"statusMessage": {}},
        {"createdAt": "yesterday"},
        {"lastUpdatedAt": 3},
        {"poll": "soon"},
        {"poll": -1},
        {"poll": True},
    ],
)
async def test_an_invalid_state_ends_the_call(era: str, state: dict[str, Any], clock: Clock) -> None:
    server = TaskServer(era, state)
    async with Client(server.script) as client:
        with pytest.raises(InvalidAnswer, match="The server sent"):
            await clock.advance_while(client.call_tool("survey"))


@pytest.mark.parametrize(
    "state",
    [
        {"status": "input_required", "inputRequests": []},
        {"status": "input_required", "inputRequests": {"a": {"method": "tools/call"}}},
        {"status": "completed", "result": [1]},
        {"status": "completed"},
        {"status": "failed", "error": {"code": "no", "message": "x"}},
        {"status": "failed"},
    ],
)
async def test_an_incomplete_state_of_the_extension_ends_the_call(state: dict[str, Any], clock: Clock) -> None:
    server = TaskServer("stateless", state)
    async with Client(server.script) as client:
        with pytest.raises(InvalidAnswer):
            await clock.advance_while(client.call_tool("survey"))


@pytest.mark.parametrize("id", ["", 7, "x" * 1025])
async def test_a_task_without_a_valid_id_is_refused(era: str, id: Any) -> None:
    server = TaskServer(era, WORKING, taskId=id)
    async with Client(server.script) as client:
        with pytest.raises(InvalidAnswer, match="without a valid id"):
            await client.call_tool("survey")


# A handle


async def test_a_handle_does_not_wait(era: str, clock: Clock) -> None:
    server = TaskServer(era, WORKING, {"statusMessage": "half"}, COMPLETED)
    async with Client(server.script) as client:
        task = await client.call_tool_task("survey", {"a": 1}, ttl=60)
        assert (task.id, task.status, server.count("tasks/get")) == ("t1", "working", 0)
        assert await task.get_status() == "working"
        assert await task.get_status() == "working"
        assert task.state is not None
        assert task.state.message == "half"
        assert await clock.advance_while(task.wait()) == "completed"
        assert text_of(await task.get_result()) == text_of(await task.get_result()) == "done"
        polls = server.count("tasks/get")
        assert await task.get_status() == "completed"
        assert server.count("tasks/get") == polls, "the status of an ended task is final"
    assert server.sent("tools/call").get("task") == ({"ttl": 60_000} if era == "handshake" else None)


async def test_a_handle_is_restored_from_its_id(era: str, clock: Clock) -> None:
    server = TaskServer(era, WORKING, COMPLETED)
    async with Client(server.script) as client:
        task = client.get_task("t1", "survey")
        assert (task.id, task.status) == ("t1", None)
        assert text_of(await clock.advance_while(task.get_result())) == "done"
    assert server.count("tools/call") == 0


async def test_an_unknown_task_is_not_found(era: str) -> None:
    server = TaskServer(era, MCPError(-32602, "Unknown task"))
    async with Client(server.script) as client:
        with pytest.raises(TaskNotFound):
            await client.get_task("t1").get_status()
        for id in ("", "x" * 1025):
            with pytest.raises(ValueError, match="1 to 1024 characters"):
                client.get_task(id)


async def test_a_handle_is_cancelled(era: str, clock: Clock) -> None:
    server = TaskServer(era, WORKING)
    async with Client(server.script) as client:
        task = await client.call_tool_task("survey")
        await task.cancel()
        assert await task.get_status() == "cancelled"
        with pytest.raises(TaskCancelled):
            await task.get_result()
        await task.cancel()
    assert server.count("tasks/cancel") == 1


async def test_a_wait_that_times_out_leaves_the_task_alone(era: str, clock: Clock) -> None:
    server = TaskServer(era, *[WORKING] * 8, COMPLETED)
    async with Client(server.script) as client:
        task = await client.call_tool_task("survey")
        with pytest.raises(CallTimeout):
            await clock.advance_while(task.wait(timeout=3))
        assert await clock.advance_while(task.wait()) == "completed"
    assert server.count("tasks/cancel") == 0


async def test_two_waiters_run_a_callback_once(clock: Clock) -> None:
    server = TaskServer("stateless", asks(a=FORM), WORKING, COMPLETED)
    asked: list[str] = []
    typed = asyncio.Event()

    async def elicit(params: types.ElicitRequestParams) -> dict[str, Any]:
        asked.append(params.message)
        await typed.wait()
        return {"name": "Ada"}

    async with Client(server.script, elicitation=elicit) as client:
        task = await client.call_tool_task("survey")
        both = asyncio.gather(task.get_result(), task.wait())
        await clock.advance(10)
        typed.set()
        result, status = await clock.advance_while(both)  # type: ignore[arg-type]
    assert (text_of(result), status, len(asked)) == ("done", "completed", 1)


async def test_a_direct_result_is_a_handle_without_an_id(era: str) -> None:
    script = Script(era, tools_call={"content": TEXT}, tools_list={"tools": []})
    async with Client(script) as client:
        task = await client.call_tool_task("survey")
        assert (task.id, task.state, task.status, await task.get_status()) == (None, None, "completed", "completed")
        assert await task.wait() == "completed"
        await task.cancel()
        assert text_of(await task.get_result()) == "done"


def test_a_blocking_client_has_blocking_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_polling, "MAX_POLL_SECONDS", 0.001)
    monkeypatch.setattr(task_polling, "MIN_POLL_SECONDS", 0.0)
    server = TaskServer("stateless", WORKING, WORKING, COMPLETED)
    with Client(server.script).blocking() as client:
        task = client.call_tool_task("survey")
        assert (task.id, task.status) == ("t1", "working")
        assert task.state is not None
        assert task.get_status() == "working"
        assert text_of(task.get_result()) == "done"
        restored = client.get_task("t1")
        assert (restored.wait(), restored.get_status()) == ("completed", "completed")
        restored.cancel()


async def test_a_bridge_follows_and_holds_tasks(clock: Clock) -> None:
    server = TaskServer("stateless", WORKING, COMPLETED)
    async with Bridge({"maps": Client(server.script)}) as bridge:
        assert text_of(await clock.advance_while(bridge.call("maps__survey"))) == "done"
        task = await bridge.call_task("maps__survey")
        assert task.id == "t1"
        restored = bridge.client("maps").get_task("t1", "survey")
        assert text_of(await clock.advance_while(restored.get_result())) == "done"
        with pytest.raises(ToolNotFound):
            await bridge.call_task("maps__nope")


def test_a_blocking_bridge_has_blocking_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_polling, "MAX_POLL_SECONDS", 0.001)
    monkeypatch.setattr(task_polling, "MIN_POLL_SECONDS", 0.0)
    server = TaskServer("stateless", COMPLETED)
    with Bridge({"maps": Client(server.script)}).blocking() as bridge:
        assert text_of(bridge.call_task("maps__survey").get_result()) == "done"


@pytest.mark.parametrize(("support", "is_task"), [("forbidden", False), ("optional", True), ("required", True)])
async def test_tools_of_the_handshake_era_decide_whether_they_are_tasks(support: str, is_task: bool) -> None:
    server = TaskServer("handshake", WORKING, support=support)
    async with Client(server.script) as client:
        task = await client.call_tool_task("survey")
        assert (task.id is not None) is is_task


async def test_an_optional_task_of_the_handshake_era_is_called_without_one() -> None:
    server = TaskServer("handshake", WORKING, support="optional")
    async with Client(server.script) as client:
        await client.list_tools()
        assert text_of(await client.call_tool("survey")) == "done"
    assert server.count("tasks/get") == 0


async def test_tasks_are_not_requested_of_older_revisions() -> None:
    server = TaskServer("handshake", WORKING, support="optional")
    async with Client(server.script, protocol_version="2025-06-18") as client:
        assert (await client.call_tool_task("survey")).id is None
    assert "task" not in server.sent("tools/call")
