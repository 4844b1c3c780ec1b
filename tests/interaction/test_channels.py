"""Clients with a channel of their own: eras by message, one session, and an end that ends everything."""

import asyncio

import pytest
from django.core.asgi import get_asgi_application

from mcp_django.models import Session
from mcp_django.runtime.events.event_log import EventDraft
from mcp_django.transports.connection.receiver import MAX_CONSECUTIVE_REJECTIONS
from mcp_django.wiring import get_services
from tests.interaction.channel import Refused
from tests.interaction.channel_types import CHANNEL_TYPES
from tests.interaction.clients import HANDSHAKE, STATELESS, Client, accept, answers
from tests.interaction.transports import CHANNELS, ChannelTransport
from tests.interaction.verifiers import SCOPES
from tests.support.waiting import eventually

pytestmark = pytest.mark.transports(*CHANNELS)
CALL = "tools/call"
WAIT = {"name": "wait"}
LISTEN = {"notifications": {"toolsListChanged": True}}


def text(reply):
    return reply.result["content"][0]["text"]


async def change(kind, payload):
    await get_services().event_publisher.publish(EventDraft("changes:interaction", kind, payload))


async def assert_closed(client, code):
    """The server ends the channel; on a socket with this code."""
    await client.channel.until_over()
    assert getattr(client.channel, "code", code) == code


async def nothing_is_open():
    await eventually(lambda: not len(get_services().stream_limiter))


@pytest.mark.transports("websocket", "stdio")
async def test_each_message_on_a_channel_selects_its_era(latest_legacy):
    session = await latest_legacy()
    stateless = session.beside(STATELESS)
    for count in (1, 2):
        assert "resultType" not in (await session.request("tools/list")).result
        assert (await stateless.request("tools/list")).result["resultType"] == "complete"
        assert (await session.tool("remember")).result["structuredContent"] == {"result": count}
        assert (await stateless.tool("remember")).result["structuredContent"] == {"result": 1}


@pytest.mark.transports("websocket", "stdio")
async def test_calls_of_both_eras_run_side_by_side(latest_legacy, checkpoints):
    session = await latest_legacy()
    stateless = session.beside(STATELESS)
    running = [client.begin(CALL, WAIT) for client in (session, stateless)]
    await checkpoints.until("wait reached", 2)
    assert text(await stateless.tool("add", {"a": 1, "b": 2})) == "3"
    checkpoints.gate("wait").set()
    assert [text(await exchange.reply()) for exchange in running] == ["waited", "waited"]


@pytest.mark.transports("websocket", "stdio")
async def test_an_id_in_use_in_one_era_is_refused_in_the_other(latest_legacy, checkpoints):
    session = await latest_legacy()
    stateless = session.beside(STATELESS)
    running = session.begin(CALL, WAIT, id=7)
    await checkpoints.until("wait reached")
    assert (await stateless.request(CALL, WAIT, id=7)).refused(400, -32600)
    checkpoints.gate("wait").set()
    assert text(await running.reply()) == "waited"
    assert text(await stateless.request(CALL, WAIT, id=7)) == "waited", "it is free again"


async def test_a_notification_cancels_a_request_in_both_eras(either, checkpoints):
    client = await either()
    exchange = client.begin(CALL, WAIT, id=5)
    await checkpoints.until("wait reached")
    for other in ("5", 6):
        await client.notify("notifications/cancelled", {"requestId": other})
    assert checkpoints.counts["wait cancelled"] == 0
    await client.notify("notifications/cancelled", {"requestId": 5})
    await checkpoints.until("wait cancelled")
    assert (await exchange.reply()).messages == []
    checkpoints.gate("wait").set()
    assert text(await client.request(CALL, WAIT, id=5)) == "waited"


