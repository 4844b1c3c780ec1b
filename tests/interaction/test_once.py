"""Steps that run at most once, in both eras."""

import asyncio
from datetime import timedelta

import pytest
from django.utils import timezone

from mcp_django.models import OnceResult
from mcp_django.server.context import idempotency as module
from tests.interaction.clients import accept, answers
from tests.interaction.transports import contract

BAD_STATE = (400, -32602)
STATE_ONLY = {"resultType", "requestState", "_meta"}


def text(reply):
    return reply.result["content"][0]["text"]


@contract
async def test_a_once_step_runs_and_the_call_goes_on(either, checkpoints):
    client = await either()
    reply = await client.ask_tool("charge_and_ask", {}, answers([accept(), accept(value=True)]))
    assert (text(reply), checkpoints.counts["charged"]) == ("1 accept", 1)


async def test_the_row_of_a_step_belongs_to_the_caller_and_expires_with_states(either, limits):
    limits(STATE_TTL=60)
    await (await either(token="alice")).ask_tool("charge", {}, None)
    row = await OnceResult.objects.aget()
    assert "alice" in row.owner
    assert row.done_at is not None
    assert abs(row.expires - timezone.now() - timedelta(seconds=60 * 33)) < timedelta(seconds=10)


async def test_the_round_before_a_step_ends_with_a_state_only(modern, checkpoints):
    result = (await modern().tool("charge")).result
    assert set(result) == STATE_ONLY
    assert checkpoints.counts["charged"] == 0


async def test_a_repeated_request_does_not_repeat_the_step(modern, checkpoints):
    client = modern()
    state = (await client.tool("charge")).result["requestState"]
    replies = [await client.tool("charge", requestState=state) for _ in range(3)]
    assert [text(reply) for reply in replies] == ["1", "1", "1"]
    assert checkpoints.counts["charged"] == 1


async def test_another_process_does_not_repeat_the_step(modern, checkpoints, restart):
    client = modern()
    state = (await client.tool("charge")).result["requestState"]
    await client.tool("charge", requestState=state)
    restart()
    assert text(await client.tool("charge", requestState=state)) == "1"
    assert checkpoints.counts["charged"] == 1


async def test_concurrent_requests_do_not_repeat_the_step(modern, checkpoints):
    client = modern()
    state = (await client.tool("charge")).result["requestState"]
    replies = await asyncio.gather(*(client.tool("charge", requestState=state) for _ in range(8)))
    assert {text(reply) for reply in replies} == {"1"}
    assert checkpoints.counts["charged"] == 1


async def test_a_new_call_runs_the_step_again(either, checkpoints):
    client = await either()
    for _ in range(2):
        await client.ask_tool("charge", {}, None)
    assert checkpoints.counts["charged"] == 2


async def test_a_repeated_id_in_a_session_is_the_same_call(latest_legacy, checkpoints):
    client = await latest_legacy()
    replies = [await client.tool("charge", id=9), await client.tool("charge", id=9)]
    assert [text(reply) for reply in replies] == ["1", "1"]
    assert text(await client.tool("charge", {"amount": 2}, id=9)) == "2"
    assert text(await (await latest_legacy()).tool("charge", id=9)) == "3"


async def test_a_tool_error_of_a_step_is_repeated(modern, checkpoints):
    client = modern()
    state = (await client.tool("charge_in_vain")).result["requestState"]
    replies = [await client.tool("charge_in_vain", requestState=state) for _ in range(2)]
    assert [(reply.result["isError"], text(reply)) for reply in replies] == [(True, "No funds")] * 2
    assert checkpoints.counts["charged"] == 1


async def test_an_abandoned_claim_is_not_taken_over(modern, checkpoints, monkeypatch):
    monkeypatch.setattr(module, "OUTCOME_WAIT_SECONDS", 0.01)
    client = modern()
    state = (await client.tool("charge")).result["requestState"]
    await client.tool("charge", requestState=state)
    await OnceResult.objects.aupdate(done_at=None, result=None)
    reply = await client.tool("charge", requestState=state)
    assert reply.result["isError"] is True
    assert "does not run again" in text(reply)
    assert checkpoints.counts["charged"] == 1


async def test_a_once_step_inside_a_transaction_is_refused(either, checkpoints):
    reply = await (await either()).tool("charge_in_a_transaction")
    assert reply.result["isError"] is True
    assert "atomic=False" in text(reply)
    assert checkpoints.counts["charged"] == 0


@contract
@pytest.mark.django_db(transaction=True)
def test_a_plain_function_runs_a_step_from_its_thread(transport, either, checkpoints):
    """On a loop of its own, so that the function has a thread to wait in."""

    async def run():
        client = await either()
        assert text(await client.ask_tool("charge_in_a_thread", {}, None)) == "1"
        if client.stateless:
            state = (await client.tool("charge_in_a_thread")).result["requestState"]
            replies = await asyncio.gather(*(client.tool("charge_in_a_thread", requestState=state) for _ in range(3)))
            assert {text(reply) for reply in replies} == {"2"}

    transport.run(run())


async def test_a_single_use_state_is_refused_the_second_time(modern, restart):
    client = modern()
    first = (await client.tool("confirm")).result
    retry = {"inputResponses": {"sure": accept()}, "requestState": first["requestState"]}
    assert text(await client.tool("confirm", **retry)) == "accept"
    again = await client.tool("confirm", **retry)
    garbage = await client.tool("confirm", **{**retry, "requestState": "garbage"})
    assert again.refused(*BAD_STATE)
    assert garbage.refused(*BAD_STATE)
    assert again.error["message"] == garbage.error["message"]
    restart()
    assert (await client.tool("confirm", **retry)).refused(*BAD_STATE)


async def test_one_of_many_concurrent_uses_of_a_state_counts(modern):
    client = modern()
    first = (await client.tool("confirm")).result
    retry = {"inputResponses": {"sure": accept()}, "requestState": first["requestState"]}
    replies = await asyncio.gather(*(client.tool("confirm", **retry) for _ in range(6)))
    assert sorted(reply.served for reply in replies) == [False] * 5 + [True]
    assert all(reply.served or reply.refused(*BAD_STATE) for reply in replies)


async def test_sessions_have_no_request_states(latest_legacy):
    client = await latest_legacy()
    for _ in range(2):
        assert text(await client.ask_tool("confirm", {}, answers([accept()]))) == "accept"
