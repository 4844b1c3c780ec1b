"""Requests of a server to the client, and the callbacks that answer them, in both eras."""

import asyncio
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest

from mcp_django.client import CallError, CallTimeout, Client
from mcp_django.client.options import TASKS_EXTENSION
from mcp_django.client.session import callbacks
from tests.client.script import ERAS, Script
from tests.support.clock import Clock

TEXT = [{"type": "text", "text": "done"}]
FORM = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Your name?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    },
}
PAGE = {
    "method": "elicitation/create",
    "params": {"mode": "url", "message": "Pay", "url": "https://example.com/pay", "elicitationId": "e1"},
}
SAMPLE = {
    "method": "sampling/createMessage",
    "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 10},
}
ROOTS: dict[str, Any] = {"method": "roots/list", "params": {}}
ANSWERS = types.CreateMessageResult(role="assistant", content=types.TextContent(type="text", text="Hello"), model="m")


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def build_asking_server(era: str, *questions: dict[str, Any]) -> tuple[Script, list[Any]]:
    """Build a server whose tool sends all these requests at once, and the list of its answers."""
    answers: list[Any] = []

    async def in_the_handshake_era(params: dict[str, Any]) -> dict[str, Any]:
        answers.extend([await script.request(question["method"], question["params"]) for question in questions])
        return {"content": TEXT}

    def in_the_stateless_era(params: dict[str, Any]) -> dict[str, Any]:
        if "inputResponses" in params:
            assert params["requestState"] == "state"
            answers.extend(params["inputResponses"][str(number)] for number in range(len(questions)))
            return {"content": TEXT}
        asked = {str(number): question for number, question in enumerate(questions)}
        for question in asked.values():
            question["params"].pop("elicitationId", None)
        return {"resultType": "input_required", "inputRequests": asked, "requestState": "state"}

    script = Script(era, tools_call=in_the_handshake_era if era == "handshake" else in_the_stateless_era)
    return script, answers


