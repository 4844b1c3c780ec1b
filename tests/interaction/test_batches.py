"""Batches: 2025-03-26 takes them, no other revision does (basic/transports)."""

import pytest

from tests.interaction.clients import Client
from tests.interaction.transports import contract, on_http


def ping(id):
    return {"jsonrpc": "2.0", "id": id, "method": "ping"}


def note(method="notifications/cancelled"):
    return {"jsonrpc": "2.0", "method": method}


@pytest.fixture
def batching(transport):
    """A client of the one revision with batches."""
    return Client(transport, "2025-03-26").open


def responses(reply):
    """The responses of a batch's answer by id, whether they came as an array or on a stream."""
    flat = [m for one in reply.messages for m in (one if isinstance(one, list) else [one])]
    return {m["id"]: m for m in flat if "id" in m}


@contract
async def test_every_request_of_a_batch_is_answered(batching):
    client = await batching()
    call = {
        "jsonrpc": "2.0",
        "id": "c",
        "method": "tools/call",
        "params": {"name": "add", "arguments": {"a": 1, "b": 2}},
    }
    reply = await client.post([ping(1), call, ping("1")])
    found = responses(reply)
    assert reply.served
    assert set(found) == {1, "c", "1"}
    assert found["c"]["result"]["content"][0]["text"] == "3"


async def test_a_batch_of_quick_requests_is_answered_with_an_array(batching):
    reply = await (await batching()).post([ping(1), ping(2)])
    assert isinstance(reply.message, list)
    assert len(reply.message) == 2


async def test_a_batch_without_requests_is_accepted(batching):
    reply = await (await batching()).post([note(), note("notifications/initialized")])
    assert reply.accepted


async def test_a_batch_of_answers_is_accepted(batching):
    reply = await (await batching()).post([{"jsonrpc": "2.0", "id": "s1", "result": {}}])
    assert reply.accepted


async def test_notifications_of_a_batch_get_no_answer(batching):
    assert set(responses(await (await batching()).post([note(), ping(1), note()]))) == {1}


async def test_one_invalid_element_does_not_affect_the_others(batching):
    reply = await (await batching()).post([ping(1), {"jsonrpc": "2.0", "id": 2, "method": 7}, ping(3)])
    found = responses(reply)
    assert found[2]["error"]["code"] == -32600
    assert found[1]["result"] == found[3]["result"] == {}


async def test_one_failing_request_does_not_affect_the_others(batching):
    unknown = {"jsonrpc": "2.0", "id": 2, "method": "nothing/like/this"}
    found = responses(await (await batching()).post([ping(1), unknown]))
    assert found[2]["error"]["code"] == -32601
    assert found[1]["result"] == {}


async def test_initialize_inside_a_batch_is_refused(batching):
    client = await batching()
    hello = {"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": client.introduction()}
    reply = await client.post([ping(1), hello])
    assert reply.refused(400, -32600) or responses(reply)[2]["error"]["code"] == -32600


async def test_an_empty_batch_is_an_invalid_request(batching):
    reply = await (await batching()).post([])
    assert reply.refused(400, -32600)


async def test_a_batch_of_requests_and_responses_is_refused(batching):
    reply = await (await batching()).post([ping(1), {"jsonrpc": "2.0", "id": "s1", "result": {}}])
    assert reply.refused(400, -32600)


@contract
async def test_notifications_of_batched_requests_reach_the_client(batching):
    call = {"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": {"name": "chatter", "arguments": {}}}
    reply = await (await batching()).post([ping(1), call])
    flat = [m for one in reply.messages for m in (one if isinstance(one, list) else [one])]
    assert [m["params"]["level"] for m in flat if m.get("method") == "notifications/message"] == [
        "info",
        "warning",
        "error",
    ]
    assert set(responses(reply)) == {1, "c"}


async def test_other_revisions_refuse_a_batch(transport, subtests):
    for version in ["2024-11-05", "2025-06-18", "2025-11-25"]:
        with subtests.test(version=version):
            client = await Client(transport, version).open()
            assert (await client.post([ping(1)])).refused(400, -32600)


async def test_a_batch_without_a_session_is_refused(transport):
    assert (await Client(transport, "2025-03-26").post([ping(1), note()])).status in (200, 400)


async def test_a_huge_batch_is_refused_without_a_crash(batching):
    client = await batching()
    reply = await client.post([ping(number) for number in range(2000)])
    assert reply.refused(400, -32600)
    assert (await client.request("ping")).served