@pytest.mark.transports("websocket", "stdio")
async def test_a_stateless_request_is_cancelled_beside_a_session(latest_legacy, checkpoints):
    session = await latest_legacy()
    exchange = session.beside(STATELESS).begin(CALL, WAIT, id=5)
    await checkpoints.until("wait reached")
    await session.notify("notifications/cancelled", {"requestId": 5})
    await checkpoints.until("wait cancelled")
    assert (await exchange.reply()).messages == []


async def test_a_channel_cannot_cancel_requests_of_another(either, checkpoints):
    client, other = await either(), await either()
    exchange = client.begin(CALL, WAIT, id=5)
    await checkpoints.until("wait reached")
    await other.notify("notifications/cancelled", {"requestId": 5})
    checkpoints.gate("wait").set()
    assert text(await exchange.reply()) == "waited"


async def test_cancelling_a_call_cancels_its_question(latest_legacy):
    client = await latest_legacy()
    exchange = client.begin(CALL, {"name": "ask_name"}, id=5)
    question = await exchange.message()
    await client.notify("notifications/cancelled", {"requestId": 5})
    taken_back = await exchange.message()
    assert taken_back["method"] == "notifications/cancelled"
    assert taken_back["params"]["requestId"] == question["id"]
    assert text(await client.ask_tool("ask_name", {}, answers([accept(value="Al")]))) == "Hello Al"


async def test_a_channel_has_one_session(latest_legacy):
    client = await latest_legacy()
    assert (await client.request("initialize", client.introduction())).refused(400, -32600)
    assert (await client.request("ping")).served
    assert await Session.objects.acount() == 1


async def test_the_session_ends_with_the_channel(latest_legacy):
    client = await latest_legacy()
    assert (await client.row()).terminated_at is None
    await client.channel.hang_up()
    assert (await client.row()).terminated_at is not None
    await nothing_is_open()


async def test_the_channel_ends_with_its_session(latest_legacy, checkpoints):
    client, other = await latest_legacy(), await latest_legacy()
    client.begin(CALL, WAIT)
    await checkpoints.until("wait reached")
    await get_services().executor.run(Session.objects.filter(pk=(await client.row()).pk).end, "admin")
    await assert_closed(client, 4404)
    await checkpoints.until("wait cancelled")
    assert (await other.request("ping")).served


async def test_the_end_of_a_channel_cancels_its_calls(either, checkpoints):
    client = await either()
    client.begin(CALL, WAIT)
    client.begin(CALL, {"name": "speak_then_wait"})
    await checkpoints.until("wait reached", 2)
    await client.channel.hang_up()
    await checkpoints.until("wait cancelled", 2)
    await nothing_is_open()


async def test_the_end_of_a_channel_ends_its_questions(latest_legacy):
    client = await latest_legacy()
    exchange = client.begin(CALL, {"name": "ask_name"})
    await exchange.message()
    await client.channel.hang_up()
    assert (await client.row()).terminated_at is not None


async def test_the_end_of_a_channel_ends_its_subscriptions(modern):
    exchange = modern().begin("subscriptions/listen", LISTEN)
    await exchange.message()
    await exchange.hang_up()
    await nothing_is_open()


async def test_a_cancelled_subscription_sends_no_notifications(modern):
    client = modern()
    one, other = (client.begin("subscriptions/listen", LISTEN) for _ in range(2))
    for exchange in (one, other):
        assert (await exchange.message())["method"] == "notifications/subscriptions/acknowledged"
    one.leave()
    await one.end()
    await change("list_changed", {"kind": "tools"})
    assert (await other.message())["method"] == "notifications/tools/list_changed"
    assert len((await one.reply()).messages) == 1
    await other.hang_up()


async def test_a_subscription_ended_by_the_server_is_answered_then_cancelled(modern):
    client = modern()
    exchange = client.begin("subscriptions/listen", LISTEN, id="last")
    await exchange.message()
    await get_services().lifecycle.shutdown()
    answer, taken_back = await exchange.message(), await exchange.message()
    assert (answer["id"], answer["result"]["resultType"]) == ("last", "complete")
    assert taken_back["method"] == "notifications/cancelled"
    assert taken_back["params"]["requestId"] == "last"
    await assert_closed(client, 1001)


