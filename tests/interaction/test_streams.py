"""JSON or stream, and the effects of disconnects, slow clients and cancellations (basic/patterns)."""

import asyncio
import contextlib
import gc
import json

import pytest

from mcp_django.runtime.calls import call_limiter
from mcp_django.transports.http.handler import get_http_endpoint
from tests.interaction.transports import contract, on_http
from tests.interaction.wire import Exchange, http_scope
from tests.support.waiting import eventually


@pytest.fixture
def quick(limits):
    """A server that turns to a stream after two seconds, and keeps it alive after three."""
    limits(SSE_UPGRADE_AFTER=2, KEEP_ALIVE=3)


def text(reply):
    return reply.result["content"][0]["text"]


@on_http
async def test_a_quick_answer_is_one_json_body(connect):
    reply = await (await connect()).tool("add", {"a": 1, "b": 2})
    assert reply.headers["content-type"] == "application/json"
    assert int(reply.headers["content-length"]) == len(reply.body)


@on_http
async def test_a_client_that_accepts_only_streams_gets_one(connect, subtests):
    """Every response with status 200 is one event; a result of the handshake has its session."""
    client = await connect(headers={"accept": "text/event-stream"})
    errors = ["tools/nothing"] if client.stateless else []
    for method, params in [("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}), ("tools/list", {})]:
        with subtests.test(method=method):
            reply = await client.request(method, params)
            assert reply.is_stream
            assert reply.body.startswith(b"event: message\ndata: {")
            assert reply.result
    for method in errors:
        with subtests.test(method=method):
            reply = await client.request(method)
            assert (reply.status, reply.headers["content-type"]) == (404, "application/json")


@on_http
async def test_a_client_of_the_handshake_that_accepts_only_streams_gets_errors_in_one(legacy):
    reply = await (await legacy(headers={"accept": "text/event-stream"})).request("tools/nothing")
    assert (reply.is_stream, reply.verdict) == (True, (200, -32601))


@on_http
async def test_a_slow_answer_becomes_a_stream(quick, clock, either, checkpoints):
    exchange = (await either()).begin("tools/call", {"name": "wait"})
    status, headers = await clock.advance_while(exchange.started())
    assert (status, headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
    checkpoints.gate("wait").set()
    assert text(await exchange.reply()) == "waited"


async def test_a_slow_answer_within_the_time_is_one_json_body(either, checkpoints):
    exchange = (await either()).begin("tools/call", {"name": "wait"})
    await checkpoints.until("wait reached")
    checkpoints.gate("wait").set()
    assert not (await exchange.reply()).is_stream


@contract
async def test_the_first_notification_opens_a_stream_at_once(either, checkpoints):
    exchange = (await either()).begin("tools/call", {"name": "speak_then_wait"}, meta={"progressToken": 1})
    assert (await exchange.message())["method"] == "notifications/progress"
    checkpoints.gate("wait").set()
    assert text(await exchange.reply()) == "waited"


@on_http
async def test_a_stream_asks_proxies_not_to_buffer_or_keep_it(either):
    reply = await (await either()).tool("steps", {"count": 1}, meta={"progressToken": 1})
    assert reply.headers["x-accel-buffering"] == "no"
    assert "no-cache" in reply.headers["cache-control"]
    assert "content-length" not in reply.headers


@on_http
async def test_a_silent_stream_is_kept_alive_with_comments(quick, clock, either, checkpoints):
    exchange = (await either()).begin("tools/call", {"name": "wait"})
    await clock.advance_while(exchange.started())
    for _ in range(3):
        await clock.advance_while(exchange.silence())
    checkpoints.gate("wait").set()
    assert text(await exchange.reply()) == "waited"


async def test_events_of_the_stateless_era_have_no_ids(modern):
    reply = await modern().tool("steps", {"count": 2}, meta={"progressToken": 1}, headers={"last-event-id": "5"})
    assert not [line for line in reply.body.splitlines() if line.startswith((b"id:", b"retry:"))]


@contract
async def test_a_handler_waits_for_a_slow_client(either, checkpoints):
    client = await either()
    if client.stateless:
        exchange = client.begin("tools/call", {"name": "flood"}, meta={"io.modelcontextprotocol/logLevel": "debug"})
    else:
        exchange = client.begin("tools/call", {"name": "flood"})
    exchange.stop_reading()
    await checkpoints.until("flood", 10)
    for _ in range(200):
        await asyncio.sleep(0)
    assert checkpoints.counts["flood"] < 1000
    exchange.read_on()
    reply = await exchange.reply()
    assert [params["data"] for params in reply.notifications("notifications/message")] == list(range(1000))
    assert text(reply) == "done"


@contract
async def test_a_disconnect_cancels_a_stateless_call(modern, checkpoints, subtests):
    for tool in ["wait", "speak_then_wait"]:
        with subtests.test(tool=tool):
            checkpoints.reset()
            exchange = modern().begin("tools/call", {"name": tool}, meta={"progressToken": 1})
            await checkpoints.until("wait reached")
            exchange.leave()
            await checkpoints.until("wait cancelled")
            await exchange.end()


@on_http
async def test_a_disconnect_from_a_late_stream_cancels_a_stateless_call(quick, clock, modern, checkpoints):
    exchange = modern().begin("tools/call", {"name": "wait"})
    await clock.advance_while(exchange.started())
    exchange.leave()
    await checkpoints.until("wait cancelled")
    await exchange.end()


@on_http
async def test_a_failed_send_counts_as_a_disconnect(quick, clock, transport, modern, checkpoints):
    """Servers and wrappers of applications report a disconnect with different exceptions."""
    app, told = transport.app, asyncio.Event()

    async def breaks(scope, receive, send):
        async def refuse(event):
            told.set()
            raise RuntimeError("the transport is closed")

        with contextlib.suppress(RuntimeError):
            await app(scope, receive, refuse)

    client = modern()
    message = client.request_message("tools/call", {"name": "wait", "arguments": {}})
    body = json.dumps(message).encode()
    exchange = Exchange(breaks, http_scope("POST", client.path(), client.headers(message)), [body], lambda _: None)
    await checkpoints.until("wait reached")
    await clock.advance_while(told.wait())
    await exchange.end()
    gc.collect()  # behind the view the response is in a cycle with the exception
    await checkpoints.until("wait cancelled")


@on_http
async def test_a_disconnect_does_not_cancel_a_call_of_a_session(latest_legacy, checkpoints, subtests):
    for tool in ["wait", "speak_then_wait"]:
        with subtests.test(tool=tool):
            checkpoints.reset()
            exchange = (await latest_legacy()).begin("tools/call", {"name": tool}, meta={"progressToken": 1})
            await checkpoints.until("wait reached")
            exchange.leave()
            await exchange.end()
            assert checkpoints.counts["wait cancelled"] == 0
            checkpoints.gate("wait").set()
            await checkpoints.until("wait passed")


async def test_a_call_left_by_its_client_still_counts_as_in_flight(limits, latest_legacy, checkpoints, no_queue):
    limits(IN_FLIGHT=1)
    client = await latest_legacy()
    exchange = client.begin("tools/call", {"name": "wait"})
    await checkpoints.until("wait reached")
    exchange.leave()
    await exchange.end()
    assert (await client.tool("add", {"a": 1, "b": 2})).busy(429)
    checkpoints.gate("wait").set()
    await checkpoints.until("wait passed")


@contract
async def test_a_cancelled_notification_cancels_the_call_it_names(legacy, checkpoints):
    client = await legacy()
    exchange = client.begin("tools/call", {"name": "wait"}, id="five")
    await checkpoints.until("wait reached")
    assert (await client.notify("notifications/cancelled", {"requestId": "five", "reason": "bored"})).accepted
    await checkpoints.until("wait cancelled")
    reply = await exchange.reply()
    assert reply.messages == []


async def test_why_a_call_is_cancelled_is_logged_on_one_line(latest_legacy, checkpoints, caplog):
    client = await latest_legacy()
    exchange = client.begin("tools/call", {"name": "wait"}, id="five")
    await checkpoints.until("wait reached")
    with caplog.at_level("DEBUG", "mcp_django.server"):
        await client.notify("notifications/cancelled", {"requestId": "five", "reason": "bored\nof it" + "!" * 500})
        await exchange.reply()
    (line,) = [record.getMessage() for record in caplog.records if "cancelled by the client" in record.getMessage()]
    assert line.startswith("Request cancelled by the client: five: bored\\nof it!")
    assert len(line) < 200


async def test_a_cancelled_call_s_stream_ends_without_an_answer(latest_legacy, checkpoints):
    client = await latest_legacy()
    exchange = client.begin("tools/call", {"name": "speak_then_wait"}, id=5, meta={"progressToken": 1})
    await checkpoints.until("wait reached")
    await client.notify("notifications/cancelled", {"requestId": 5})
    reply = await exchange.reply()
    assert [message.get("method") for message in reply.messages] == ["notifications/progress"]


async def test_a_cancellation_of_an_unknown_request_is_ignored(latest_legacy, checkpoints, subtests):
    for params in [{"requestId": "other"}, {"requestId": "5"}, {"requestId": []}, {"requestId": None}, {}, None]:
        with subtests.test(params=params):
            checkpoints.reset()
            client = await latest_legacy()
            exchange = client.begin("tools/call", {"name": "wait"}, id=5)
            await checkpoints.until("wait reached")
            assert (await client.notify("notifications/cancelled", params)).accepted
            checkpoints.gate("wait").set()
            assert text(await exchange.reply()) == "waited"


async def test_a_session_cannot_cancel_calls_of_another(latest_legacy, checkpoints):
    client, other = await latest_legacy(), await latest_legacy()
    exchange = client.begin("tools/call", {"name": "wait"}, id=5)
    await checkpoints.until("wait reached")
    await other.notify("notifications/cancelled", {"requestId": 5})
    checkpoints.gate("wait").set()
    assert text(await exchange.reply()) == "waited"


async def test_a_cancelled_notification_is_ignored_in_the_stateless_era(modern, checkpoints):
    client = modern()
    exchange = client.begin("tools/call", {"name": "wait"}, id=5)
    await checkpoints.until("wait reached")
    assert (await client.notify("notifications/cancelled", {"requestId": 5}, routing={"mcp-method": None})).accepted
    checkpoints.gate("wait").set()
    assert text(await exchange.reply()) == "waited"


@contract
async def test_an_id_in_flight_cannot_be_used_again_in_a_session(latest_legacy, checkpoints):
    client = await latest_legacy()
    exchange = client.begin("tools/call", {"name": "wait"}, id=5)
    await checkpoints.until("wait reached")
    reply = await client.request("tools/call", {"name": "wait"}, id=5)
    assert reply.error["code"] == -32600
    checkpoints.gate("wait").set()
    assert text(await exchange.reply()) == "waited"


async def test_clients_of_the_stateless_era_may_use_the_same_id_at_once(modern, checkpoints):
    alice, bob = modern(token="alice"), modern(token="bob")
    exchanges = [client.begin("tools/call", {"name": "wait"}, id=5) for client in (alice, bob)]
    await checkpoints.until("wait reached", 2)
    checkpoints.gate("wait").set()
    assert [text(await exchange.reply()) for exchange in exchanges] == ["waited", "waited"]


@contract
async def test_requests_are_answered_side_by_side(either, checkpoints):
    client = await either()
    slow = client.begin("tools/call", {"name": "wait"})
    await checkpoints.until("wait reached")
    assert text(await client.tool("add", {"a": 1, "b": 2})) == "3"
    checkpoints.gate("wait").set()
    assert text(await slow.reply()) == "waited"


@on_http
async def test_calls_beyond_the_limit_wait_and_those_beyond_the_queue_are_refused_at_once(
    limits, either, checkpoints, monkeypatch
):
    monkeypatch.setattr(call_limiter, "MAX_QUEUED_CALLS", 3)
    limits(IN_FLIGHT=2)
    client = await either()
    exchanges = [client.begin("tools/call", {"name": "wait"}) for _ in range(2)]
    await checkpoints.until("wait reached", 2)
    waiting = [client.begin("tools/call", {"name": "wait"}) for _ in range(3)]
    refused = client.begin("tools/call", {"name": "wait"})
    assert (await refused.reply()).busy(429)
    assert checkpoints.counts["wait reached"] == 2
    checkpoints.gate("wait").set()
    for exchange in [*exchanges, *waiting]:
        assert text(await exchange.reply()) == "waited"
    assert (await client.tool("add", {"a": 1, "b": 2})).served


@on_http
async def test_a_disconnect_ends_the_wait_of_a_queued_call(limits, modern, checkpoints):
    limits(IN_FLIGHT=1)
    client = modern()
    first = client.begin("tools/call", {"name": "wait"})
    await checkpoints.until("wait reached")
    waiting, last = [client.begin("tools/call", {"name": "wait"}) for _ in range(2)]
    await eventually(lambda: waiting_calls() == 2)
    waiting.leave()
    await waiting.end()
    await eventually(lambda: waiting_calls() == 1)
    checkpoints.gate("wait").set()
    assert [text(await exchange.reply()) for exchange in (first, last)] == ["waited", "waited"]
    assert checkpoints.counts["wait reached"] == 2


@on_http
async def test_a_waiting_call_can_be_cancelled(limits, latest_legacy, checkpoints):
    limits(IN_FLIGHT=1)
    client = await latest_legacy()
    first = client.begin("tools/call", {"name": "wait"})
    await checkpoints.until("wait reached")
    waiting = client.begin("tools/call", {"name": "wait"}, id="five")
    await eventually(lambda: waiting_calls() == 1)
    assert (await client.notify("notifications/cancelled", {"requestId": "five"})).accepted
    assert (await waiting.reply()).messages == []
    checkpoints.gate("wait").set()
    assert text(await first.reply()) == "waited"
    assert checkpoints.counts["wait reached"] == 1


def waiting_calls() -> int:
    """Count the calls in the queues of the server."""
    return sum(len(queue.calls) for queue in get_http_endpoint("interaction")._limiter._calls._queues.values())


async def test_the_limit_of_calls_is_per_principal(limits, modern, checkpoints):
    limits(IN_FLIGHT=1)
    exchange = modern(token="alice").begin("tools/call", {"name": "wait"})
    await checkpoints.until("wait reached")
    assert (await modern(token="bob").tool("add", {"a": 1, "b": 2})).served
    checkpoints.gate("wait").set()
    await exchange.reply()


async def test_a_client_that_left_makes_room_for_another_call(limits, modern, checkpoints):
    limits(IN_FLIGHT=1)
    client = modern()
    exchange = client.begin("tools/call", {"name": "wait"})
    await checkpoints.until("wait reached")
    exchange.leave()
    await checkpoints.until("wait cancelled")
    await exchange.end()
    assert (await client.tool("add", {"a": 1, "b": 2})).served


async def test_no_notification_is_sent_after_the_response(either, checkpoints):
    client = await either()
    reply = await client.tool("talk_on", meta={"progressToken": 1})
    checkpoints.gate("afterwards").set()
    await checkpoints.until("talked on")
    assert [message.get("method") for message in reply.messages] == ["notifications/progress", None]
    assert text(await client.tool("add", {"a": 1, "b": 2})) == "3"


@contract
async def test_a_request_without_an_id_is_a_notification_and_runs_nothing(either, checkpoints):
    client = await either()
    reply = await client.notify(
        "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, routing={"mcp-name": None}
    )
    assert reply.accepted
    assert checkpoints.counts["add"] == 0


async def test_a_notification_with_an_id_is_an_unknown_method(either):
    reply = await (await either()).request("notifications/initialized")
    assert reply.error["code"] == -32601
