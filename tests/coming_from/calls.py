"""What a handler is given, what it tells and asks, and what becomes of errors; what is around it."""

import asyncio
import contextlib
import contextvars
import dataclasses
import logging
from collections.abc import AsyncIterator
from typing import Any, Literal, TypedDict

import pytest
from pydantic import BaseModel

from mcp_django import Call, Context, Icon, MCPError, SamplingMessage, Server, ToolError, ToolStream
from mcp_django.auth.principal import Principal
from mcp_django.protocol.errors import InvalidParams, MissingClientCapability, URLElicitationRequired
from mcp_django.protocol.revisions import LATEST_HANDSHAKE, Era
from mcp_django.protocol.types import Implementation
from mcp_django.server.ask import AskLimits
from mcp_django.testing import Client, accept, decline
from tests.coming_from.declarations import text
from tests.coming_from.table import exercise
from tests.server.engine import HANDSHAKE, STATELESS, make_server, ports

BOTH = (HANDSHAKE, STATELESS)
ICON = "https://example.com/icon.png"


@exercise
async def a_server_says_who_it_is() -> None:
    info = Implementation("hotel", "3", title="The hotel", website_url="https://example.com", icons=[Icon(ICON)])
    server = Server(info, instructions="Rooms are numbered by floor.", ports=ports())
    for revision in BOTH:
        said = await Client(server, revision=revision).initialize()
        named = said.get("serverInfo") or said["_meta"]["io.modelcontextprotocol/serverInfo"]
        assert (named["name"], named["version"], named["title"]) == ("hotel", "3", "The hotel")
        assert named["icons"] == [{"src": ICON}]
        assert said["instructions"] == "Rooms are numbered by floor."


@exercise
async def capabilities_are_derived_and_overridden() -> None:
    server = make_server()
    assert server.capabilities(LATEST_HANDSHAKE) == {"logging": {}}
    server.tool(lambda: 1, name="one")
    assert server.capabilities(LATEST_HANDSHAKE) == {"logging": {}, "tools": {}}
    other = server.variant(capabilities={"experimental": {"acme": {}}, "logging": None})
    assert other.capabilities(LATEST_HANDSHAKE) == {"experimental": {"acme": {}}, "tools": {}}
    with pytest.raises(MCPError) as refused:
        await Client(other, revision=HANDSHAKE).request("logging/setLevel", {"level": "error"})
    assert refused.value.code == -32601


@exercise
async def what_is_unknown_has_the_code_of_the_specification() -> None:
    server = make_server()
    server.tool(lambda: 1, name="one")
    server.prompt(lambda: "x", name="one")
    server.resource("a://b")(lambda: "x")
    for revision, absent in ((HANDSHAKE, -32002), (STATELESS, -32602)):
        client = Client(server, revision=revision)
        for method, params in (("tools/call", {"name": "none"}), ("prompts/get", {"name": "none"})):
            with pytest.raises(MCPError) as refused:
                await client.request(method, params)
            assert refused.value.code == -32602
        with pytest.raises(MCPError) as refused:
            await client.read_resource("a://none")
        assert client.revision.resource_not_found == absent


@exercise
async def requests_and_results_are_plain() -> None:
    server = make_server()
    server.tool(lambda: "x", name="one")
    for revision in BOTH:
        result = await Client(server, revision=revision).request("tools/call", {"name": "one", "arguments": {}})
        assert result["content"] == [{"type": "text", "text": "x"}]
        assert result["isError"] is False


@exercise
async def a_tool_runs_out_of_time() -> None:
    server = make_server(options={"timeout": 0.01})

    async def forever() -> None:
        await asyncio.Event().wait()

    server.tool(forever, name="by_server")
    server.tool(forever, name="by_itself", timeout=0.02)
    server.prompt(forever, name="asked")
    client = Client(server)
    for name, limit in (("by_server", "0.01"), ("by_itself", "0.02")):
        result = await client.call_tool(name)
        assert result["isError"]
        assert f"{limit} seconds" in result["content"][0]["text"]
    with pytest.raises(MCPError) as refused:
        await client.get_prompt("asked")
    assert refused.value.code == -32603


@exercise
async def progress_is_told_to_who_asked() -> None:
    server = make_server()

    @server.tool
    async def work(ctx: Context) -> None:
        await ctx.report_progress(25, 100, "reading")

    client = Client(server)
    await client.call_tool("work")
    (said,) = client.notifications
    assert said["method"] == "notifications/progress"
    assert {"progress": 25, "total": 100, "message": "reading"}.items() <= said["params"].items()
    client.notifications.clear()
    await client.request("tools/call", {"name": "work", "_meta": {"progressToken": None}})
    assert client.notifications == []