async def test_requests_are_answered_by_the_callbacks_of_the_project(era: str) -> None:
    asked: list[Any] = []

    async def sample(params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        asked.append(params.max_tokens)
        return ANSWERS

    def elicit(params: types.ElicitRequestParams) -> Any:
        asked.append(params.message)
        return {"name": "Ada"} if isinstance(params, types.ElicitRequestFormParams) else None

    script, answers = build_asking_server(era, SAMPLE, FORM, PAGE, ROOTS)
    roots = [Path("/srv"), "file:///tmp", types.Root.model_validate({"uri": "file:///x", "name": "X"})]
    async with Client(script, sampling=sample, elicitation=elicit, roots=roots) as client:
        assert (await client.call_tool("ask")).content[0].model_dump()["text"] == "done"
    assert asked == [10, "Your name?", "Pay"]
    assert answers[0]["content"]["text"] == "Hello"
    assert answers[1:] == [
        {"action": "accept", "content": {"name": "Ada"}},
        {"action": "decline"},
        {"roots": [{"uri": "file:///srv", "name": "srv"}, {"uri": "file:///tmp"}, {"uri": "file:///x", "name": "X"}]},
    ]


async def test_a_callback_may_return_the_complete_answer(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):

            async def elicit(params: types.ElicitRequestParams) -> types.ElicitResult:
                return types.ElicitResult(action="cancel")

            async def roots() -> list[str]:
                return ["file:///now"]

            script, answers = build_asking_server(era, FORM, ROOTS)
            async with Client(script, elicitation=elicit, roots=roots) as client:
                await client.call_tool("ask")
            assert answers == [{"action": "cancel"}, {"roots": [{"uri": "file:///now"}]}]


async def test_a_request_without_a_callback_is_refused(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            for question in [SAMPLE, FORM, ROOTS]:
                with subtests.test(question=question):
                    script, answers = build_asking_server(era, question)
                    async with Client(script) as client:
                        if era == "stateless":
                            with pytest.raises(CallError, match="This client does not support"):
                                await client.call_tool("ask")
                            assert script.methods() == ["tools/call"]
                        else:
                            await client.call_tool("ask")
                            assert answers[0].code == -32600


async def test_the_error_text_of_a_failing_callback_is_not_sent(caplog: Any, subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            for question in [SAMPLE, FORM, ROOTS]:
                with subtests.test(question=question):

                    def fail(*_: Any) -> Any:
                        raise RuntimeError("hunter2")

                    script, answers = build_asking_server(era, question)
                    async with Client(script, sampling=fail, elicitation=fail, roots=fail) as client:
                        if era == "stateless":
                            with pytest.raises(CallError, match="failed to handle") as caught:
                                await client.call_tool("ask")
                            told = str(caught.value)
                        else:
                            await client.call_tool("ask")
                            told = answers[0].message
                    assert told == "The client failed to handle the request"
                    assert "hunter2" in caplog.text
                    caplog.clear()


async def test_roots_that_are_no_file_uris_are_not_sent(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            script, answers = build_asking_server(era, ROOTS)
            async with Client(script, roots=["https://example.com"]) as client:
                if era == "stateless":
                    with pytest.raises(CallError):
                        await client.call_tool("ask")
                else:
                    await client.call_tool("ask")
                    assert answers[0].code == -32603


def declared(script: Script) -> dict[str, Any]:
    """Return the capabilities that the client declared last."""
    for method, params in reversed(script.received):
        if method == "initialize":
            return dict(params["capabilities"])
        if script.era == "stateless":
            capabilities = dict(params["_meta"][types.CLIENT_CAPABILITIES_META_KEY])
            extensions = dict(capabilities.pop("extensions"))
            assert extensions.pop(TASKS_EXTENSION) == {}
            return {**capabilities, "extensions": extensions} if extensions else capabilities
    raise AssertionError("nothing was declared")


async def test_the_callbacks_decide_the_declared_capabilities(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            script = Script(era)
            async with Client(script):
                assert declared(script) == {}
            everything: Any = {"sampling": lambda _: ANSWERS, "elicitation": lambda _: None, "roots": []}
            async with Client(script, **everything, sampling_tools=True, extensions={"com.example/x": {"a": 1}}):
                assert declared(script) == {
                    "sampling": {"tools": {}},
                    "elicitation": {"form": {}, "url": {}},
                    "roots": {"listChanged": True},
                    "extensions": {"com.example/x": {"a": 1}},
                }


async def test_callbacks_may_be_set_and_removed(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            script, answers = build_asking_server(era, ROOTS)
            client = Client(script)
            client.on_sampling(lambda _: ANSWERS)
            client.on_elicitation(lambda _: None)
            forget = client.on_roots(["file:///a"])
            async with client:
                assert set(declared(script)) == {"sampling", "elicitation", "roots"}
                await client.call_tool("ask")
                client.on_roots(["file:///b"])
                forget()  # nothing comes from a replaced callback
                await client.call_tool("ask")
                assert [answer["roots"][0]["uri"] for answer in answers] == ["file:///a", "file:///b"]


async def test_a_change_of_roots_is_notified_in_the_handshake_era(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            script = Script(era)
            async with Client(script, roots=[]) as client:
                await client.notify_roots_changed()
                await client.ping()
            told = "notifications/roots/list_changed" in script.methods()
            assert told is (era == "handshake")


async def test_the_time_of_a_callback_does_not_count_for_the_timeout(clock: Clock, subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            gate = asyncio.Event()

            async def think(params: types.ElicitRequestParams, gate: asyncio.Event = gate) -> dict[str, str]:
                await gate.wait()
                return {"name": "Ada"}

            script, answers = build_asking_server(era, FORM)
            async with Client(script, elicitation=think, timeout=15) as client:
                call = asyncio.create_task(client.call_tool("ask"))
                await clock.advance(16)
                assert not call.done()
                gate.set()
                await call
                assert answers


async def test_the_timeout_runs_again_after_the_answer(clock: Clock) -> None:
    async def ask_and_hang(params: dict[str, Any]) -> None:
        await script.request(FORM["method"], FORM["params"])
        await anyio.sleep_forever()

    script = Script(tools_call=ask_and_hang)
    async with Client(script, elicitation=lambda _: None, timeout=10) as client:
        call = asyncio.create_task(client.call_tool("ask"))
        await clock.advance(10)
        with pytest.raises(CallTimeout):
            await call


async def test_too_many_requests_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "MAX_CONCURRENT_CALLBACKS", 3)
    go_on, asked = asyncio.Event(), list[Any]()

    async def think(params: Any) -> None:
        asked.append(params)
        if len(asked) == 3:
            script.wake()
        await go_on.wait()

    script = Script()
    async with Client(script, elicitation=think):
        questions = [asyncio.create_task(script.request(FORM["method"], FORM["params"])) for _ in range(5)]
        await asyncio.wait(questions, return_when=asyncio.FIRST_COMPLETED)
        await script.until(lambda: len(asked) == 3)
        go_on.set()
        answers = await asyncio.gather(*questions)
    assert [getattr(answer, "code", None) for answer in answers] == [None, None, None, -32600, -32600]
