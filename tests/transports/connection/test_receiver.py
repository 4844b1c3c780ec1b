"""A channel: messages are read one by one, and all others share the same output."""

import asyncio

import pytest
from asgiref.sync import sync_to_async

from mcp_django.models import EndReason, Session, StreamEvent
from mcp_django.protocol.revisions import Era
from mcp_django.transports.connection.options import CloseReason
from mcp_django.wiring import get_services
from tests.transports.connection.client import HANDSHAKE, call, live_sessions
from tests.transports.connection.conftest import ALICE


async def send_often(client, message):
    for _ in range(20):
        await client.send(message)


async def test_a_request_of_the_stateless_era_is_answered(peer):
    async with peer() as client:
        await client.modern(1, "tools/call", **call("add", a=2, b=3))
        assert (await client.next())["result"]["structuredContent"] == {"result": 5}
        assert await live_sessions() == 0


async def test_initialize_opens_the_session_and_the_end_of_the_channel_ends_it(peer):
    async with peer() as client:
        await client.initialize()
        assert await live_sessions() == 1
        await client.legacy(1, "tools/call", **call("add", a=2, b=3))
        assert (await client.next())["result"]["structuredContent"] == {"result": 5}
        await client.legacy(2, "initialize", protocolVersion=HANDSHAKE, capabilities={}, clientInfo={})
        assert "already" in (await client.next())["error"]["message"]
    assert await live_sessions() == 0
    assert (await Session.objects.aget()).end_reason == EndReason.CLOSED


async def test_messages_sent_before_the_session_is_open_wait_for_it(peer):
    async with peer() as client:
        hello = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}
        await client.legacy(0, "initialize", **hello)
        await client.notify("notifications/initialized")
        await client.legacy(1, "tools/call", **call("add", a=2, b=3))
        await client.legacy(2, "initialize", **hello)
        answers = {answer["id"]: answer for answer in [await client.next() for _ in range(3)]}
        assert answers[0]["result"]["protocolVersion"] == HANDSHAKE
        assert answers[1]["result"]["structuredContent"] == {"result": 5}
        assert "already" in answers[2]["error"]["message"]
        assert client.duplex.session.initialized


async def test_both_eras_interleave_on_one_channel(peer):
    async with peer() as client:
        await client.initialize()
        await client.modern(1, "tools/call", **call("add", a=1, b=1))
        first = await client.next()
        await client.legacy(2, "tools/call", **call("add", a=1, b=1))
        second = await client.next()
        assert "resultType" in first["result"]
        assert "resultType" not in second["result"]


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_cancellation_overtakes_the_call_which_has_no_response(peer, stage, era):
    async with peer() as client:
        await client.initialize()
        send = getattr(client, era)
        await send(7, "tools/call", **call("wait"))
        await stage.begun.wait()
        await client.notify("notifications/cancelled", requestId=7)
        await stage.cancelled.wait()
        await send(8, "tools/call", **call("add", a=0, b=0))
        assert (await client.next())["id"] == 8


async def test_a_stateless_call_can_be_cancelled_without_a_session(peer, stage):
    async with peer() as client:
        await client.modern(7, "tools/call", **call("wait"))
        await stage.begun.wait()
        await client.notify("notifications/cancelled", requestId=7)
        await stage.cancelled.wait()


async def test_the_end_of_the_channel_cancels_its_calls(peer, stage):
    async with peer() as client:
        await client.initialize()
        await client.legacy(7, "tools/call", **call("wait"))
        await stage.begun.wait()
    await stage.cancelled.wait()