@exercise
async def log_messages_have_a_threshold() -> None:
    server = make_server()

    @server.tool
    async def say(ctx: Context) -> None:
        for level in ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"):
            await getattr(ctx, level)({"is": level}, logger="shop")

    client = Client(server, revision=HANDSHAKE)
    await client.call_tool("say")
    levels = [said["params"]["level"] for said in client.notifications]
    assert levels == ["info", "notice", "warning", "error", "critical", "alert", "emergency"]
    assert client.notifications[0]["params"] == {"level": "info", "data": {"is": "info"}, "logger": "shop"}
    client.notifications.clear()
    await client.request("logging/setLevel", {"level": "alert"})
    await client.call_tool("say")
    assert len(client.notifications) == 2
    with pytest.raises(MCPError) as refused:
        await client.request("logging/setLevel", {"level": "loud"})
    assert refused.value.code == -32602


@exercise
async def a_notification_of_one_s_own_is_sent() -> None:
    server = make_server()

    @server.tool
    async def say(ctx: Context) -> None:
        await ctx.notify("notifications/acme/done", {"rows": 3})

    client = Client(server)
    await client.call_tool("say")
    assert client.notifications == [{"method": "notifications/acme/done", "params": {"rows": 3}}]


@exercise
async def plain_functions_tell_and_ask() -> None:
    server = make_server()

    @server.tool
    def work(ctx: Context) -> str:
        ctx.sync.info("begun")
        ctx.sync.report_progress(1)
        return str(ctx.sync.elicit("Sure?", bool).data)

    for revision in BOTH:
        client = Client(server, revision=revision, elicit=lambda params: accept(value=True))
        assert await text(client, "work") == "True"
        assert {said["method"] for said in client.notifications} == {"notifications/message", "notifications/progress"}


