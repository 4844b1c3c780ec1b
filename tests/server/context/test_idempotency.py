"""`once(durable=True)`: started at most once, for all repeated requests."""

import asyncio
from typing import Any

import pytest

from mcp_django import Context, ToolError
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidParams
from mcp_django.runtime.concurrency import refuse_wait
from mcp_django.server.context import idempotency as module
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, accept, make_principal, make_server
from tests.support.clock import Clock

ERAS = [HANDSHAKE, STATELESS]


class Till:
    """Takes money, and counts how often."""

    def __init__(self) -> None:
        self.runs = 0
        self.fails: BaseException | None = None
        self.entered, self.opened = asyncio.Event(), asyncio.Event()
        self.opened.set()

    async def charge(self) -> dict[str, Any]:
        self.runs += 1
        self.entered.set()
        await self.opened.wait()
        if self.fails is not None:
            raise self.fails
        return {"receipt": self.runs, "note": "a\0b"}


def make_shop_server(till: Till, **options: Any) -> Any:
    server = make_server(options=options)

    @server.tool
    async def buy(ctx: Context, amount: int = 1) -> str:
        paid = await ctx.run_once("charge", till.charge, durable=True)
        return str(paid["receipt"])

    @server.tool
    async def buy_if(ctx: Context) -> str:
        if not await ctx.elicit("Pay?", bool, key="pay"):
            return "no"
        paid = await ctx.run_once("charge", till.charge, durable=True)
        await ctx.elicit("Wrap it?", bool, key="wrap")
        return str(paid["receipt"])

    return server


async def first_round(peer: PipelineClient, tool: str = "buy", **more: Any) -> dict[str, Any]:
    """The parameters of the next round, of a client that has just been given a state."""
    result = await peer.request("tools/call", {"name": tool, "arguments": {}, **more})
    assert result["resultType"] == "input_required"
    return {"name": tool, "arguments": {}, "requestState": result["requestState"]}


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


@pytest.mark.parametrize("version", ERAS)
async def test_a_durable_step_runs_once_and_returns_its_value(version: str) -> None:
    till = Till()
    peer = PipelineClient(make_shop_server(till), version=version, answer=lambda *_: accept(value=True))
    assert await peer.text("buy") == "1"
    assert await peer.text("buy_if") == "2"
    assert till.runs == 2


async def test_the_client_gets_the_state_before_the_step_runs() -> None:
    till = Till()
    result = await PipelineClient(make_shop_server(till)).call("buy")
    assert (result["resultType"], "inputRequests" in result, till.runs) == ("input_required", False, 0)
    assert isinstance(result["requestState"], str)


async def test_a_repeated_round_gets_the_same_value() -> None:
    till = Till()
    peer = PipelineClient(make_shop_server(till))
    again = await first_round(peer)
    assert [text(await peer.request("tools/call", again)) for _ in range(3)] == ["1", "1", "1"]
    assert till.runs == 1


async def test_a_replay_of_an_older_round_does_not_repeat_the_step() -> None:
    till = Till()
    peer = PipelineClient(make_shop_server(till))
    asked = await first_round(peer, "buy_if")
    paid = {**asked, "inputResponses": {"pay": accept(value=True)}}
    wrapping = await peer.request("tools/call", paid)
    for params in (paid, asked, paid):
        await peer.request("tools/call", params)
    done = {**asked, "requestState": wrapping["requestState"], "inputResponses": {"wrap": accept(value=True)}}
    assert text(await peer.request("tools/call", done)) == "1"
    assert till.runs == 1


async def test_two_conversations_run_the_step_twice() -> None:
    till = Till()
    peer = PipelineClient(make_shop_server(till))
    for _ in range(2):
        await peer.request("tools/call", await first_round(peer))
    assert till.runs == 2


async def test_a_concurrent_attempt_waits_for_the_first(clock: Clock) -> None:
    till = Till()
    till.opened.clear()
    peer = PipelineClient(make_shop_server(till))
    again = await first_round(peer)
    attempts = [asyncio.ensure_future(peer.request("tools/call", again)) for _ in range(5)]
    await clock.advance(module.OUTCOME_WAIT_SECONDS - 1)
    assert not any(attempt.done() for attempt in attempts)
    till.opened.set()
    await clock.advance(0.5)
    assert [text(result) for result in await asyncio.gather(*attempts)] == ["1"] * 5
    assert till.runs == 1


