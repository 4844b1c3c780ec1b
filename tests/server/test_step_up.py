"""Scopes that depend on arguments, and rates of tools."""

import logging
from typing import Any

import pytest

from mcp_django.protocol.errors import InsufficientScope, InternalError, InvalidParams
from mcp_django.schema import DeclarationError
from mcp_django.server.server import Server
from tests.server.client import PipelineClient, make_principal, make_server

SEEN: list[dict[str, Any]] = []


def by_amount(arguments: dict[str, Any]) -> list[str]:
    SEEN.append(dict(arguments))
    amount = arguments.pop("amount")
    return ["pay:much"] if amount > 100 else []


async def by_amount_later(arguments: dict[str, Any]) -> set[str]:
    return set(by_amount(arguments))


@pytest.fixture(params=[by_amount, by_amount_later])
def server(request: pytest.FixtureRequest) -> Server:
    SEEN.clear()
    made = make_server()

    @made.tool(scopes=["pay"], scopes_for=request.param)
    async def pay(amount: int, to: str = "you") -> str:
        return f"paid {amount} to {to}"

    return made


def bearer(server: Server, *scopes: str) -> PipelineClient:
    return PipelineClient(server, make_principal(scopes=scopes))


async def test_arguments_may_need_scopes_in_addition_to_those_of_the_tool(server: Server) -> None:
    assert await bearer(server, "pay").text("pay", amount=5) == "paid 5 to you"
    assert await bearer(server, "pay", "pay:much").text("pay", amount=500) == "paid 500 to you"


async def test_a_refusal_names_all_missing_scopes_for_one_step_up(server: Server) -> None:
    for scopes in [(), ("pay",), ("pay:much",)]:
        with pytest.raises(InsufficientScope) as refused:
            await bearer(server, *scopes).call("pay", amount=500)
        assert refused.value.scopes == ("pay", "pay:much"), scopes


async def test_invalid_arguments_are_refused_before_the_scope_function_runs(server: Server) -> None:
    assert "amount" in await bearer(server, "pay").error("pay", amount="much")
    assert SEEN == []


async def test_the_local_principal_needs_no_scopes(server: Server) -> None:
    assert await PipelineClient(server).text("pay", amount=500) == "paid 500 to you"


async def test_changes_of_arguments_by_the_scope_function_do_not_reach_the_tool(server: Server) -> None:
    assert await bearer(server, "pay").text("pay", amount=5, to="me") == "paid 5 to me"
    assert SEEN == [{"amount": 5, "to": "me"}]


async def test_the_scope_function_does_not_run_for_a_hidden_tool() -> None:
    SEEN.clear()
    server = make_server()
    server.tool(lambda amount: "x", name="pay", permission="x.y", scopes_for=by_amount)
    with pytest.raises(InvalidParams, match="Unknown tool"):
        await bearer(server).call("pay", amount=500)
    assert SEEN == []


async def test_a_failing_scope_function_permits_nothing_and_is_logged(caplog: Any) -> None:
    for found in [KeyError("a bug"), "pay", [None], 5]:

        def fails(arguments: dict[str, Any], found: Any = found) -> Any:
            if isinstance(found, Exception):
                raise found
            return found

        server = make_server()
        server.tool(lambda: "paid", name="pay", scopes_for=fails)
        with caplog.at_level(logging.ERROR), pytest.raises(InternalError, match="reference") as refused:
            await bearer(server, "pay").call("pay")
        assert "bug" not in str(refused.value), found


def test_an_invalid_scope_function_or_rate_is_refused_at_declaration(subtests: pytest.Subtests) -> None:
    for option, value in [("scopes_for", ["a"]), ("rate", "often"), ("rate", 5)]:
        with subtests.test(option=option, value=value), pytest.raises(DeclarationError, match=option):
            make_server().tool(lambda: "x", name="x", **{option: value})


async def test_a_tool_may_be_called_up_to_its_rate() -> None:
    server = make_server()
    server.tool(lambda: "done", name="slow", rate="2/h")
    client = bearer(server)
    assert [await client.text("slow") for _ in range(2)] == ["done", "done"]
    assert "slow was called too often; wait" in await client.error("slow")
    assert await PipelineClient(server, make_principal(name="else")).text("slow") == "done"
