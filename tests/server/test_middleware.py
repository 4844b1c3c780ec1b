"""Middleware: its calls, its changes, and its order."""

import asyncio
import dataclasses
from typing import Any

import pytest

from mcp_django import Context, MCPError, ToolError
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidParams, MethodNotFound
from mcp_django.server.calls.call import Call
from mcp_django.server.methods.tools import UnknownTool
from tests.server.client import EVERYTHING, HANDSHAKE, STATELESS, PipelineClient, accept, make_server
from tests.support.clock import Clock

INTRODUCTION = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


class Refused(MCPError):
    code = -32001


def make_middleware_server(*middleware: Any) -> Any:
    """A server with a few tools behind this middleware."""
    server = make_server(middleware=middleware)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def fail(how: str) -> None:
        raise {"tool": ToolError("for the model"), "bug": RuntimeError("secret"), "protocol": Refused("no")}[how]

    @server.tool
    async def ask(ctx: Context) -> str:
        return f"{bool(await ctx.elicit('Sure?', bool))}"

    return server


async def test_the_first_middleware_is_the_outermost() -> None:
    log: list[str] = []

    def layer(name: str) -> Any:
        async def middleware(call: Call, call_next: Any) -> Any:
            log.append(f"{name} in")
            result = await call_next(call)
            log.append(f"{name} out")
            return result

        return middleware

    assert await PipelineClient(make_middleware_server(layer("first"), layer("second"))).text("add", a=1, b=2) == "3"
    assert log == ["first in", "second in", "second out", "first out"]


async def test_cancelling_a_call_cancels_its_copy() -> None:
    given: list[Call] = []

    async def copy(call: Call, call_next: Any) -> Any:
        given.append(call)
        return await call_next(dataclasses.replace(call, meta={}))

    server = make_server(middleware=[copy])

    @server.tool
    async def work(ctx: Context) -> str:
        given[0].record.cancelled = True
        return f"cancelled: {ctx.cancelled}"

    assert await PipelineClient(server).text("work") == "cancelled: True"


async def test_initialize_can_be_refused() -> None:
    async def veto(call: Call, call_next: Any) -> Any:
        if call.method == "initialize":
            assert call.session is None
            raise Refused(f"not you, {call.client_info['name']}")
        return await call_next(call)

    peer = PipelineClient(make_middleware_server(veto), version=HANDSHAKE)
    peer.session = None
    with pytest.raises(Refused, match="not you, x"):
        await peer.request("initialize", INTRODUCTION)
    assert peer.server.ports.sessions.opened == []  # type: ignore[attr-defined]  # a store of the tests


async def test_middleware_sees_every_method_and_notification() -> None:
    seen: list[tuple[str, bool]] = []

    async def note(call: Call, call_next: Any) -> Any:
        seen.append((call.method, call.id is None))
        return await call_next(call)

    peer = PipelineClient(make_middleware_server(note), version=HANDSHAKE)
    await peer.request("ping")
    await peer.request("tools/list")
    await peer.notify("notifications/initialized")
    await peer.notify("notifications/of-your-own")
    with pytest.raises(MethodNotFound):
        await peer.request("no/such/method")
    assert seen == [
        ("ping", False),
        ("tools/list", False),
        ("notifications/initialized", True),
        ("notifications/of-your-own", True),
        ("no/such/method", False),
    ]


async def test_middleware_sees_notifications_of_the_stateless_era() -> None:
    seen: list[Any] = []

    async def note(call: Call, call_next: Any) -> Any:
        seen.append(call.id)
        return await call_next(call)

    await PipelineClient(make_middleware_server(note)).notify("notifications/of-your-own")
    assert seen == [None]


async def test_a_notification_stopped_by_middleware_is_not_handled() -> None:
    async def stop(call: Call, call_next: Any) -> Any:
        return {} if call.id is None else await call_next(call)

    peer = PipelineClient(make_middleware_server(stop), version=HANDSHAKE)
    assert peer.session is not None
    peer.session.initialized = False
    await peer.notify("notifications/initialized")
    assert not peer.session.initialized


async def test_an_exception_for_a_notification_has_no_response(caplog: pytest.LogCaptureFixture) -> None:
    for problem in (Refused("no"), RuntimeError("secret"), SystemExit("secret")):
        caplog.clear()

        async def fail(call: Call, call_next: Any, problem: BaseException = problem) -> Any:
            raise problem

        await PipelineClient(make_middleware_server(fail)).notify("notifications/initialized")
        assert ("secret" in caplog.text) is not isinstance(problem, Refused), problem


async def test_middleware_can_replace_the_call() -> None:
    async def rewrite(call: Call, call_next: Any) -> Any:
        message = call.message
        assert isinstance(message, jsonrpc.Request)
        params = {**call.params, "arguments": {"a": 40, "b": 2}}
        return await call_next(dataclasses.replace(call, message=message._replace(params=params)))

    assert await PipelineClient(make_middleware_server(rewrite)).text("add", a=1, b=2) == "42"


