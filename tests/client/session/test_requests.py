"""The operations of a client against servers in memory: the SDK's, and a scripted one."""

import asyncio
import datetime
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import MCPError
from mcp.server.mcpserver import Context, MCPServer

from mcp_django.client import CallError, CallTimeout, Client, InvalidAnswer, ToolNotFound
from mcp_django.client.session import requests, timing
from tests.client.script import ERAS, Memory, Script
from tests.support.clock import Clock

SCHEMA = {"type": "object"}
TEXT = [{"type": "text", "text": "3"}]
OUTPUT = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "FIRST_DELAY_SECONDS", 0.001)


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def shop() -> MCPServer:
    """Build a server of the SDK with one entry of each kind."""
    server = MCPServer("shop", instructions="Be quick")

    @server.tool()
    async def add(a: int, b: int, ctx: Context) -> int:
        await ctx.report_progress(1, 2, "half")
        return a + b

    @server.tool()
    async def fail() -> str:
        raise ValueError("broken")

    @server.resource("shop://hours")
    def hours() -> str:
        return "9-5"

    @server.resource("shop://{city}/hours")
    def hours_in(city: str) -> str:
        return f"9-5 in {city}"

    @server.prompt()
    def greet(name: str) -> str:
        return f"Greet {name}"

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> types.Completion:
        known = (context.arguments or {}) if context else {}
        return types.Completion(values=[f"{argument.name}={argument.value}", *known.values()])

    return server


SHOP = Memory(shop())


@pytest.fixture
def client(era: str) -> Client:
    return Client(SHOP, protocol_version=era)


async def test_everything_is_listed(client: Client) -> None:
    async with client:
        assert {tool.name for tool in await client.list_tools()} == {"add", "fail"}
        assert [str(resource.uri) for resource in await client.list_resources()] == ["shop://hours"]
        assert [t.uri_template for t in await client.list_resource_templates()] == ["shop://{city}/hours"]
        assert [prompt.name for prompt in await client.list_prompts()] == ["greet"]
        assert client.instructions == "Be quick"


async def test_every_operation_works(client: Client) -> None:
    async with client:
        result = await client.call_tool("add", {"a": 1, "b": 2})
        assert (result.is_error, result.structured_content) == (False, {"result": 3})
        read = await client.read_resource("shop://Oslo/hours")
        assert getattr(read.contents[0], "text", None) == "9-5 in Oslo"
        got = await client.get_prompt("greet", {"name": "Ada"})
        assert getattr(got.messages[0].content, "text", None) == "Greet Ada"
        ref = types.PromptReference(type="ref/prompt", name="greet")
        completion = await client.complete(ref, "name", "A", {"title": "Dr"})
        assert completion.values == ["name=A", "Dr"]
        await client.ping()


async def test_a_failing_tool_has_an_error_result(client: Client) -> None:
    async with client:
        assert (await client.call_tool("fail")).is_error


