"""Examples of calls: the context, logging, questions, errors, middleware and lifespans."""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator
from typing import Any, Literal, TypedDict

import pytest
from pydantic import BaseModel

from mcp_django import Context, MCPError, Server, ToolError
from mcp_django.observability import Call
from mcp_django.protocol.types import Implementation
from mcp_django.testing import TestClient, accept, decline
from mcp_django.types import Icon, SamplingMessage
from tests.coming_from.test_declarations import call_text
from tests.server.client import HANDSHAKE, STATELESS, make_server, ports

BOTH = (HANDSHAKE, STATELESS)
ICON = "https://example.com/icon.png"


async def test_servers_describe_themselves() -> None:
    info = Implementation("hotel", "3", title="The hotel", website_url="https://example.com", icons=[Icon(ICON)])
    server = Server(info, instructions="Rooms are numbered by floor.", ports=ports())
    for revision in BOTH:
        said = await TestClient(server, revision=revision).initialize()
        named = said.get("serverInfo") or said["_meta"]["io.modelcontextprotocol/serverInfo"]
        assert (named["name"], named["version"], named["title"]) == ("hotel", "3", "The hotel")
        assert named["icons"] == [{"src": ICON}]
        assert said["instructions"] == "Rooms are numbered by floor."


async def test_log_messages_have_a_threshold() -> None:
    server = make_server()

    @server.tool
    async def log_all_levels(ctx: Context) -> None:
        for level in ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"):
            await getattr(ctx, level)({"is": level}, logger="shop")

    client = TestClient(server, revision=HANDSHAKE)
    await client.call_tool("log_all_levels")
    levels = [said["params"]["level"] for said in client.notifications]
    assert levels == ["info", "notice", "warning", "error", "critical", "alert", "emergency"]
    assert client.notifications[0]["params"] == {"level": "info", "data": {"is": "info"}, "logger": "shop"}
    client.notifications.clear()
    await client.request("logging/setLevel", {"level": "alert"})
    await client.call_tool("log_all_levels")
    assert len(client.notifications) == 2
    with pytest.raises(MCPError) as refused:
        await client.request("logging/setLevel", {"level": "loud"})
    assert refused.value.code == -32602


async def test_the_context_describes_the_call() -> None:
    server, seen = make_server(), {}

    @server.tool
    async def look(ctx: Context, a: int = 1) -> None:
        ctx.state["scratch"] = 1
        seen[ctx.revision] = (
            ctx.tool_name,
            ctx.headers["x-a"],
            dict(ctx.url_kwargs),
            dict(ctx.arguments),
            ctx.request,
            ctx.call_id == ctx.meta["progressToken"],
            ctx.client_info["name"],
            ctx.supports("sampling.tools"),
            ctx.uri,
            ctx.state["scratch"],
            ctx.principal.is_local,
        )

    @server.resource("a://{b}")
    async def read(b: str, ctx: Context) -> str:
        return f"{ctx.uri} {ctx.tool_name}"

    for revision in BOTH:
        given: dict[str, Any] = {"headers": {"X-A": "1"}, "kwargs": {"tenant": "acme"}, "sample": lambda params: "x"}
        client = TestClient(server, revision=revision, **given)
        await client.call_tool("look", {"a": 2})
        kwargs, name = {"tenant": "acme"}, "mcp_django.testing"
        assert seen[revision] == ("look", "1", kwargs, {"a": 2}, None, True, name, True, None, 1, True)
        assert (await client.read_resource("a://b%20c"))[0]["text"] == "a://b%20c None"


class Booking(TypedDict):
    nights: int


@dataclasses.dataclass
class Guest:
    name: str


class Room(BaseModel):
    beds: int


async def test_elicitation_asks_for_values() -> None:
    server, seen = make_server(), []

    @server.tool
    async def ask(ctx: Context) -> None:
        for number, schema in enumerate((bool, str, int, float, Literal["a", "b"], Guest, Booking, Room, None)):
            answer = await ctx.elicit("?", schema, key=str(number))
            seen.append((answer.action, answer.data, bool(answer)))

    values = (True, "x", 1, 1.5, "a")
    contents = [{"value": value} for value in values] + [{"name": "Ada"}, {"nights": 2}, {"beds": 3}, {}]
    for revision in BOTH:
        seen.clear()
        left = iter(contents)
        await TestClient(server, revision=revision, elicit=lambda params, left=left: accept(**next(left))).call_tool(
            "ask"
        )
        data = [found[1] for found in seen[-9:]]
        assert data == [*values, Guest("Ada"), {"nights": 2}, Room(beds=3), None]
    seen.clear()
    await TestClient(server, revision=HANDSHAKE, elicit=lambda params: decline()).call_tool("ask")
    assert set(seen) == {("decline", None, False)}