async def test_notifications_for_all_sessions_are_sent_on_their_channels(latest_legacy):
    clients = [await latest_legacy() for _ in range(2)]
    listeners = [await client.listen_to_server() for client in clients]
    await change("broadcast", {"method": "notifications/acme/news", "params": {"n": 1}})
    await change("list_changed", {"kind": "tools"})
    for listener in listeners:
        assert await listener.message() == {"jsonrpc": "2.0", "method": "notifications/acme/news", "params": {"n": 1}}
        assert (await listener.message())["method"] == "notifications/tools/list_changed"


async def test_notifications_for_one_session_are_sent_on_its_channel_only(latest_legacy):
    client, other = await latest_legacy(), await latest_legacy()
    listener = await client.listen_to_server()
    for number in (1, 2):
        message = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": number}}
        await get_services().event_publisher.publish(
            EventDraft(f"session:{(await client.row()).pk}", "message", message)
        )
        assert (await listener.message())["params"]["data"] == number
    assert (await other.request("ping")).served


async def test_a_channel_without_a_session_gets_only_requested_notifications(modern):
    client = modern()
    exchange = client.begin("subscriptions/listen", LISTEN)
    await exchange.message()
    await change("list_changed", {"kind": "prompts"})
    await change("list_changed", {"kind": "tools"})
    assert (await exchange.message())["method"] == "notifications/tools/list_changed"
    await exchange.hang_up()


async def test_each_channel_has_its_own_limit_beyond_which_calls_wait(limits, either, checkpoints):
    limits(IN_FLIGHT=1)
    client, other = await either(), await either()
    running = [one.begin(CALL, WAIT) for one in (client, other)]
    await checkpoints.until("wait reached", 2)
    waiting = client.begin(CALL, {"name": "add", "arguments": {"a": 1, "b": 2}})
    checkpoints.gate("wait").set()
    assert [text(await exchange.reply()) for exchange in [*running, waiting]] == ["waited", "waited", "3"]


@pytest.mark.transports("websocket", "sse")
@pytest.mark.parametrize(("limit", "status"), [("MAX_STREAMS", 503), ("MAX_STREAMS_PER_OWNER", 429)])
async def test_channels_count_as_streams(limits, latest_legacy, limit, status):
    limits(**{limit: 1})
    client = await latest_legacy()
    with pytest.raises(Refused) as refused:
        await latest_legacy()
    assert refused.value.status == status
    assert float(refused.value.headers["retry-after"]) > 0
    await client.channel.hang_up()
    await nothing_is_open()
    await latest_legacy()


async def test_the_channel_of_a_client_that_reads_nothing_is_closed(limits, clock, either, checkpoints):
    limits(SEND_BUFFER=2, SEND_TIMEOUT=5, KEEP_ALIVE=2)
    client, other = await either(), await either()
    meta = {"io.modelcontextprotocol/logLevel": "debug"} if client.stateless else {}
    exchange = client.begin(CALL, {"name": "flood"}, meta=meta)
    exchange.stop_reading()
    await clock.advance_while(checkpoints.until("flood over"))
    assert checkpoints.counts["flood"] < 1000
    assert (await other.tool("add", {"a": 1, "b": 2})).served
    exchange.read_on()
    await assert_closed(client, 1013)
    client.channel.take_all(exchange, common=True)


async def test_the_channel_of_a_client_that_ignores_refusals_is_closed(settings, either):
    settings.MCP = {**settings.MCP, "RATES": {"PRINCIPAL": "3/h"}}
    client = await either(token="alice")
    while (await client.tool("add", {"a": 1, "b": 2})).served:
        pass
    for _ in range(MAX_CONSECUTIVE_REJECTIONS - 1):
        refused = await client.tool("add", {"a": 1, "b": 2})
        assert "wait" in refused.error["message"]
    client.begin(CALL, {"name": "add", "arguments": {"a": 1, "b": 2}})
    await assert_closed(client, 1013)