async def test_a_tool_that_is_not_there_is_not_found(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            for says in ["result", "error", "method"]:
                with subtests.test(says=says):
                    answers = {
                        "result": {"isError": True, "content": [{"type": "text", "text": "Unknown tool: nope"}]},
                        "error": MCPError(-32602, "Unknown tool: nope"),
                        "method": MCPError(-32601, "Tool nope not found"),
                    }
                    tools = {"tools": [{"name": "add", "inputSchema": SCHEMA}]}
                    async with Client(Script(era, tools_call=answers[says], tools_list=tools)) as client:
                        with pytest.raises(ToolNotFound, match="nope"):
                            await client.call_tool("nope")


async def test_wrong_arguments_of_a_tool_that_is_there_are_an_error_of_the_call(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            tools = {"tools": [{"name": "add", "inputSchema": SCHEMA}]}
            script = Script(era, tools_call=MCPError(-32602, "a is missing", {"a": 1}), tools_list=tools)
            async with Client(script) as client:
                with pytest.raises(CallError, match="a is missing") as caught:
                    await client.call_tool("add")
                assert (type(caught.value), caught.value.code, caught.value.data) == (CallError, -32602, {"a": 1})


async def test_arguments_may_have_any_json_form(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            script = Script(era, tools_call={"content": TEXT})
            async with Client(script) as client:
                await client.call_tool("at", {"day": datetime.date(2020, 1, 2)})
                assert script.received[-1][1]["arguments"] == {"day": "2020-01-02"}
                with pytest.raises(TypeError, match="no JSON form"):
                    await client.call_tool("at", {"day": object()})
                assert script.methods() == ["tools/call"]


# Lists


async def test_pages_are_followed(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):

            def page(params: dict[str, Any]) -> dict[str, Any]:
                number = int(params.get("cursor", "0"))
                following = {"nextCursor": str(number + 1)} if number < 3 else {}
                return {"prompts": [{"name": f"p{number}"}], **following}

            async with Client(Script(era, prompts_list=page)) as client:
                assert [prompt.name for prompt in await client.list_prompts()] == ["p0", "p1", "p2", "p3"]


async def test_pages_that_lead_in_a_circle_are_refused(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):

            def page(params: dict[str, Any]) -> dict[str, Any]:
                return {"prompts": [], "nextCursor": {"": "a", "a": "b", "b": "a"}[params.get("cursor", "")]}

            script = Script(era, prompts_list=page)
            async with Client(script) as client:
                with pytest.raises(InvalidAnswer, match="repeats a cursor"):
                    await client.list_prompts()
                assert len(script.methods()) == 3


async def test_pages_and_entries_are_bounded(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_LIST_PAGES", 5)
    monkeypatch.setattr(requests, "MAX_ENTRIES", 9)
    size = 1

    def page(params: dict[str, Any]) -> dict[str, Any]:
        number = int(params.get("cursor", "0"))
        return {"prompts": [{"name": "p"}] * size, "nextCursor": str(number + 1)}

    async with Client(Script(era, prompts_list=page)) as client:
        with pytest.raises(InvalidAnswer, match="more than 5 pages"):
            await client.list_prompts()
        size = 5
        with pytest.raises(InvalidAnswer, match="more than 9 entries"):
            await client.list_prompts()


# Answers that violate the protocol


async def test_an_invalid_answer_is_an_error_of_its_call_only(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            for nonsense in [{"content": 3}, {"content": [{"type": "text"}]}, {"isError": "no"}]:
                with subtests.test(nonsense=nonsense):
                    script = Script(era, tools_call=nonsense, prompts_list={"prompts": []})
                    async with Client(script) as client:
                        with pytest.raises(InvalidAnswer, match="violates the protocol"):
                            await client.call_tool("add")
                        assert await client.list_prompts() == []
                        assert script.opened == 1


async def test_invalid_entries_are_skipped_with_one_warning(
    caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    for method, member, good, listed in [
        ("tools_list", "tools", {"name": "a", "inputSchema": {"type": "object"}}, Client.list_tools),
        ("resources_list", "resources", {"name": "a", "uri": "a:b"}, Client.list_resources),
        (
            "resources_templates_list",
            "resourceTemplates",
            {"name": "a", "uriTemplate": "a:{b}"},
            Client.list_resource_templates,
        ),
        ("prompts_list", "prompts", {"name": "a"}, Client.list_prompts),
    ]:
        with subtests.test(method=method, member=member, good=good, listed=listed):
            script = Script(**{method: {member: [None, {**good, "name": 1}, good]}})
            async with Client(script) as client:
                for _ in range(2):
                    assert [entry.name for entry in await listed(client)] == ["a"]
            (record,) = [record for record in caplog.records if "Invalid list entries" in record.getMessage()]
            caplog.clear()
            assert "2 of 3" in record.getMessage()


async def test_structured_content_is_checked_by_the_schema_that_was_listed(era: str) -> None:
    tools = {"tools": [{"name": "add", "inputSchema": SCHEMA, "outputSchema": OUTPUT}]}
    answers: list[dict[str, Any]] = [
        {"content": TEXT, "structuredContent": {"result": "three"}},
        {"content": TEXT, "structuredContent": {"result": "three"}},
        {"content": TEXT},
        {"content": TEXT, "isError": True},
        {"content": TEXT, "structuredContent": {"result": 3}},
    ]
    script = Script(era, tools_list=tools, tools_call=lambda _: answers.pop(0))
    async with Client(script) as client:
        await client.call_tool("add")  # not listed yet
        await client.list_tools()
        for problem in ("result", "."):
            with pytest.raises(InvalidAnswer, match=problem):
                await client.call_tool("add")
        assert (await client.call_tool("add")).is_error
        assert (await client.call_tool("add")).structured_content == {"result": 3}


async def test_an_invalid_schema_does_not_affect_the_call(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            tools = {
                "tools": [
                    {"name": "add", "inputSchema": SCHEMA, "outputSchema": {"type": "object", "not": {"type": "void"}}}
                ]
            }
            script = Script(era, tools_list=tools, tools_call={"content": TEXT, "structuredContent": {}})
            async with Client(script) as client:
                await client.list_tools()
                assert (await client.call_tool("add")).structured_content == {}


async def test_the_text_of_an_error_is_cut_and_printable() -> None:
    script = Script(tools_call=MCPError(-32000, "\x1b[31m" + "x" * 9999))
    async with Client(script) as client:
        with pytest.raises(CallError) as caught:
            await client.call_tool("add")
    assert (len(str(caught.value)), str(caught.value).isprintable()) == (2000, True)


# Time


async def test_a_call_that_takes_too_long_is_cancelled_at_the_server(era: str, clock: Clock) -> None:
    script = Script(era, tools_call=lambda _: anyio.sleep_forever())
    async with Client(script, alias="slow") as client:
        call = asyncio.create_task(client.call_tool("add", timeout=10))
        await script.until(lambda: "tools/call" in script.methods())
        await clock.advance(10)
        with pytest.raises(CallTimeout, match=r"'slow' did not answer within 10 s"):
            await call
        await script.until(lambda: script.cancelled)
        assert client.is_connected


async def test_a_call_whose_task_is_cancelled_is_cancelled_at_the_server(era: str) -> None:
    script = Script(era, tools_call=lambda _: anyio.sleep_forever())
    async with Client(script) as client:
        call = asyncio.create_task(client.call_tool("add"))
        await script.until(lambda: "tools/call" in script.methods())
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await script.until(lambda: script.cancelled)


async def test_a_call_may_have_a_longer_timeout_or_none(clock: Clock) -> None:
    gate = asyncio.Event()

    async def slowly(params: dict[str, Any]) -> Any:
        await gate.wait()
        return {"content": TEXT}

    async with Client(Script(tools_call=slowly), timeout=50) as client:
        calls = [asyncio.create_task(client.call_tool("add", timeout=limit)) for limit in (None, 200, float("inf"))]
        await clock.advance(100)
        gate.set()
        given_up, longer, unlimited = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(given_up, CallTimeout)
    assert not isinstance(longer, BaseException)
    assert not isinstance(unlimited, BaseException)


# Rounds


async def test_a_server_that_requests_input_endlessly_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "FIRST_RETRY_DELAY_SECONDS", 0)
    script = Script("stateless", tools_call={"resultType": "input_required", "requestState": "again"})
    async with Client(script) as client:
        with pytest.raises(InvalidAnswer, match="more than 32 times"):
            await client.call_tool("add")
    assert script.received[-1][1]["requestState"] == "again"


async def test_a_server_that_requests_too_much_at_once_is_an_error() -> None:
    question = {"method": "roots/list", "params": {}}
    questions = {str(number): question for number in range(65)}
    script = Script("stateless", tools_call={"resultType": "input_required", "inputRequests": questions})
    async with Client(script, roots=[]) as client:
        with pytest.raises(InvalidAnswer, match="more than 64 input requests"):
            await client.call_tool("add")


# One raw round


async def test_an_exchange_returns_the_raw_result(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            answer = {"content": TEXT, "structuredContent": {"aB": None}, "_meta": {"x.y/z": 1}, "unknown": {"k": [1]}}
            script = Script(era, tools_call=answer)
            async with Client(script) as client:
                params = {"name": "add", "arguments": {"a": None}, "_meta": {"x.y/a": 1, "progressToken": "theirs"}}
                result = await client.exchange("tools/call", params, meta={"x.y/b": 2})
                assert {key: result[key] for key in answer} == answer
            sent = script.received[-1][1]
            assert (sent["name"], sent["arguments"]) == ("add", {"a": None})
            assert sent["_meta"].items() >= {"x.y/a": 1, "x.y/b": 2}.items()
            assert "progressToken" not in sent["_meta"], "no progress was requested"
            assert params["_meta"] == {"x.y/a": 1, "progressToken": "theirs"}, "what is given is not changed"


async def test_an_exchange_runs_no_callback() -> None:
    asked = {"resultType": "input_required", "requestState": "s", "inputRequests": {"q": {"method": "roots/list"}}}
    script = Script("stateless", tools_call=asked)
    async with Client(script, roots=[]) as client:
        result = await client.exchange("tools/call", {"name": "add", "arguments": {}})
        assert (result["resultType"], result["inputRequests"]["q"]["method"]) == ("input_required", "roots/list")
    assert script.methods() == ["tools/call"]


async def test_an_exchange_passes_errors_and_unknown_methods_on(subtests: pytest.Subtests) -> None:
    for era in ERAS:
        with subtests.test(era=era):
            script = Script(era, custom_thing={"a": 1})
            async with Client(script) as client:
                assert (await client.exchange("custom/thing", {"b": 2}))["a"] == 1
                with pytest.raises(CallError) as caught:
                    await client.exchange("custom/other")
                assert caught.value.code == -32601


# Arguments in headers (stateless era)


REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}


async def test_tools_are_listed_after_a_refusal_for_missing_headers() -> None:
    tools = {"tools": [{"name": "add", "inputSchema": REGION}]}

    def call(params: dict[str, Any]) -> Any:
        return {"content": TEXT} if "tools/list" in script.methods() else MCPError(-32020, "Header mismatch")

    script = Script("stateless", tools_list=tools, tools_call=call)
    async with Client(script) as client:
        assert not (await client.call_tool("add", {"region": "eu"})).is_error
    assert script.methods() == ["tools/call", "tools/list", "tools/call"]


async def test_a_tool_that_mirrors_a_forbidden_header_is_left_out() -> None:
    wrong = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "not a token"}}}
    tools = {"tools": [{"name": "wrong", "inputSchema": wrong}, {"name": "right", "inputSchema": REGION}]}
    async with Client(Script("stateless", tools_list=tools)) as client:
        assert [tool.name for tool in await client.list_tools()] == ["right"]
        listed = (await client.exchange("tools/list"))["tools"]
        assert [tool["name"] for tool in listed] == ["right"]