async def start_sale(till: Till) -> tuple[PipelineClient, Any, "asyncio.Future[Any]"]:
    """Return a client, the parameters of its last round, and the sale, which waits for the till to open."""
    till.opened.clear()
    peer = PipelineClient(make_shop_server(till))
    params = await first_round(peer)
    sale = asyncio.ensure_future(peer.request("tools/call", params))
    await till.entered.wait()
    return peer, params, sale


async def test_the_outcome_of_a_slow_step_is_unknown(clock: Clock) -> None:
    till = Till()
    peer, again, attempt = await start_sale(till)
    second = asyncio.ensure_future(peer.request("tools/call", again))
    await clock.advance(module.OUTCOME_WAIT_SECONDS + 0.5)
    result = await second
    assert result["isError"] is True
    assert "has not finished" in text(result)
    till.opened.set()
    assert text(await attempt) == "1"
    assert text(await peer.request("tools/call", again)) == "1"
    assert till.runs == 1


async def test_without_a_free_wait_the_outcome_is_unknown_at_once(clock: Clock) -> None:
    """Under WSGI, waits hold threads of the server."""
    till = Till()
    peer, again, attempt = await start_sale(till)
    peer.connection_options = {"claim_wait": refuse_wait}
    second = asyncio.ensure_future(peer.request("tools/call", again))
    await clock.settle()
    assert second.done()
    assert "has not finished" in text(await second)
    till.opened.set()
    await attempt


async def test_an_abandoned_claim_is_not_run_again(clock: Clock) -> None:
    till = Till()
    server = make_shop_server(till)
    peer = PipelineClient(server)
    again = await first_round(peer)

    async def die(*_: Any) -> None:
        """Record nothing, as a process that is killed."""

    server.ports.idempotency_store.record_outcome = die
    await peer.request("tools/call", again)
    second = asyncio.ensure_future(peer.request("tools/call", again))
    await clock.advance(module.OUTCOME_WAIT_SECONDS + 0.5)
    result = await second
    assert (result["isError"], till.runs) == (True, 1)
    assert "does not run again" in text(result)


async def test_a_tool_error_is_repeated_without_another_attempt() -> None:
    till = Till()
    till.fails = ToolError("No funds")
    peer = PipelineClient(make_shop_server(till))
    again = await first_round(peer)
    results = [await peer.request("tools/call", again) for _ in range(3)]
    assert {(result["isError"], text(result)) for result in results} == {(True, "No funds")}
    assert till.runs == 1


async def test_the_outcome_after_another_failure_is_unknown() -> None:
    till = Till()
    till.fails = TimeoutError("the bank does not answer: secret")
    peer = PipelineClient(make_shop_server(till))
    again = await first_round(peer)
    first, second = [await peer.request("tools/call", again) for _ in range(2)]
    assert text(first).startswith("Internal error")
    assert "started before and failed" in text(second)
    assert "secret" not in text(first) + text(second)
    assert till.runs == 1


@pytest.mark.parametrize("version", ERAS)
async def test_the_outcome_after_a_cancellation_is_unknown(version: str) -> None:
    till = Till()
    till.opened.clear()
    server = make_shop_server(till)
    peer = PipelineClient(server, version=version)
    params = await first_round(peer) if version == STATELESS else {"name": "buy", "arguments": {}}
    attempt = asyncio.ensure_future(peer.request("tools/call", params))
    await till.entered.wait()
    attempt.cancel()
    await asyncio.wait([attempt])
    assert list(server.ports.idempotency_store.outcomes.values()) == [{}]
    if version == STATELESS:
        assert (await peer.request("tools/call", params))["isError"] is True
    assert till.runs == 1


async def test_a_request_that_repeats_an_id_of_its_session_gets_the_same_value(monkeypatch: Any) -> None:
    till = Till()
    peer = PipelineClient(make_shop_server(till), version=HANDSHAKE)
    for ids in ([7, 7, "7", 8], [7]):
        peer._ids = iter(ids)
        assert [await peer.text("buy") for _ in ids] == ["1", "1", "2", "3"][: len(ids)]
    assert till.runs == 3
    # With other arguments it is another request, however careless the client is with its ids.
    peer._ids = iter([7])
    assert await peer.text("buy", amount=2) == "4"