async def test_a_question_and_its_response_use_the_channel(peer):
    async with peer() as client:
        await client.initialize(elicitation={"form": {}})
        await client.legacy(1, "tools/call", **call("confirm"))
        asked = await client.next()
        assert asked["method"] == "elicitation/create"
        result = {"action": "accept", "content": {"value": True}}
        await client.send({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        assert (await client.next())["result"]["content"][0]["text"] == "accept"


async def test_a_question_is_cancelled_with_its_call(peer):
    async with peer() as client:
        await client.initialize(elicitation={"form": {}})
        await client.legacy(1, "tools/call", **call("confirm"))
        asked = await client.next()
        await client.notify("notifications/cancelled", requestId=1)
        taken_back = await client.next()
        assert taken_back["method"] == "notifications/cancelled"
        assert taken_back["params"]["requestId"] == asked["id"]


async def test_an_id_in_use_is_refused_in_both_eras(peer, stage):
    async with peer() as client:
        await client.initialize()
        await client.legacy(7, "tools/call", **call("wait"))
        await stage.begun.wait()
        await client.modern(7, "tools/call", **call("wait"))
        refused = await client.next()
        assert refused["error"]["message"] == "A request with this id is still running"
        stage.go.set()
        assert (await client.next())["result"]["content"][0]["text"] == "done"


async def test_a_request_without_meta_on_a_stateless_connection_is_invalid(peer):
    """basic/index: the request lacks required fields of `_meta`."""
    async with peer() as client:
        await client.legacy(0, "tools/list")
        assert (await client.next())["error"]["code"] == -32600  # The era is unknown yet.
        await client.modern(1, "tools/list")
        assert "result" in await client.next()
        for id, method in enumerate(("tools/list", "ping", "no/such"), 2):
            await client.legacy(id, method)
            refused = await client.next()
            assert (refused["id"], refused["error"]["code"]) == (id, -32602)
            assert "_meta" in refused["error"]["message"]
        await client.initialize()
        await client.legacy(9, "tools/list")
        assert "result" in await client.next()


async def test_garbage_is_answered_with_an_error(subtests: pytest.Subtests, peer) -> None:
    for message in [b"{", b"\xff", b"[]", b"3", b'{"jsonrpc": "2.0", "id": 1}', b"[[[[" * 100]:
        with subtests.test(message=message):
            async with peer() as client:
                await client.send(message)
                assert (await client.next())["error"]["code"] in (-32700, -32600)


async def test_a_message_over_the_limit_is_answered_with_an_error(peer, settings):
    settings.MCP = {"LIMITS": {"BODY": 100}}
    async with peer() as client:
        await client.send(b" " * 101)
        assert "100 bytes" in (await client.next())["error"]["message"]


async def test_a_message_that_is_not_a_request_has_no_response(subtests: pytest.Subtests, peer) -> None:
    for aside in [
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/unheard-of", "params": {}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": [1]}},
        {"jsonrpc": "2.0", "id": "never-asked", "result": {}},
        {"jsonrpc": "2.0", "id": 4, "error": {"code": 1, "message": "no"}},
    ]:
        with subtests.test(aside=aside):
            async with peer() as client:
                await client.send(aside)
                await client.modern("next", "server/discover")
                assert (await client.next())["id"] == "next"


async def test_a_handler_waits_for_a_client_that_reads_slowly_and_loses_nothing(peer, stage):
    async with peer() as client:
        await client.initialize()
        await client.legacy(1, "tools/call", **call("flood", messages=500))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not stage.begun.is_set()
        received = [await client.next() for _ in range(501)]
        assert [m.get("method") for m in received[:-1]] == ["notifications/message"] * 500
        assert received[-1]["id"] == 1


async def test_the_channel_of_a_client_that_reads_nothing_is_closed_as_too_slow(peer, settings, clock):
    settings.MCP = {"LIMITS": {"SEND_TIMEOUT": 20}}
    async with peer() as client:
        await client.initialize()
        await client.legacy(1, "tools/call", **call("flood", messages=500))
        over = asyncio.Event()
        client.duplex.on_end = over.set
        await clock.advance_until(over.is_set)
        assert client.duplex.close_reason is CloseReason.SLOW_CLIENT
        assert await client.rest() == []


async def test_a_thousand_pings_at_once_are_answered_one_by_one(peer):
    async with peer() as client:

        async def ask() -> None:
            for id in range(1000):
                await client.legacy(id, "ping")

        asking = asyncio.ensure_future(ask())
        assert [(await client.next())["id"] for _ in range(1000)] == list(range(1000))
        await asking


async def test_responses_to_a_client_that_does_not_read_are_bounded(
    subtests: pytest.Subtests, peer, settings, clock
) -> None:
    for message in [b"{", b"[]", b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}']:
        with subtests.test(message=message):
            settings.MCP = {"LIMITS": {"SEND_BUFFER": 5, "SEND_TIMEOUT": 20}}
            async with peer() as client:
                sending = asyncio.ensure_future(send_often(client, message))
                await clock.advance_until(sending.done)
                assert client.duplex.close_reason is CloseReason.SLOW_CLIENT