def waits(*ids):
    calls = [{"id": f"w{id}" if type(id) is int else id, "params": {"name": "wait"}} for id in ids]
    return [{"jsonrpc": "2.0", "method": "tools/call", **call} for call in calls]


async def test_every_call_of_a_batch_counts_as_in_flight(limits, batching, checkpoints, no_queue):
    limits(IN_FLIGHT=3)
    client = await batching()
    exchange = client.send(waits(1, 2))
    await checkpoints.until("wait reached", 2)
    refused = await client.post(waits(3, 4))
    assert refused.busy(429)
    assert [answer["id"] for answer in refused.answers] == ["w3", "w4"], "beyond the queue, each call gets an error"
    third = client.send(waits(5)[0])
    await checkpoints.until("wait reached", 3)
    assert (await client.tool("add", {"a": 1, "b": 2})).busy(429)
    checkpoints.gate("wait").set()
    assert set(responses(await exchange.reply())) == {"w1", "w2"}
    assert (await third.reply()).served
    assert set(responses(await client.post(waits(6, 7, 8)))) == {"w6", "w7", "w8"}, "nothing stays counted"


@on_http
async def test_a_batch_waits_until_all_of_its_calls_may_run(limits, batching, checkpoints):
    limits(IN_FLIGHT=3)
    client = await batching()
    first = client.send(waits(1, 2))
    await checkpoints.until("wait reached", 2)
    second = client.send(waits(3, 4))
    assert (await client.request("ping")).served
    assert checkpoints.counts["wait reached"] == 2
    checkpoints.gate("wait").set()
    assert [set(responses(await batch.reply())) for batch in (first, second)] == [{"w1", "w2"}, {"w3", "w4"}]


async def test_a_batch_larger_than_the_limit_of_calls_is_refused_without_retry(limits, batching):
    limits(IN_FLIGHT=3)
    client = await batching()
    reply = await client.post(waits(1, 2, 3, 4))
    assert reply.refused(400, -32600)
    assert b"may hold 3 calls" in reply.body
    assert (await client.tool("add", {"a": 1, "b": 2})).served


@pytest.mark.parametrize(("count", "fits"), [(4, True), (5, False)])
async def test_the_number_of_messages_in_a_batch_is_limited(monkeypatch, batching, count, fits):
    monkeypatch.setattr("mcp_django.server.batch.MAX_BATCH_MESSAGES", 4)
    reply = await (await batching()).post([ping(number) for number in range(count)])
    assert len(responses(reply)) == 4 if fits else reply.refused(400, -32600)


async def test_a_repeated_or_running_id_in_a_batch_is_refused(batching, checkpoints):
    client = await batching()
    running = client.begin("tools/call", {"name": "wait"}, id="taken")
    await checkpoints.until("wait reached")
    exchange = client.send([*waits("taken", 1), *waits(1)])
    await checkpoints.until("wait reached", 2)
    checkpoints.gate("wait").set()
    flat = [m for one in (await exchange.reply()).messages for m in (one if isinstance(one, list) else [one])]
    assert sorted((str(m["id"]), "error" in m) for m in flat) == [("taken", True), ("w1", False), ("w1", True)]
    assert (await running.reply()).served


@contract
async def test_one_call_of_a_batch_can_be_cancelled(batching, checkpoints):
    client = await batching()
    exchange = client.send(waits(1, 2))
    await checkpoints.until("wait reached", 2)
    await client.notify("notifications/cancelled", {"requestId": "w1"})
    await checkpoints.until("wait cancelled")
    checkpoints.gate("wait").set()
    assert set(responses(await exchange.reply())) == {"w2"}


async def test_a_cancelled_batch_has_no_response_and_frees_its_places(limits, batching, checkpoints):
    limits(IN_FLIGHT=2)
    client = await batching()
    exchange = client.send(waits(1, 2))
    await checkpoints.until("wait reached", 2)
    for id in (1, 2):
        await client.notify("notifications/cancelled", {"requestId": f"w{id}"})
    reply = await exchange.reply()
    assert (reply.status in (200, None), reply.messages) == (True, [])
    checkpoints.gate("wait").set()
    assert set(responses(await client.post(waits(3, 4)))) == {"w3", "w4"}


async def test_the_end_of_a_session_ends_its_batch(limits, batching, checkpoints):
    client = await batching()
    exchange = client.send([note("notifications/initialized"), *waits(1, 2)])
    await checkpoints.until("wait reached", 2)
    assert (await client.post(method="DELETE", body=b"")).status in (200, 204)
    await checkpoints.until("wait cancelled", 2)
    assert (await exchange.reply()).messages == []
