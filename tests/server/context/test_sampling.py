"""Sampling of the client's model: tools, values, and steps that a replayed handler does not repeat."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from typing_extensions import TypedDict

from mcp_django import Context, ToolError, Toolset, tool
from mcp_django.observability import current_call
from mcp_django.protocol.errors import MissingClientCapability
from mcp_django.providers import Provider
from mcp_django.server.execution import sampling_tools
from mcp_django.server.options import ConversationLimits
from mcp_django.server.primitives.decorators import build_tool
from mcp_django.types import ImageContent, SamplingMessage, ToolResultContent, ToolUseContent
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, accept, make_principal, make_server
from tests.support.clock import Clock

ERAS = [HANDSHAKE, STATELESS]
CAPABLE: dict[str, Any] = {"sampling": {"tools": {}, "context": {}}, "elicitation": {}}
PNG = b"\x89PNG\r\n\x1a\n"
WEATHER = {"name": "weather", "description": "The weather", "inputSchema": {"type": "object", "properties": {}}}
Line = str | list[dict[str, Any]] | dict[str, Any]


def use(name: str, id: str = "u1", **arguments: Any) -> dict[str, Any]:
    """A tool use of the model."""
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


class Model:
    """A model with a script: a text, blocks, or a whole result for each time that it is asked; a person beside it."""

    def __init__(self, *script: Line) -> None:
        self.lines = list(script)
        self.asked: list[dict[str, Any]] = []
        self.consents = [True]
        """What the person says; the last one for good."""

    def __call__(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "elicitation/create":
            return accept(value=self.consents.pop(0) if len(self.consents) > 1 else self.consents[0])
        self.asked.append(params)
        line = self.lines.pop(0)
        if isinstance(line, dict):
            return line
        content = {"type": "text", "text": line} if isinstance(line, str) else line
        return {"role": "assistant", "content": content, "model": "m1", "stopReason": "endTurn"}

    @property
    def results(self) -> list[dict[str, Any]]:
        """The tool results in the last question."""
        content = self.asked[-1]["messages"][-1]["content"]
        return content if isinstance(content, list) else [content]


def make_sampling_client(handler: Any, model: Model, version: str = STATELESS, **given: Any) -> PipelineClient:
    """A peer of a server whose tool `ask` is this handler, with a model behind it."""
    server = make_server(
        options={"conversation_limits": given.pop("limits", ConversationLimits())}, providers=given.pop("providers", ())
    )
    server.tool(handler, name="ask")
    return PipelineClient(server, version=version, answer=model, **{"capabilities": CAPABLE, **given})


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def subtract(a: int, b: int) -> int:
    """Take one number from another."""
    return a - b


def parse_result(result: dict[str, Any]) -> tuple[str, bool]:
    (block,) = result["content"]
    return block["text"], result.get("isError", False)


@pytest.mark.parametrize("version", ERAS)
async def test_a_function_that_the_model_uses_is_run_and_its_result_sent_back(version: str) -> None:
    async def handler(ctx: Context) -> str:
        return (await ctx.sample("2 and 3?", tools=[add])).text

    model = Model([use("add", a=2, b=3)], "five")
    assert await make_sampling_client(handler, model, version).text("ask") == "five"
    first, second = model.asked
    (tool,) = first["tools"]
    assert (tool["name"], tool["description"]) == ("add", "Add two numbers.")
    assert set(tool["inputSchema"]["properties"]) == {"a", "b"}
    assert "outputSchema" not in tool
    assert second["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "2 and 3?"}},
        {"role": "assistant", "content": use("add", a=2, b=3)},
        {
            "role": "user",
            "content": {"type": "tool_result", "toolUseId": "u1", "content": [{"type": "text", "text": "5"}]},
        },
    ]


async def test_tools_that_ran_in_one_round_do_not_run_again_in_the_next() -> None:
    runs: list[str] = []

    def book(room: str) -> str:
        runs.append(room)
        return f"booked {room}"

    async def handler(ctx: Context) -> str:
        runs.append("handler")
        said = await ctx.sample("Book", tools=[book])
        await ctx.elicit("Is that right?", bool)
        return said.text

    model = Model([use("book", "a", room="1"), use("book", "b", room="2")], [use("book", room="3")], "done")
    peer = make_sampling_client(handler, model)
    assert await peer.text("ask") == "done"
    assert peer.rounds == 4
    assert runs == ["handler", "handler", "1", "2", "handler", "3", "handler", "handler"]


@pytest.mark.parametrize("version", ERAS)
async def test_the_same_sample_twice_runs_its_tools_twice(version: str) -> None:
    rolled: list[int] = []

    def roll() -> int:
        rolled.append(1)
        return len(rolled)

    async def handler(ctx: Context) -> str:
        return " ".join([(await ctx.sample("Roll", tools=[roll])).text for _ in range(2)])

    model = Model([use("roll")], "one", [use("roll")], "two")
    assert await make_sampling_client(handler, model, version).text("ask") == "one two"
    assert rolled == [1, 1]


@pytest.mark.parametrize("version", ERAS)
async def test_a_tool_of_the_loop_may_ask_a_question_of_its_own(version: str) -> None:
    done: list[str] = []

    async def pay(amount: int, ctx: Context) -> str:
        await ctx.run_once("reserve", lambda: done.append(f"reserve {amount}"))
        if (await ctx.elicit("Pay?", bool, key="sure")).data:
            done.append(f"pay {amount}")
        return "paid"

    async def handler(ctx: Context) -> str:
        return (await ctx.sample("Pay", tools=[pay])).text

    model = Model([use("pay", "a", amount=1), use("pay", "b", amount=2)], "thanks")
    model.consents = [True, False]
    assert await make_sampling_client(handler, model, version).text("ask") == "thanks"
    assert done == ["reserve 1", "pay 1", "reserve 2"]


@pytest.mark.parametrize("version", ERAS)
async def test_a_tool_of_the_loop_may_take_a_durable_step(version: str) -> None:
    done: list[int] = []

    async def pay(amount: int, ctx: Context) -> str:
        await ctx.run_once("pay", lambda: done.append(amount), durable=True)
        return f"paid {amount}"

    async def handler(ctx: Context) -> str:
        return (await ctx.sample("Pay", tools=[pay])).text

    model = Model([use("pay", "a", amount=1), use("pay", "b", amount=2)], "thanks")
    assert await make_sampling_client(handler, model, version).text("ask") == "thanks"
    assert [parse_result(result)[0] for result in model.results] == ["paid 1", "paid 2"]
    assert done == [1, 2]


async def test_a_tool_that_suppresses_its_question_has_no_result_before_the_answer() -> None:
    async def swallow(ctx: Context) -> str:
        try:
            return f"answered {(await ctx.elicit('Sure?', bool)).data}"
        except BaseException:
            return "swallowed"

    async def handler(ctx: Context) -> str:
        return (await ctx.sample("Go", tools=[swallow])).text

    model = Model([use("swallow")], "done")
    await make_sampling_client(handler, model).text("ask")
    assert parse_result(model.results[0]) == ("answered True", False)


@pytest.mark.parametrize("version", ERAS)
async def test_failures_of_a_tool_are_sent_to_the_model(version: str) -> None:
    async def fail(how: str) -> None:
        raise ToolError("No luck") if how == "politely" else RuntimeError("secret")

    async def handler(ctx: Context) -> str:
        return (await ctx.sample("Go", tools=[fail])).text

    for arguments, name, reason in [
        ({"how": "politely"}, "fail", "No luck"),
        ({"how": "badly"}, "fail", "Internal error"),
        ({}, "fail", "missing argument 'how'"),
        ({}, "nothing", "Unknown tool: nothing"),
    ]:
        model = Model([use(name, **arguments)], "sorry")
        assert await make_sampling_client(handler, model, version).text("ask") == "sorry"
        text, failed = parse_result(model.results[0])
        assert failed, arguments
        assert text.startswith(reason)
        assert "secret" not in text


async def test_a_tool_over_its_timeout_fails_alone(clock: Clock) -> None:
    server = make_server()

    @server.tool(timeout=2)
    async def slow() -> None:
        await asyncio.Event().wait()

    @server.tool
    async def ask(ctx: Context) -> str:
        said = await ctx.sample("Go", tools=[slow])
        await ctx.info("still speaking")
        return said.text

    model = Model([use("slow")], "too slow")
    peer = PipelineClient(server, version=HANDSHAKE, answer=model, capabilities=CAPABLE, log_level="info")
    assert peer.session is not None
    peer.session.log_level = "info"
    asking = asyncio.ensure_future(peer.text("ask"))
    await clock.advance(2)
    assert await asking == "too slow"
    assert "took longer than 2 seconds" in parse_result(model.results[0])[0]
    assert peer.received[-1]["params"]["data"] == "still speaking"


async def test_failures_in_a_tool_of_the_loop_do_not_affect_the_call() -> None:
    fates: list[Any] = []

    async def fail(ctx: Context) -> None:
        await ctx.report_progress(5, 10)
        raise RuntimeError("secret")

    async def handler(ctx: Context) -> str:
        await ctx.report_progress(1, 10)
        said = await ctx.sample("Go", tools=[fail])
        call = current_call()
        assert call is not None
        fates.append((call.record.failure, call.record.reference, call.record.cancelled))
        return said.text

    peer = make_sampling_client(handler, Model([use("fail")], "done"), HANDSHAKE)
    await peer.request("tools/call", {"name": "ask", "_meta": {"progressToken": "p"}})
    parse_result = [
        message["params"]["progress"] for message in peer.received if message["method"] == "notifications/progress"
    ]
    assert (fates, parse_result) == ([(None, None, False)], [1])


# Permissions


def guarded() -> tuple[Any, Callable[[Context], Any]]:
    server = make_server()

    @server.tool(permission="shop.refund")
    def refund() -> str:
        """Give money back."""
        return "refunded"

    @server.tool
    def look() -> str:
        """Look at it."""
        return "seen"

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.sample("Go", tools=["refund", look])).text

    return server, refund


@pytest.mark.parametrize("version", ERAS)
async def test_a_tool_that_the_caller_may_not_use_is_unknown_to_its_model(version: str) -> None:
    server, _ = guarded()
    model = Model([use("refund")], "no")
    await PipelineClient(server, make_principal(), version=version, answer=model, capabilities=CAPABLE).text("ask")
    assert [tool["name"] for tool in model.asked[0]["tools"]] == ["look"]
    assert parse_result(model.results[0]) == ("Unknown tool: refund", True)


@pytest.mark.parametrize("version", ERAS)
async def test_a_tool_that_the_caller_may_use_is_available_to_its_model(version: str) -> None:
    server, _ = guarded()
    model = Model([use("refund", "a"), use("look", "b")], "done")
    await PipelineClient(
        server, make_principal("shop.refund"), version=version, answer=model, capabilities=CAPABLE
    ).text("ask")
    assert [tool["name"] for tool in model.asked[0]["tools"]] == ["refund", "look"]
    assert [parse_result(result) for result in model.results] == [("refunded", False), ("seen", False)]


async def test_the_function_of_a_registered_tool_keeps_its_permission() -> None:
    server, refund = guarded()

    @server.tool
    async def by_function(ctx: Context) -> str:
        return (await ctx.sample("Go", tools=[refund])).text

    model = Model("nothing to use")
    await PipelineClient(server, make_principal(), answer=model, capabilities=CAPABLE).text("by_function")
    assert "tools" not in model.asked[0]


async def test_hooks_apply_to_a_tool_that_the_model_uses() -> None:
    server, seen = make_server(), []

    async def around(ctx: Context, proceed: Any) -> Any:
        seen.append(ctx.tool_name)
        return await proceed()

    @server.tool(interceptors=[around], guards=[lambda ctx: seen.append("guard")])
    def work() -> str:
        return "worked"

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.sample("Go", tools=["work"])).text

    await PipelineClient(server, answer=Model([use("work")], "done"), capabilities=CAPABLE).text("ask")
    assert seen == ["guard", "work"]


async def test_a_method_of_a_toolset_is_found_as_its_registered_tool() -> None:
    class Desk(Toolset):
        prefix = "desk_"
        permission = "shop.desk"

        @tool
        def book(self) -> str:
            """Book."""
            return "booked"

    desk = Desk()
    server = make_server(toolsets=[desk])

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.sample("Go", tools=[desk.book])).text

    for person, names in ((make_principal(), []), (make_principal("shop.desk"), ["desk_book"])):
        model = Model("done")
        await PipelineClient(server, person, answer=model, capabilities=CAPABLE).text("ask")
        assert [offered["name"] for offered in model.asked[0].get("tools", ())] == names


async def test_provided_tools_can_be_named() -> None:
    class Catalogue(Provider):
        offers = frozenset({"tools"})

        async def tools(self, ctx: Context) -> list[Any]:
            return [build_tool(add, "sum")]

    async def handler(ctx: Context) -> str:
        return (await ctx.sample("Go", tools=["sum"])).text

    model = Model([use("sum", a=1, b=1)], "two")
    assert await make_sampling_client(handler, model, providers=[Catalogue()]).text("ask") == "two"
    assert parse_result(model.results[0]) == ("2", False)


async def test_only_functions_of_modules_are_compiled_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[str] = []

    def build(fn: Any) -> Any:
        compiled.append(fn.__name__)
        return build_tool(fn)

    monkeypatch.setattr(sampling_tools, "build_tool", build)

    async def handler(ctx: Context) -> str:
        def local() -> None:
            """Nothing."""

        return (await ctx.sample("Go", tools=[subtract, local])).text

    await make_sampling_client(handler, Model("done")).text("ask")
    assert compiled == ["subtract", "local", "local"]


# The loop


@pytest.mark.parametrize("version", ERAS)
async def test_after_the_last_iteration_the_model_must_answer_without_tools(version: str) -> None:
    async def handler(ctx: Context) -> str:
        return (await ctx.sample("Go", tools=[add], tool_choice="required", max_iterations=2)).text

    model = Model(*[[use("add", a=1, b=1)]] * 2, "enough")
    assert await make_sampling_client(handler, model, version).text("ask") == "enough"
    choices = [params.get("toolChoice") for params in model.asked]
    assert choices == [{"mode": "required"}, None, {"mode": "none"}]


@pytest.mark.parametrize("version", ERAS)
async def test_a_model_that_never_stops_using_tools_is_an_error(version: str) -> None:
    async def handler(ctx: Context) -> str:
        return (await ctx.sample("Go", tools=[add], max_iterations=1)).text

    model = Model(*[[use("add", a=1, b=1)]] * 2)
    assert (
        await make_sampling_client(handler, model, version).error("ask")
        == "The model used tools after the limit of 1 iterations"
    )


async def test_tool_uses_that_cannot_run_are_returned() -> None:
    given: dict[str, Any] = {}
    uses: list[ToolUseContent] = []

    async def handler(ctx: Context) -> str:
        said = await ctx.sample("Go", **given)
        uses[:] = said.tool_uses
        result = ToolResultContent("u1", "sunny")
        return (await ctx.sample([*said.messages, SamplingMessage("user", result)], tools=given["tools"])).text

    for options, name in [
        ({"tools": [WEATHER]}, "weather"),
        ({"tools": [WEATHER, add]}, "weather"),
        ({"tools": [add], "max_iterations": 0}, "add"),
    ]:
        given = options
        model = Model([use(name)], "It is sunny")
        assert await make_sampling_client(handler, model).text("ask") == "It is sunny"
        assert uses == [ToolUseContent("u1", name, {})]
        assert parse_result(model.results[0]) == ("sunny", False)


# Values


@dataclass
class Booking:
    nights: int
    city: str = "Oslo"


class Point(TypedDict):
    x: float


@pytest.mark.parametrize("version", ERAS)
async def test_an_answer_is_read_as_a_value(version: str) -> None:
    found: list[Any] = []
    type_: Any = None

    async def handler(ctx: Context) -> None:
        found.append((await ctx.sample("What?", result_type=type_)).result)

    for type_, text, value in [
        (Booking, '{"nights": 2}', Booking(2)),
        (Booking, 'Here you are:\n```json\n{"nights": 2, "city": "Rome"}\n```\nAnything else?', Booking(2, "Rome")),
        (Booking, '```\n{"nights": 2}\n```', Booking(2)),
        (Point, '{"x": 1.5}', {"x": 1.5}),
        (list[int], "[1, 2]", [1, 2]),
        (int, " 7 ", 7),
        (str, "as it is", "as it is"),
        (None, "as it is", "as it is"),
    ]:
        model = Model(text)
        await make_sampling_client(handler, model, version).call("ask")
        assert found[-1] == value, text
        asked = model.asked[0]["messages"][0]["content"]["text"]
        assert ("JSON Schema" in asked) is (type_ not in (None, str)), text


@pytest.mark.parametrize("version", ERAS)
async def test_an_invalid_answer_is_requested_again_with_the_reason(version: str) -> None:
    async def handler(ctx: Context) -> int:
        return int((await ctx.sample("How long?", result_type=Booking)).result.nights)

    model = Model("two", '{"nights": "two"}', '{"nights": 2}')
    assert await make_sampling_client(handler, model, version).text("ask") == "2"
    complaints = [message["content"]["text"] for message in model.asked[-1]["messages"] if message["role"] == "user"]
    assert complaints[1:] == [
        "That cannot be used: the answer is not JSON. Answer again, with JSON only.",
        'That cannot be used: nights: "two" is a string; give an integer. Answer again, with JSON only.',
    ]


@pytest.mark.parametrize("version", ERAS)
async def test_a_model_without_a_valid_answer_is_an_error(version: str) -> None:
    async def handler(ctx: Context) -> None:
        await ctx.sample("How long?", result_type=Booking)

    model = Model("?", "?", "?")
    text = await make_sampling_client(handler, model, version).error("ask")
    assert text == "The model gave no valid answer in 3 attempts: the answer is not JSON"


async def test_a_truncated_answer_is_requested_again_with_the_reason() -> None:
    async def handler(ctx: Context) -> int:
        return int((await ctx.sample("How long?", result_type=Booking)).result.nights)

    cut = {"role": "assistant", "content": {"type": "text", "text": '{"nig'}, "model": "m", "stopReason": "maxTokens"}
    model = Model(cut, '{"nights": 2}')
    await make_sampling_client(handler, model).text("ask")
    assert "cut off" in model.asked[-1]["messages"][-1]["content"]["text"]


async def test_a_value_may_be_found_with_tools() -> None:
    async def handler(ctx: Context) -> int:
        return int((await ctx.sample("How long?", result_type=Booking, tools=[add])).result.nights)

    assert await make_sampling_client(handler, Model([use("add", a=1, b=1)], '{"nights": 2}')).text("ask") == "2"


# Requests and responses


async def reasons(version: str, samples: list[tuple[Any, dict[str, Any]]]) -> list[str]:
    """The texts of the ValueErrors that samples with these arguments raise, none of which reaches the client."""
    found: list[str] = []

    async def handler(ctx: Context) -> None:
        for messages, given in samples:
            try:
                await ctx.sample(messages, **given)
            except ValueError as problem:
                found.append(str(problem))

    peer = make_sampling_client(handler, Model(), version)
    await peer.call("ask")
    assert peer.received == []
    assert len(found) == len(samples)
    return found


async def test_a_conversation_with_unmatched_tool_uses_is_never_sent() -> None:
    cases: list[tuple[Any, str]] = [
        ([], "a conversation needs a message"),
        ([SamplingMessage("assistant", ToolUseContent("a", "t", {}))], "'a' must be answered"),
        ([SamplingMessage("assistant", ToolUseContent("a", "t", {})), "and?"], "'a' must be answered"),
        ([SamplingMessage("user", ToolUseContent("a", "t", {}))], "only the assistant uses tools"),
        ([SamplingMessage("user", ToolResultContent("a", "x"))], "must answer one tool use"),
        (
            [
                SamplingMessage("assistant", ToolUseContent("a", "t", {})),
                SamplingMessage("user", [ToolResultContent("a", "x"), "and more"]),
            ],
            "must hold nothing else",
        ),
        (
            [
                SamplingMessage("assistant", [ToolUseContent("a", "t", {}), ToolUseContent("b", "t", {})]),
                SamplingMessage("user", ToolResultContent("a", "x")),
                SamplingMessage("user", ToolResultContent("b", "x")),
            ],
            "'b' must be answered",
        ),
        (
            [
                SamplingMessage("assistant", ToolUseContent("a", "t", {})),
                SamplingMessage("user", [ToolResultContent("a", "x"), ToolResultContent("a", "y")]),
            ],
            "must answer one tool use",
        ),
        ([SamplingMessage("assistant", [ToolUseContent("a", "t", {})] * 2)], "have the same id"),
        ([{"role": "system", "content": {"type": "text", "text": "x"}}], "role 'system'"),
        ([{"role": "user", "content": {"type": "text"}}], "needs text of type str"),
        ([{"role": "user", "content": {"type": "resource"}}], "must be a sampling block"),
    ]
    found = await reasons(HANDSHAKE, [(messages, {}) for messages, _ in cases])
    assert [reason for (_, reason), text in zip(cases, found, strict=True) if reason not in text] == []


async def test_invalid_sampling_arguments_are_errors_of_the_handler() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"max_tokens": 0}, "positive integer"),
        ({"include_context": "all"}, "one of none, thisServer, allServers"),
        ({"model_preferences": {"costPriority": 2}}, "costPriority must be a number from 0 to 1"),
        ({"tools": [add], "tool_choice": "add"}, "one of auto, required, none"),
        ({"tool_choice": "auto"}, "needs tools"),
        ({"tools": [add], "max_iterations": -1}, "must not be negative"),
        ({"tools": [add, add]}, "'add' twice"),
        ({"tools": ["nothing"]}, "unknown tool of this server"),
        ({"tools": [{"name": "a b", "inputSchema": {"type": "object"}}]}, "needs a name"),
        ({"tools": [{"name": "a", "inputSchema": {}}]}, "inputSchema of type object"),
    ]
    found = await reasons(STATELESS, [("Go", given) for given, _ in cases])
    assert [reason for (_, reason), text in zip(cases, found, strict=True) if reason not in text] == []


async def test_options_reach_the_client() -> None:
    async def handler(ctx: Context) -> None:
        await ctx.sample(
            [SamplingMessage("user", ["Look:", ImageContent(PNG, "image/png")], meta={"com.example/a": 1})],
            max_tokens=5,
            stop_sequences=("END",),
            model_preferences=["haiku", "claude"],
            include_context="thisServer",
            metadata={"a": 1},
        )

    model = Model("ok")
    await make_sampling_client(handler, model).call("ask")
    (params,) = model.asked
    image = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
    assert params == {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look:"}, image], "_meta": {"com.example/a": 1}}
        ],
        "maxTokens": 5,
        "stopSequences": ["END"],
        "modelPreferences": {"hints": [{"name": "haiku"}, {"name": "claude"}]},
        "includeContext": "thisServer",
        "metadata": {"a": 1},
    }


async def test_context_is_not_requested_from_clients_without_it() -> None:
    async def handler(ctx: Context) -> None:
        await ctx.sample("Go", include_context="thisServer")

    model = Model("ok")
    await make_sampling_client(handler, model, capabilities={"sampling": {}}).call("ask")
    assert "includeContext" not in model.asked[0]


async def test_tools_need_the_client_capability() -> None:
    async def handler(ctx: Context) -> None:
        await ctx.sample("Go", tools=[add])

    peer = make_sampling_client(handler, Model(), HANDSHAKE, capabilities={"sampling": {}})
    assert await peer.error("ask") == "The client does not support sampling.tools"
    with pytest.raises(MissingClientCapability) as refused:
        await make_sampling_client(handler, Model(), capabilities={"sampling": {}}).call("ask")
    assert refused.value.data == {"requiredCapabilities": {"sampling": {"tools": {}}}}


@pytest.mark.parametrize("version", ERAS)
async def test_a_malformed_answer_is_requested_again(version: str) -> None:
    async def handler(ctx: Context) -> str:
        return (await ctx.sample("Go")).text

    for bad in [
        [use("add")],
        [{"type": "tool_result", "toolUseId": "a", "content": []}],
        [{"type": "text"}],
        [{"type": "hologram"}],
        [7],
    ]:
        model = Model(bad, "fine")
        assert await make_sampling_client(handler, model, version).text("ask") == "fine", bad
        assert model.asked[0] == model.asked[1], bad


async def test_tool_uses_with_the_same_id_are_refused() -> None:
    async def handler(ctx: Context) -> str:
        return (await ctx.sample("Go", tools=[add])).text

    assert await make_sampling_client(handler, Model([use("add"), use("add")], "fine")).text("ask") == "fine"