async def test_the_response_to_a_replaced_call_has_the_original_id() -> None:
    async def rewrite(call: Call, call_next: Any) -> Any:
        return await call_next(dataclasses.replace(call, message=jsonrpc.Request("mine", "ping", None)))

    peer = PipelineClient(make_middleware_server(rewrite), version=HANDSHAKE)
    outcome = peer._handle({"jsonrpc": "2.0", "id": 7, "method": "tools/list"}, None)  # type: ignore[arg-type]
    assert jsonrpc.loads(await outcome.run) == {"jsonrpc": "2.0", "id": 7, "result": {}}


async def test_middleware_can_return_a_result() -> None:
    async def answer(call: Call, call_next: Any) -> Any:
        return {"content": [{"type": "text", "text": "from above"}], "isError": False}

    result = await PipelineClient(make_middleware_server(answer)).call("add", a=1, b=2)
    assert result["content"][0]["text"] == "from above"
    assert result["resultType"] == "complete"


@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_middleware_can_change_results_of_calls_and_lists(version: str) -> None:
    async def shorten(call: Call, call_next: Any) -> Any:
        result = await call_next(call)
        if call.method == "tools/list":
            return {**result, "tools": [tool for tool in result["tools"] if tool["name"] != "fail"]}
        return {**result, "_meta": {**result.get("_meta", {}), "example.com/by": "middleware"}}

    peer = PipelineClient(make_middleware_server(shorten), version=version)
    assert await peer.names() == ["add", "ask"]
    assert (await peer.call("add", a=1, b=2))["_meta"]["example.com/by"] == "middleware"
    assert await peer.names() == ["add", "ask"]


async def test_a_question_survives_middleware_that_copies_results() -> None:
    async def copy(call: Call, call_next: Any) -> Any:
        result = await call_next(call)
        return {**result, "_meta": {"example.com/by": "middleware"}}

    server = make_middleware_server(copy)
    first = await PipelineClient(server).call("ask")
    assert first["resultType"] == "input_required"
    assert first["_meta"]["example.com/by"] == "middleware"
    assert "io.modelcontextprotocol/serverInfo" in first["_meta"]
    peer = PipelineClient(server, answer=lambda *_: accept(value=True))
    assert await peer.text("ask") == "True"


async def test_changing_a_result_in_place_changes_that_result_only() -> None:
    for method in ("server/discover", "tools/list"):

        async def mark(call: Call, call_next: Any, method: str = method) -> Any:
            result = await call_next(call)
            if call.method == method:
                result["_meta"]["example.com/mark"] = True
                result["capabilities"] = {}
            return result

        peer = PipelineClient(make_middleware_server(mark))
        assert (await peer.request(method))["_meta"]["example.com/mark"] is True
        assert "example.com/mark" not in (await peer.call("add", a=1, b=2))["_meta"]


async def test_middleware_gets_protocol_errors_as_exceptions_and_tool_errors_as_results() -> None:
    seen: list[Any] = []

    async def note(call: Call, call_next: Any) -> Any:
        try:
            result = await call_next(call)
        except MCPError as problem:
            seen.append(type(problem))
            raise
        seen.append(result["isError"])
        return result

    peer = PipelineClient(make_middleware_server(note))
    with pytest.raises(InvalidParams):
        await peer.call("unknown")
    with pytest.raises(Refused):
        await peer.call("fail", how="protocol")
    await peer.error("fail", how="tool")
    await peer.error("fail", how="bug")
    await peer.error("add", a="one", b=2)
    assert seen == [UnknownTool, Refused, True, True, True]


async def test_middleware_can_turn_an_exception_into_a_result() -> None:
    async def excuse(call: Call, call_next: Any) -> Any:
        try:
            return await call_next(call)
        except MethodNotFound:
            return {"excuse": True}

    assert (await PipelineClient(make_middleware_server(excuse), version=HANDSHAKE).request("no/such"))[
        "excuse"
    ] is True


async def test_a_bug_in_middleware_is_reported_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(call: Call, call_next: Any) -> Any:
        raise RuntimeError("secret")

    peer = PipelineClient(make_middleware_server(broken))
    with pytest.raises(MCPError) as caught:
        await peer.request("tools/list")
    for text in (caught.value.message, await peer.error("add", a=1, b=2)):
        assert "Internal error (reference" in text
        assert "secret" not in text
    assert len([record for record in caplog.records if "secret" in (record.exc_text or "")]) == 2


async def test_a_replaced_call_is_cancelled_with_the_original(clock: Clock) -> None:
    async def rewrite(call: Call, call_next: Any) -> Any:
        return await call_next(dataclasses.replace(call, capabilities={**EVERYTHING}))

    contexts: list[Context] = []
    server = make_middleware_server(rewrite)

    @server.tool(timeout=2)
    async def wait(ctx: Context) -> None:
        contexts.append(ctx)
        await ctx.elicit("Sure?", bool)

    call = asyncio.ensure_future(PipelineClient(server, version=HANDSHAKE).error("wait"))
    await clock.advance(2)
    assert "took longer" in await call
    assert contexts[0].cancelled