async def test_a_shutdown_lets_running_calls_finish_and_refuses_new_ones(either, checkpoints):
    client = await either()
    running = client.begin(CALL, WAIT)
    await checkpoints.until("wait reached")
    closing = asyncio.ensure_future(get_services().lifecycle.shutdown())
    await asyncio.sleep(0)
    assert (await client.tool("add", {"a": 1, "b": 2})).busy(503)
    checkpoints.gate("wait").set()
    assert text(await running.reply()) == "waited"
    await closing
    await assert_closed(client, 1001)


@pytest.mark.transports("websocket", "stdio")
async def test_a_revoked_credential_ends_the_channel(settings, either, monkeypatch, checkpoints):
    settings.MCP = {**settings.MCP, "TOKEN_CACHE_SECONDS": 0}
    known = ["alice", "bob"]
    monkeypatch.setattr("tests.interaction.verifiers.KNOWN", known)
    client, other = await either(token="alice"), await either(token="bob")
    client.begin(CALL, WAIT)
    await checkpoints.until("wait reached")
    known.remove("alice")
    client.begin("tools/list")
    await assert_closed(client, 4401)
    await checkpoints.until("wait cancelled")
    assert (await other.request("tools/list")).served


@pytest.mark.transports("websocket", "stdio")
async def test_a_credential_that_lost_a_scope_ends_the_channel(settings, either, monkeypatch):
    settings.MCP = {**settings.MCP, "TOKEN_CACHE_SECONDS": 0}
    less, more = await either(token="writer"), await either(token="carol")
    monkeypatch.setitem(SCOPES, "writer", frozenset({"notes:read"}))
    monkeypatch.setitem(SCOPES, "carol", frozenset({"notes:read", "notes:write"}))
    less.begin("tools/list")
    await assert_closed(less, 4403)
    assert text(await more.tool("scoped")) == "written"


async def test_messages_wait_while_credentials_cannot_be_verified(settings, either, monkeypatch):
    settings.MCP = {**settings.MCP, "TOKEN_CACHE_SECONDS": 0}
    client = await either()

    class Down:
        def __contains__(self, token):
            raise RuntimeError("the directory is down")

    with monkeypatch.context() as patch:
        patch.setattr("tests.interaction.verifiers.KNOWN", Down())
        reply = await client.request("tools/list")
        assert reply.busy(503)
        assert b"directory" not in reply.body
    assert (await client.request("tools/list")).served


@pytest.mark.transports("sse")
async def test_a_disabled_era_is_refused_with_the_served_versions(latest_legacy):
    client = await latest_legacy()
    reply = await client.beside(STATELESS).request("tools/list")
    assert reply.error["code"] == -32022
    assert reply.error["data"]["supported"] == list(HANDSHAKE)
    assert (await client.request("ping")).served


@pytest.mark.transports("sse")
async def test_the_view_serves_the_same_as_the_asgi_transport(transport, handshake, checkpoints):
    view = ChannelTransport(CHANNEL_TYPES["sse"], get_asgi_application, prefix="/view")
    client = await Client(view, handshake).open()
    assert text(await client.tool("add", {"a": 1, "b": 2})) == "3"
    told = await client.tool("steps", {"count": 3}, meta={"progressToken": 1})
    assert len(told.notifications("notifications/progress")) == 3
    sample = {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "m1"}
    assert text(await client.ask_tool("ask_model", {}, answers([sample]))) == "hello by m1"
    client.begin(CALL, WAIT)
    await checkpoints.until("wait reached")
    await view.close()
    await checkpoints.until("wait cancelled")
    assert (await client.row()).terminated_at is not None