@exercise
async def the_context_says_all_of_it() -> None:
    server, seen = make_server(), {}

    @server.tool
    async def look(ctx: Context, a: int = 1) -> None:
        ctx.state["scratch"] = 1
        seen[ctx.revision] = (
            ctx.tool_name,
            ctx.headers["x-a"],
            dict(ctx.kwargs),
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
        client = Client(server, revision=revision, **given)
        await client.call_tool("look", {"a": 2})
        kwargs, name = {"tenant": "acme"}, "mcp_django.testing"
        assert seen[revision] == ("look", "1", kwargs, {"a": 2}, None, True, name, True, None, 1, True)
        assert (await client.read_resource("a://b%20c"))[0]["text"] == "a://b%20c None"


@exercise
async def a_session_has_its_state() -> None:
    server = make_server()

    @server.tool
    async def count(ctx: Context) -> int:
        ctx.state["count"] = ctx.state.setdefault("count", 0) + 1
        if ctx.session is not None:
            assert ctx.session.initialized
            assert ctx.session.log_level in (None, "error")
        return int(ctx.state["count"])

    one, other = (Client(server, revision=HANDSHAKE) for _ in range(2))
    assert [await text(client, "count") for client in (one, one, other)] == ["1", "2", "1"]
    stateless = Client(server)
    assert [await text(stateless, "count") for _ in range(2)] == ["1", "1"]


@exercise
async def claims_reach_the_handler() -> None:
    server = make_server()

    @server.tool
    async def who(ctx: Context) -> str:
        principal: Any = ctx.principal
        assert principal.has_scopes(["a", "b"])
        assert not principal.has_scopes(["a", "c"])
        assert "a" in principal.scopes
        return f"{principal.subject} {principal.client_id} {principal.audience} {principal.claims['tenant']}"

    scopes = frozenset({"a", "b"})
    facts: dict[str, Any] = {"issuer": "https://idp", "subject": "s", "client_id": "c", "audience": "https://x/mcp"}
    principal = Principal(**facts, scopes=scopes, claims={"tenant": "acme"})
    assert await text(Client(server, principal=principal), "who") == "s c https://x/mcp acme"


@exercise
async def a_loop_sees_its_cancellation() -> None:
    server, seen = make_server(options={"timeout": 0.02}), []
    gone = asyncio.Event()

    @server.tool
    async def loop(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            gone.set()

    @server.tool
    async def watch(ctx: Context) -> None:
        seen.append(ctx)
        await asyncio.Event().wait()

    await Client(server).call_tool("loop")
    await Client(server).call_tool("watch")
    assert gone.is_set()
    assert seen[0].cancelled


class Stay(TypedDict):
    nights: int


@dataclasses.dataclass
class Guest:
    name: str


class Room(BaseModel):
    beds: int


@exercise
async def the_user_is_asked_for_values() -> None:
    server, seen = make_server(), []

    @server.tool
    async def ask(ctx: Context) -> None:
        for number, schema in enumerate((bool, str, int, float, Literal["a", "b"], Guest, Stay, Room, None)):
            answer = await ctx.elicit("?", schema, key=str(number))
            seen.append((answer.action, answer.data, bool(answer)))

    values = (True, "x", 1, 1.5, "a")
    contents = [{"value": value} for value in values] + [{"name": "Ada"}, {"nights": 2}, {"beds": 3}, {}]
    for revision in BOTH:
        seen.clear()
        left = iter(contents)
        await Client(server, revision=revision, elicit=lambda params, left=left: accept(**next(left))).call_tool("ask")
        data = [found[1] for found in seen[-9:]]
        assert data == [*values, Guest("Ada"), {"nights": 2}, Room(beds=3), None]
    seen.clear()
    await Client(server, revision=HANDSHAKE, elicit=lambda params: decline()).call_tool("ask")
    assert set(seen) == {("decline", None, False)}


@exercise
async def the_user_is_sent_to_a_page() -> None:
    server = make_server()

    @server.tool
    async def pay(ctx: Context) -> str:
        return (await ctx.elicit_url("Pay, please", "https://pay.example/1")).action

    for revision in BOTH:
        for action in ("accept", "decline", "cancel"):
            client = Client(server, revision=revision, elicit=lambda params, action=action: {"action": action})
            assert await text(client, "pay") == action


@exercise
async def the_model_is_asked_with_every_option() -> None:
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
        assert await text(Client(server, revision=revision, sample=model), "sample") == "7 test endTurn 1 7"
        params = asked[0]
        assert (params["maxTokens"], params["systemPrompt"], params["temperature"]) == (9, "Be brief.", 0.5)
        assert (params["stopSequences"], params["metadata"]) == (["."], {"a": 1})
        assert params["modelPreferences"]["hints"] == [{"name": "small"}]
        assert asked[-1]["maxTokens"] == 1024


@exercise
async def the_client_says_its_roots() -> None:
    server = make_server()

    @server.tool
    async def where(ctx: Context) -> str:
        return ",".join(root.uri for root in await ctx.list_roots())

    for revision in BOTH:
        assert await text(Client(server, revision=revision, roots=["file:///a", "file:///b"]), "where") == (
            "file:///a,file:///b"
        )


@exercise
async def what_the_client_cannot_do_is_not_asked() -> None:
    server = make_server()

    @server.tool
    async def ask(ctx: Context) -> str:
        if ctx.supports("elicitation.url"):
            return "can"
        await ctx.elicit("Sure?")
        return "asked"

    with pytest.raises(MissingClientCapability) as refused:
        await Client(server).call_tool("ask")
    assert refused.value.required == {"elicitation": {"form": {}}}
    result = await Client(server, revision=HANDSHAKE).call_tool("ask")
    assert result["isError"]
    assert "does not support elicitation" in result["content"][0]["text"]
    assert await text(Client(server, elicit=lambda params: accept()), "ask") == "can"


@exercise
async def a_question_waits_no_longer_than_it_may() -> None:
    server = make_server(options={"ask": AskLimits(wait=0.01)})

    @server.tool
    async def patient(ctx: Context) -> str:
        return str((await ctx.elicit("Sure?")).data)

    @server.tool
    async def hasty(ctx: Context) -> str:
        try:
            async with asyncio.timeout(0.001):
                return str((await ctx.elicit("Sure?")).data)
        except TimeoutError:
            return "nobody there"

    async def never(params: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0.02)
        return accept(value=True)

    client = Client(server, revision=HANDSHAKE, elicit=never)
    assert (await client.call_tool("patient"))["isError"]
    assert await text(client, "hasty") == "nobody there"


@exercise
async def questions_end_a_round_in_the_stateless_era() -> None:
    server = make_server()

    @server.tool
    async def ask(ctx: Context) -> bool | None:
        return (await ctx.elicit("Sure?", key="sure")).data

    said = []

    async def watch(call: Call, call_next: Any) -> Any:
        said.append(await call_next(call))
        return said[-1]

    server.middleware = (watch,)
    await Client(server, elicit=lambda params: accept(value=True)).call_tool("ask")
    assert [result.get("resultType") for result in said] == ["input_required", "complete"]
    assert said[0]["inputRequests"]["sure"]["method"] == "elicitation/create"


@exercise
async def a_stream_of_pieces_is_progress_and_a_result() -> None:
    server = make_server()

    async def words() -> AsyncIterator[str]:
        for word in ("Once ", "upon ", "a time"):
            yield word

    async def numbers() -> AsyncIterator[int]:
        for number in (1, 2, 3):
            yield number

    server.tool(words, name="story")

    @server.tool
    async def total() -> ToolStream[int]:
        return ToolStream(numbers(), total=3, accumulate=sum)

    @server.tool
    async def last() -> ToolStream[int]:
        return ToolStream(numbers(), accumulate="last")

    client = Client(server)
    assert await text(client, "story") == "Once upon a time"
    assert [said["params"]["message"] for said in client.notifications] == ["Once ", "upon ", "a time"]
    assert (await text(client, "total"), await text(client, "last")) == ("6", "3")
    assert client.notifications[-4]["params"]["total"] == 3


@exercise
async def bugs_are_raised_in_tests() -> None:
    server = make_server()

    @server.tool
    async def fail() -> None:
        raise LookupError("secret")

    for revision in BOTH:
        with pytest.raises(LookupError, match="secret"):
            await Client(server, revision=revision).request("tools/call", {"name": "fail"})


@exercise
async def bugs_are_redacted() -> None:
    server = make_server()

    async def fail() -> None:
        raise ValueError("Data cannot be empty")

    async def tell() -> None:
        raise ToolError("Data cannot be empty")

    server.tool(fail, name="fail")
    server.tool(tell, name="tell")
    server.prompt(fail, name="fail")
    logging.disable(logging.CRITICAL)
    try:
        client = Client(server, raise_exceptions=False)
        failed = await client.call_tool("fail")
        with pytest.raises(MCPError, match=r"Internal error \(reference") as refused:
            await client.get_prompt("fail")
        shown = await Client(server.variant(expose_errors=True), raise_exceptions=False).call_tool("fail")
    finally:
        logging.disable(logging.NOTSET)
    assert (failed["isError"], "empty" in str(failed), refused.value.code) == (True, False, -32603)
    assert "reference" in failed["content"][0]["text"]
    assert "ValueError: Data cannot be empty" in shown["content"][0]["text"]
    assert (await client.call_tool("tell"))["content"][0]["text"] == "Data cannot be empty"


class Closed(MCPError):
    """An error of the project's own."""

    code = 4711


@exercise
async def an_error_of_one_s_own_is_sent() -> None:
    server = make_server()

    @server.tool
    async def fail(kind: str) -> None:
        raise Closed("We are closed", data={"until": 7}) if kind == "own" else InvalidParams("Not this one")

    for kind, code, message in (("own", 4711, "We are closed"), ("params", -32602, "Not this one")):
        with pytest.raises(MCPError) as refused:
            await Client(server).call_tool("fail", {"kind": kind})
        assert (refused.value.code, refused.value.message) == (code, message)


@exercise
async def pages_are_required_where_the_revision_has_it() -> None:
    server = make_server()
    page = {"mode": "url", "message": "Pay", "url": "https://pay.example", "elicitationId": "1"}

    @server.tool
    async def fail() -> None:
        raise URLElicitationRequired([page])

    with pytest.raises(URLElicitationRequired) as refused:
        await Client(server, revision=HANDSHAKE, elicit=lambda params: accept()).call_tool("fail")
    assert (refused.value.code, refused.value.elicitations) == (-32042, [page])
    told = await Client(server, elicit=lambda params: accept()).call_tool("fail")
    assert "https://pay.example" in told["content"][0]["text"]


@exercise
async def a_lifespan_is_entered_once() -> None:
    entered = []

    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[dict[str, int]]:
        entered.append(server.info.name)
        yield {"db": 7}

    seen = []

    async def watch(call: Call, call_next: Any) -> Any:
        seen.append(call.server.lifespan.state(asyncio.get_running_loop()))
        return await call_next(call)

    server = Server("hotel", lifespan=lifespan, middleware=[watch], ports=ports())

    @server.tool
    async def query(ctx: Context) -> int:
        return int(ctx.lifespan["db"])

    client = Client(server)
    assert [await text(client, "query") for _ in range(2)] == ["7", "7"]
    assert entered == ["hotel"]
    assert seen == [{"db": 7}] * 2
    await server.lifespan.leave()


@exercise
async def middleware_is_around_everything() -> None:
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

    client = Client(server, revision=HANDSHAKE)
    with pytest.raises(MCPError, match="Say initialize first"):
        await client._exchange("tools/list", {}, client._connection())
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


@exercise
async def middleware_rewrites_a_call() -> None:
    async def rewrite(call: Call, call_next: Any) -> Any:
        if call.method == "tools/call":
            params = {**call.params, "arguments": {"a": call.params["arguments"]["a"] + 1}}
            call = dataclasses.replace(call, message=call.message._replace(params=params))
        return await call_next(call)

    server = make_server(middleware=[rewrite])
    server.tool(lambda a: a, name="same", input_schema={"type": "object", "properties": {"a": {"type": "integer"}}})
    assert await text(Client(server), "same", a=1) == "2"


@exercise
async def initialize_can_be_vetoed_and_not_rewritten() -> None:
    sessions = []

    async def veto(call: Call, call_next: Any) -> Any:
        if call.method != "initialize":
            return await call_next(call)
        sessions.append(call.session)
        if call.client_info["name"] == "nobody":
            raise MCPError("Not you")
        params = {**call.params, "protocolVersion": "2024-11-05"}
        return await call_next(dataclasses.replace(call, message=call.message._replace(params=params)))

    server = make_server(middleware=[veto])
    client = Client(server, revision=HANDSHAKE)
    assert (await client.initialize())["protocolVersion"] == HANDSHAKE
    said = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "nobody", "version": "1"}}
    with pytest.raises(MCPError, match="Not you"):
        await client.request("initialize", said)
    assert sessions[0] is None