async def test_another_caller_has_separate_claims() -> None:
    till = Till()
    server = make_shop_server(till)
    ada, bob = (
        PipelineClient(server, principal=make_principal(name=name), version=HANDSHAKE) for name in ("ada", "bob")
    )
    for peer in (ada, bob):
        peer._ids = iter([1])
        await peer.text("buy")
    assert till.runs == 2


async def test_a_response_without_a_state_does_not_run_the_step() -> None:
    till = Till()
    peer = PipelineClient(make_shop_server(till))
    again = await first_round(peer, "buy_if", inputResponses={"pay": accept(value=True)})
    result = await peer.request("tools/call", again)
    assert (list(result["inputRequests"]), till.runs) == (["pay"], 0)


async def test_a_repeated_key_is_an_error() -> None:
    server = make_server()

    @server.tool
    async def twice(ctx: Context) -> None:
        await ctx.run_once("a", lambda: 1)
        await ctx.run_once("a", lambda: 2, durable=True)

    assert "Internal error" in await PipelineClient(server).error("twice")


async def test_a_durable_step_must_not_ask() -> None:
    server = make_server(options={"expose_errors": True})

    @server.tool
    async def ask(ctx: Context) -> None:
        await ctx.run_once("a", lambda: ctx.elicit("Sure?", bool), durable=True)

    peer = PipelineClient(server, answer=lambda *_: accept(value=True))
    assert "may not send requests to the client" in await peer.error("ask")


async def test_a_concurrent_question_is_asked_in_the_same_round() -> None:
    till = Till()
    server = make_server()

    @server.tool
    async def both(ctx: Context) -> str:
        paid, answer = await ctx.gather(
            ctx.run_once("charge", till.charge, durable=True), ctx.elicit("Which?", str, key="which")
        )
        return f"{paid['receipt']} {answer.data}"

    peer = PipelineClient(server, answer=lambda *_: accept(value="blue"))
    assert await peer.text("both") == "1 blue"
    assert (peer.rounds, till.runs) == (1, 1)


class TestSingleUse:
    """`single_use_state`: the option of a tool."""

    @staticmethod
    def server(**options: Any) -> Any:
        server = make_server()

        @server.tool(**options)
        async def confirm(ctx: Context) -> str:
            return (await ctx.elicit("Sure?", bool, key="sure")).action

        return server

    async def test_a_single_use_state_counts_once(self) -> None:
        peer = PipelineClient(self.server(single_use_state=True))
        params = {**await first_round(peer, "confirm"), "inputResponses": {"sure": accept(value=True)}}
        assert text(await peer.request("tools/call", params)) == "accept"
        with pytest.raises(InvalidParams, match=r"^Invalid or expired state$"):
            await peer.request("tools/call", params)

    async def test_each_round_has_a_state_of_its_own(self) -> None:
        peer = PipelineClient(self.server(single_use_state=True))
        again = await first_round(peer, "confirm")
        for _ in range(3):
            result = await peer.request("tools/call", again)
            again["requestState"] = result["requestState"]

    async def test_without_the_option_a_state_counts_until_it_expires(self) -> None:
        peer = PipelineClient(self.server())
        params = {**await first_round(peer, "confirm"), "inputResponses": {"sure": accept(value=True)}}
        assert [text(await peer.request("tools/call", params)) for _ in range(2)] == ["accept", "accept"]

    async def test_one_of_many_concurrent_uses_counts(self) -> None:
        peer = PipelineClient(self.server(single_use_state=True))
        params = {**await first_round(peer, "confirm"), "inputResponses": {"sure": accept(value=True)}}
        results = await asyncio.gather(*(peer.request("tools/call", params) for _ in range(10)), return_exceptions=True)
        assert sum(isinstance(result, dict) for result in results) == 1
        assert sum(isinstance(result, InvalidParams) for result in results) == 9

    async def test_an_invalid_state_is_not_consumed(self) -> None:
        server = self.server(single_use_state=True)
        peer = PipelineClient(server)
        params = await first_round(peer, "confirm")
        with pytest.raises(InvalidParams):
            await peer.request("tools/call", {**params, "requestState": params["requestState"] + "x"})
        assert server.ports.idempotency_store.spent == set()


def test_values_have_a_json_form() -> None:
    assert module.round_trip_json((1, {"a": None})) == jsonrpc.loads(b'[1,{"a":null}]')
