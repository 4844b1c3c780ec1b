"""Calls without a transport: as a client's, with functions for answers and notifications."""

from typing import Any

import pytest

from mcp_django import Context
from mcp_django.auth.principal import local_principal
from mcp_django.protocol.errors import InvalidParams, MethodNotFound, MissingClientCapability
from mcp_django.server.ports import Overloaded
from mcp_django.transports.inprocess.client import InProcessClient
from mcp_django.transports.inprocess.profile import ELICITATION, InProcessProfile
from tests.server.client import accept, make_principal, make_server


def make_test_server() -> Any:
    server = make_server()

    @server.tool
    async def book(nights: int, ctx: Context) -> str:
        first = await ctx.elicit("Sure?", bool)
        page = await ctx.elicit_url("Pay", "https://example.com/pay")
        return f"{nights} {first.data} {page.action}"

    @server.tool
    async def talk(ctx: Context) -> str:
        for number in range(300):
            await ctx.report_progress(number, 300)
        await ctx.info("done")
        await ctx.notify("notifications/own")
        return "talked"

    @server.tool(permission="a.b")
    async def guarded() -> str:
        return "in"

    @server.tool
    async def full() -> None:
        raise Overloaded("full")

    @server.tool
    def keep(items: list[str]) -> str:
        items.append("mine")
        return ",".join(items)

    return server


def make_client(principal: Any = None, **options: Any) -> InProcessClient:
    return InProcessClient(make_test_server(), principal or local_principal(), **options)


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


async def test_questions_are_answered_round_by_round() -> None:
    asked: list[str] = []

    async def respond(request: dict[str, Any]) -> dict[str, Any]:
        params = request["params"]
        asked.append(params["message"])
        return {"action": "accept"} if "url" in params else accept(value=True)

    client = make_client(profile=InProcessProfile(capabilities=ELICITATION), respond=respond)
    assert text(await client.call_tool("book", {"nights": 2})) == "2 True accept"
    assert asked == ["Sure?", "Pay"]


async def test_without_an_input_function_a_question_is_an_error() -> None:
    with pytest.raises(MissingClientCapability):
        await make_client().call_tool("book", {"nights": 2})


async def test_notifications_beyond_the_size_of_the_outbox_arrive_in_order() -> None:
    notifications: list[tuple[str, Any]] = []
    result = await make_client(on_notification=lambda method, params: notifications.append((method, params))).call_tool(
        "talk", {}
    )
    assert text(result) == "talked"
    assert [params["progress"] for method, params in notifications if method == "notifications/progress"] == list(
        range(300)
    )
    assert [method for method, _ in notifications[-2:]] == ["notifications/message", "notifications/own"]


async def test_without_a_notification_function_the_call_completes() -> None:
    assert text(await make_client().call_tool("talk", {})) == "talked"


async def test_errors_and_permissions_are_those_of_any_client() -> None:
    with pytest.raises(InvalidParams, match="Unknown tool: guarded"):
        await make_client(make_principal()).call_tool("guarded", {})
    assert text(await make_client(make_principal("a.b")).call_tool("guarded", {})) == "in"
    assert text(await make_client().call_tool("guarded", {})) == "in"
    with pytest.raises(MethodNotFound):
        await make_client().request("no/such/method")
    with pytest.raises(Overloaded):
        await make_client().call_tool("full", {})


async def test_other_methods_can_be_requested() -> None:
    tools = (await make_client().request("tools/list"))["tools"]
    assert [tool["name"] for tool in tools] == ["book", "full", "guarded", "keep", "talk"]


async def test_changes_of_arguments_by_a_handler_do_not_reach_the_caller() -> None:
    given = {"items": ["yours"]}
    assert text(await make_client().call_tool("keep", given)) == "yours,mine"
    assert given == {"items": ["yours"]}


async def test_arguments_without_json_form_are_refused() -> None:
    with pytest.raises(TypeError):
        await make_client().call_tool("keep", {"items": object()})


async def test_a_notification_function_that_fails_fails_the_call() -> None:
    def fail(method: str, params: dict[str, Any]) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        await make_client(on_notification=fail).call_tool("talk", {})