async def test_sampling_takes_every_option() -> None:
    server, asked = make_server(), []

    @server.tool
    async def sample(ctx: Context) -> str:
        said = await ctx.sample(
            [SamplingMessage("user", "Hello")],
            max_tokens=9,
            system_prompt="Be brief.",
            temperature=0.5,
            stop_sequences=["."],
            model_preferences={"hints": [{"name": "small"}]},
            include_context="none",
            metadata={"a": 1},
        )
        typed = await ctx.sample("A number", result_type=int, key="typed")
        return f"{said.text} {said.model} {said.stop_reason} {len(said.content)} {typed.result}"

    def model(params: dict[str, Any]) -> str:
        asked.append(params)
        return "7"

    for revision in BOTH:
        asked.clear()
        assert await call_text(TestClient(server, revision=revision, sample=model), "sample") == "7 test endTurn 1 7"
        params = asked[0]
        assert (params["maxTokens"], params["systemPrompt"], params["temperature"]) == (9, "Be brief.", 0.5)
        assert (params["stopSequences"], params["metadata"]) == (["."], {"a": 1})
        assert params["modelPreferences"]["hints"] == [{"name": "small"}]
        assert asked[-1]["maxTokens"] == 1024


async def test_errors_of_handlers_are_redacted() -> None:
    server = make_server()

    async def fail() -> None:
        raise ValueError("Data cannot be empty")

    async def fail_openly() -> None:
        raise ToolError("Data cannot be empty")

    server.tool(fail, name="fail")
    server.tool(fail_openly, name="fail_openly")
    server.prompt(fail, name="fail")
    logging.disable(logging.CRITICAL)
    try:
        client = TestClient(server, raise_exceptions=False)
        failed = await client.call_tool("fail")
        with pytest.raises(MCPError, match=r"Internal error \(reference") as refused:
            await client.get_prompt("fail")
        shown = await TestClient(server.copy_with_options(expose_errors=True), raise_exceptions=False).call_tool("fail")
    finally:
        logging.disable(logging.NOTSET)
    assert (failed["isError"], "empty" in str(failed), refused.value.code) == (True, False, -32603)
    assert "reference" in failed["content"][0]["text"]
    assert "ValueError: Data cannot be empty" in shown["content"][0]["text"]
    assert (await client.call_tool("fail_openly"))["content"][0]["text"] == "Data cannot be empty"


async def test_a_lifespan_is_entered_once() -> None:
    entered = []

    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[dict[str, int]]:
        entered.append(server.info.name)
        yield {"db": 7}

    seen = []

    async def watch(call: Call, call_next: Any) -> Any:
        seen.append(call.server.lifespan.get_state(asyncio.get_running_loop()))
        return await call_next(call)

    server = Server("hotel", lifespan=lifespan, middleware=[watch], ports=ports())

    @server.tool
    async def query(ctx: Context) -> int:
        return int(ctx.lifespan["db"])

    client = TestClient(server)
    assert [await call_text(client, "query") for _ in range(2)] == ["7", "7"]
    assert entered == ["hotel"]
    assert seen == [{"db": 7}] * 2
    await server.lifespan.exit()


async def test_middleware_runs_around_every_method() -> None:
    seen: list[tuple[str, Any, str]] = []

    async def outer(call: Call, call_next: Any) -> Any:
        try:
            result = await call_next(call)
        except MCPError as problem:
            seen.append((call.method, call.id is None, str(problem.code)))
            raise
        seen.append((call.method, call.id is None, "error" if result.get("isError") else "ok"))
        return "dropped" if call.id is None else result

    order = []

    async def inner(call: Call, call_next: Any) -> Any:
        order.append(len(seen))
        return await call_next(call)

    server = make_server(middleware=[outer, inner])

    @server.tool
    async def fail() -> None:
        raise ToolError("no")

    client = TestClient(server, revision=HANDSHAKE)
    in_process = client._client
    message = in_process.profile.build_request(1, "tools/list", {})
    with pytest.raises(MCPError, match="send initialize first"):
        await in_process._exchange(message, in_process._create_connection())
    assert seen == [], "what is refused before there is a call"
    await client.call_tool("fail")
    await client.notify("notifications/cancelled", {"requestId": 99})
    for method, params in (("no/such", {}), ("tools/call", {"name": 1})):
        with pytest.raises(MCPError):
            await client.request(method, params)
    assert seen == [
        ("initialize", False, "ok"),
        ("notifications/initialized", True, "ok"),
        ("tools/call", False, "error"),
        ("notifications/cancelled", True, "ok"),
        ("no/such", False, "-32601"),
        ("tools/call", False, "-32602"),
    ]
    assert order == list(range(6)), "the first of the list is the outermost"