async def test_at_shutdown_a_subscription_ends_with_a_result_and_a_cancellation(peer, server):
    async with peer() as client:
        await client.modern("l", "subscriptions/listen", notifications={"toolsListChanged": True})
        assert (await client.next())["method"] == "notifications/subscriptions/acknowledged"
        client.duplex.end(CloseReason.SHUTDOWN)
        result, cancelled = await client.rest()
        assert result["id"] == "l"
        assert (cancelled["method"], cancelled["params"]["requestId"]) == ("notifications/cancelled", "l")
        assert client.duplex.close_reason is CloseReason.SHUTDOWN


async def test_a_subscription_can_be_cancelled(peer, server):
    async with peer() as client:
        await client.modern("l", "subscriptions/listen", notifications={"toolsListChanged": True})
        await client.next()
        await client.notify("notifications/cancelled", requestId="l")
        await client.modern("l", "subscriptions/listen", notifications={"toolsListChanged": True})
        assert (await client.next())["method"] == "notifications/subscriptions/acknowledged"


async def test_running_calls_are_answered_before_the_server_closes(peer, stage):
    async with peer() as client:
        await client.modern(1, "tools/call", **call("wait"))
        await stage.begun.wait()
        client.duplex.end(CloseReason.SHUTDOWN)
        await client.modern(2, "tools/call", **call("add", a=1, b=1))
        assert "shutting down" in (await client.next())["error"]["message"]
        stage.go.set()
        (last,) = await client.rest()
        assert last["id"] == 1


async def test_a_call_longer_than_the_grace_period_is_an_error(peer, stage, settings, clock):
    settings.MCP = {"LIMITS": {"SHUTDOWN_GRACE": 30}}
    async with peer() as client:
        await client.modern(1, "tools/call", **call("wait"))
        await stage.begun.wait()
        closing = asyncio.ensure_future(get_services().lifecycle.shutdown())
        reading = asyncio.ensure_future(client.rest())
        await clock.advance_until(reading.done)
        (last,) = await reading
        assert (last["id"], last["error"]["message"]) == (1, "The server is shutting down")
        await client.duplex.close()
        await clock.advance_until(closing.done)
        await closing


async def test_only_the_eras_of_the_options_are_served(peer):
    async with peer(eras=frozenset({Era.HANDSHAKE})) as client:
        await client.modern(1, "tools/list")
        refused = await client.next()
        assert (refused["id"], refused["error"]["code"]) == (1, -32022)
        assert HANDSHAKE in refused["error"]["data"]["supported"]


async def test_ending_a_session_in_the_admin_closes_its_channel(peer):
    async with peer() as client:
        await client.initialize()

        await sync_to_async(Session.objects.all().end)("by an operator")
        assert await client.rest() == []
        assert client.duplex.close_reason is CloseReason.SESSION_ENDED


async def test_the_key_of_a_session_is_never_sent_or_logged(peer, server):
    async with peer() as client:
        await client.initialize(elicitation={"form": {}})
        await client.legacy(1, "tools/call", **call("confirm"))
        messages = [await client.next()]
        key, row = client.duplex.session.key, await Session.objects.aget()
        logged = [event.payload async for event in StreamEvent.objects.all()]
        shown = [messages, logged, vars(row), client.duplex.session]
        assert not any(key in str(one) for one in shown)
        for guess in (row.key_hash, row.key_prefix, str(row.pk)):
            assert await server.ports.sessions.load(guess, ALICE.key) is None


async def test_a_disconnect_while_the_session_opens_leaves_no_session(subtests: pytest.Subtests, peer) -> None:
    for turns in range(6):
        with subtests.test(turns=turns):
            async with peer() as client:
                info = {"name": "tests", "version": "1"}
                await client.legacy(1, "initialize", protocolVersion=HANDSHAKE, capabilities={}, clientInfo=info)
                for _ in range(turns):
                    await asyncio.sleep(0)
            while get_services().lifecycle.active or await live_sessions():
                await asyncio.sleep(0)


async def test_a_batch_that_has_not_started_ends_with_the_channel(peer, stage):
    async with peer() as client:
        await client.initialize("2025-03-26")
        waits = [{"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call("wait")} for id in (1, 2)]
        await client.send(waits)
        client.duplex.end(CloseReason.CLIENT_GONE)
    for _ in range(20):  # turns of the loop, in which it would begin
        await asyncio.sleep(0)
    assert not stage.begun.is_set() or stage.cancelled.is_set()