@exercise
async def initialize_is_strict() -> None:
    client = Client(make_server(), revision=HANDSHAKE)
    good = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    for wrong in ({"protocolVersion": 1}, {"capabilities": []}, {"clientInfo": {"name": "x"}}, {"clientInfo": None}):
        with pytest.raises(MCPError) as refused:
            await client.request("initialize", {**good, **wrong})
        assert refused.value.code == -32602


@exercise
async def middleware_hands_something_over() -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")

    async def find(call: Call, call_next: Any) -> Any:
        tenant.set(str(call.kwargs["tenant"]))
        return await call_next(call)

    server = make_server(middleware=[find])
    server.tool(lambda: tenant.get(), name="whose")
    assert await text(Client(server, kwargs={"tenant": "acme"}), "whose") == "acme"


@exercise
async def middleware_hooks_levels_and_subscriptions() -> None:
    seen = []

    async def hook(call: Call, call_next: Any) -> Any:
        if call.method == "logging/setLevel":
            assert call.session is not None
            seen.append((call.params["level"], call.session.log_level))
            if call.params["level"] == "debug":
                raise MCPError("Too much")
        if call.method in ("resources/subscribe", "resources/unsubscribe"):
            seen.append((call.method, call.params["uri"]))
            raise MCPError("No watcher for that")
        return await call_next(call)

    server = make_server(middleware=[hook])
    server.resource("a://b")(lambda: "x")
    client = Client(server, revision=HANDSHAKE)
    await client.request("logging/setLevel", {"level": "error"})
    with pytest.raises(MCPError, match="Too much"):
        await client.request("logging/setLevel", {"level": "debug"})
    assert client.session is not None
    assert (client.session.log_level, seen) == ("error", [("error", None), ("debug", "error")])
    for method in ("resources/subscribe", "resources/unsubscribe"):
        with pytest.raises(MCPError, match="No watcher"):
            await client.request(method, {"uri": "a://b"})


