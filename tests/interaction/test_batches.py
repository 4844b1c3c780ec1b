"""Batches: 2025-03-26 takes them, no other revision does (basic/transports)."""

import pytest

from tests.interaction.clients import Client


def ping(id):
    return {"jsonrpc": "2.0", "id": id, "method": "ping"}


def note(method="notifications/cancelled"):
    return {"jsonrpc": "2.0", "method": method}


@pytest.fixture
def batching(door):
    """A client of the one revision with batches."""
    return Client(door, "2025-03-26").open


def responses(reply):
    """The responses of a batch's answer by id, whether they came as an array or on a stream."""
    flat = [m for one in reply.messages for m in (one if isinstance(one, list) else [one])]
    return {m["id"]: m for m in flat if "id" in m}


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
    assert reply.status == 200
    assert set(found) == {1, "c", "1"}
    assert found["c"]["result"]["content"][0]["text"] == "3"


async def test_a_batch_of_quick_requests_is_answered_with_an_array(batching):
    reply = await (await batching()).post([ping(1), ping(2)])
    assert isinstance(reply.message, list)
    assert len(reply.message) == 2


async def test_a_batch_without_requests_is_accepted(batching):
    reply = await (await batching()).post([note(), note("notifications/initialized")])
    assert (reply.status, reply.body) == (202, b"")


async def test_a_batch_of_answers_is_accepted(batching):
    reply = await (await batching()).post([{"jsonrpc": "2.0", "id": "s1", "result": {}}])
    assert (reply.status, reply.body) == (202, b"")


async def test_notifications_of_a_batch_get_no_answer(batching):
    assert set(responses(await (await batching()).post([note(), ping(1), note()]))) == {1}


async def test_one_bad_element_does_not_spoil_the_others(batching):
    reply = await (await batching()).post([ping(1), {"jsonrpc": "2.0", "id": 2, "method": 7}, ping(3)])
    found = responses(reply)
    assert found[2]["error"]["code"] == -32600
    assert found[1]["result"] == found[3]["result"] == {}


async def test_one_failing_request_does_not_spoil_the_others(batching):
    unknown = {"jsonrpc": "2.0", "id": 2, "method": "nothing/like/this"}
    found = responses(await (await batching()).post([ping(1), unknown]))
    assert found[2]["error"]["code"] == -32601
    assert found[1]["result"] == {}


async def test_initialize_inside_a_batch_is_refused(batching):
    client = await batching()
    hello = {"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": client.introduction()}
    reply = await client.post([ping(1), hello])
    if reply.status == 200:
        assert responses(reply)[2]["error"]["code"] == -32600
    else:
        assert reply.status == 400


async def test_an_empty_batch_is_an_invalid_request(batching):
    reply = await (await batching()).post([])
    assert reply.verdict == (400, -32600)


async def test_requests_and_answers_do_not_mix(batching):
    reply = await (await batching()).post([ping(1), {"jsonrpc": "2.0", "id": "s1", "result": {}}])
    assert reply.status == 400


async def test_what_the_requests_of_a_batch_say_reaches_the_client(batching):
    call = {"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": {"name": "chatter", "arguments": {}}}
    reply = await (await batching()).post([ping(1), call])
    flat = [m for one in reply.messages for m in (one if isinstance(one, list) else [one])]
    assert [m["params"]["level"] for m in flat if m.get("method") == "notifications/message"] == [
        "info",
        "warning",
        "error",
    ]
    assert set(responses(reply)) == {1, "c"}


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_other_revisions_take_one_message(door, version):
    client = await Client(door, version).open()
    assert (await client.post([ping(1)])).verdict == (400, -32600)


async def test_a_batch_without_a_session_wants_a_session(door):
    assert (await Client(door, "2025-03-26").post([ping(1), note()])).status in (200, 400)


async def test_a_huge_batch_is_no_crash(batching):
    client = await batching()
    reply = await client.post([ping(number) for number in range(2000)])
    assert reply.status in (200, 400, 413, 429)
    assert (await client.request("ping")).status == 200