@exercise
async def a_server_may_serve_one_era() -> None:
    for era, good, other in ((Era.HANDSHAKE, HANDSHAKE, STATELESS), (Era.STATELESS, STATELESS, HANDSHAKE)):
        server = make_server(eras=[era])
        server.tool(lambda: "x", name="one")
        assert await text(Client(server, revision=good), "one") == "x"
        with pytest.raises(MCPError) as refused:
            await Client(server, revision=other).call_tool("one")
        assert refused.value.code == -32022
        assert refused.value.data["requested"] == other


@exercise
async def what_a_session_opens_is_closed() -> None:
    server, closed = make_server(), asyncio.Event()

    @server.tool
    async def keep(ctx: Context) -> None:
        ctx.state["line"] = 1
        ctx.at_end(closed.set)

    client = Client(server, revision=HANDSHAKE)
    await client.call_tool("keep")
    assert client.session is not None
    assert not closed.is_set()
    client.session.leave()
    async with asyncio.timeout(10):
        await closed.wait()


@exercise
async def requests_before_initialized_are_served() -> None:
    server = make_server()

    @server.tool
    async def ask(ctx: Context) -> str:
        return "served" if not ctx.arguments.get("ask") else str(await ctx.elicit("Sure?"))

    client = Client(server, revision=HANDSHAKE, elicit=lambda params: accept(value=True))
    await client.initialize()
    assert client.session is not None
    client.session.initialized = False
    assert await text(client, "ask") == "served"
