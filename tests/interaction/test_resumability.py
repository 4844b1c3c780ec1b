"""A client that lost the stream of its call continues after its last event (basic/transports, resumability).

The events of a call are numbered by its stream; each test compares the events that a client read over all its
connections with the events that were sent.
"""

import json

import pytest

from mcp_django import wiring
from mcp_django.runtime.streams.call_streams import CallStreams
from mcp_django.transports.http.handler import get_http_endpoint
from tests.interaction.clients import HANDSHAKE, REVISIONS, accept
from tests.interaction.transports import on_http
from tests.support.waiting import eventually

pytestmark = pytest.mark.revisions(HANDSHAKE[0], HANDSHAKE[-1])

POLLING = HANDSHAKE[-1]


def text(message):
    return message["result"]["content"][0]["text"]


def data(message):
    return message["params"]["data"]


def begin(client, tool="count", **arguments):
    return client.begin("tools/call", {"name": tool, "arguments": arguments})


@pytest.fixture
def move(transport):
    """`move()`: from now on requests reach another worker, which has no calls of its own so far."""

    def elsewhere():
        known = get_http_endpoint("interaction")._session_streams
        other = CallStreams(wiring.get_services().event_publisher, lambda work: None)
        before, known.get_call_streams = known.get_call_streams, lambda: other
        limits = known._services.replay_limits
        get_http_endpoint("interaction")._open_replay_buffer = lambda session: other.open_stream(session, limits)
        return before()

    return elsewhere


async def read(exchange, *numbers):
    """The numbers come next, in order and once."""
    assert [data(await exchange.message()) for _ in numbers] == list(numbers)


async def finish(exchange):
    assert text(await exchange.message()) == "counted"
    assert await exchange.frame() is None
    await exchange.end()


async def frames_of(exchange):
    """All that is left of a stream."""
    frames = []
    while (frame := await exchange.frame()) is not None:
        frames.append(frame)
    await exchange.end()
    return frames


async def leave(exchange):
    exchange.leave()
    await exchange.end()


@on_http
async def test_a_resumed_stream_sends_missed_events_and_the_response(legacy, checkpoints):
    client = await legacy()
    exchange = begin(client, to=3)
    checkpoints.gate("say 1").set()
    await read(exchange, 1)
    await leave(exchange)
    for gate in ("say 2", "say 3", "answer"):
        checkpoints.gate(gate).set()
    await checkpoints.until("answered")
    again = client.listen(exchange.last_id)
    assert (await again.started())[0] == 200
    await read(again, 2, 3)
    await finish(again)


async def test_a_client_resumes_while_the_call_still_sends_events(legacy, checkpoints):
    client = await legacy()
    exchange = begin(client, to=3)
    checkpoints.gate("say 1").set()
    await read(exchange, 1)
    await leave(exchange)
    again = client.listen(exchange.last_id)
    await again.started()
    checkpoints.gate("say 2").set()
    await read(again, 2)
    await leave(again)
    for gate in ("say 3", "answer"):
        checkpoints.gate(gate).set()
    third = client.listen(again.last_id)
    await read(third, 3)
    await finish(third)


@on_http
async def test_a_resumption_replaces_a_connection_that_seems_alive(legacy, checkpoints):
    client = await legacy()
    exchange = begin(client, to=2)
    checkpoints.gate("say 1").set()
    await read(exchange, 1)
    first = exchange.last_id
    again = client.listen(first)
    await again.started()
    assert await exchange.frame() is None
    await exchange.end()
    for gate in ("say 2", "answer"):
        checkpoints.gate(gate).set()
    await read(again, 2)
    await finish(again)


async def test_events_lost_by_a_dead_connection_are_sent_again(legacy, checkpoints):
    client = await legacy()
    exchange = begin(client, to=3)
    for gate in ("say 1", "say 2", "say 3"):
        checkpoints.gate(gate).set()
    await read(exchange, 1)
    seen = exchange.last_id
    await read(exchange, 2, 3)
    checkpoints.gate("answer").set()
    await finish(exchange)
    again = client.listen(seen)
    await read(again, 2, 3)
    await finish(again)


async def test_every_event_has_an_id_of_its_own(legacy, checkpoints):
    client = await legacy()
    streams = []
    for _ in range(2):
        exchange = client.begin("tools/call", {"name": "steps", "arguments": {"count": 3}}, meta={"progressToken": 1})
        streams.append([frame.id for frame in await frames_of(exchange)])
    assert None not in streams[0] + streams[1]
    assert len({*streams[0], *streams[1]}) == len(streams[0]) + len(streams[1])


@pytest.mark.revisions(*HANDSHAKE)
async def test_streams_open_with_an_id_where_clients_can_read_it(legacy, handshake):
    client = await legacy()
    exchange = client.begin("tools/call", {"name": "steps", "arguments": {"count": 1}}, meta={"progressToken": 1})
    first, *_ = await frames_of(exchange)
    assert (first.data == b"") is (handshake == POLLING)
    assert first.id


async def test_a_client_can_resume_with_the_first_id_only(latest_legacy, checkpoints):
    client = await latest_legacy()
    exchange = begin(client, "poll")
    primed = await exchange.frame()
    checkpoints.gate("poll").set()
    again = client.listen(primed.id)
    assert data(await again.message()) == "meanwhile"
    assert text(await again.message()) == "closed"


async def test_a_handler_closes_the_stream_and_the_client_resumes_it(latest_legacy, checkpoints, subtests):
    for first in ["", "word"]:
        with subtests.test(first=first):
            checkpoints.reset()
            client = await latest_legacy()
            exchange = begin(client, "poll", first=first, retry=0.25)
            frames = await frames_of(exchange)
            assert frames[0].data == b""
            assert [json.loads(frame.data)["params"]["data"] for frame in frames if frame.data] == (
                [first] if first else []
            )
            assert (frames[-1].data, frames[-1].retry) == (b"", 250)
            await checkpoints.until("poll reached")
            again = client.listen(exchange.last_id)
            checkpoints.gate("poll").set()
            assert data(await again.message()) == "meanwhile"
            assert text(await again.message()) == "closed"


async def test_a_plain_function_closes_the_stream(latest_legacy):
    client = await latest_legacy()
    exchange = begin(client, "poll_in_a_thread")
    assert (await frames_of(exchange))[-1].retry == 250
    again = client.listen(exchange.last_id)
    assert text(await again.message()) == "closed"


@pytest.mark.revisions(*REVISIONS)
async def test_the_stream_is_not_closed_in_a_revision_without_polling(connect, revision, checkpoints):
    if revision == POLLING:
        return
    client = await connect()
    checkpoints.gate("poll").set()
    exchange = begin(client, "poll")
    reply = await exchange.reply()
    assert text(reply.message) == "not closed"


async def test_a_question_sent_during_a_disconnect_reaches_the_client(latest_legacy, checkpoints):
    client = await latest_legacy()
    exchange = begin(client, "ask_after_gate")
    assert data(await exchange.message()) == "before"
    await leave(exchange)
    checkpoints.gate("ask").set()
    await checkpoints.until("ask passed")
    again = client.listen(exchange.last_id)
    question = await again.message()
    assert question["method"] == "elicitation/create"
    await client.answer(question["id"], accept(value="Ada"))
    assert text(await again.message()) == "Hello Ada"


async def test_a_call_without_a_reader_does_not_wait_for_one(limits, latest_legacy, checkpoints):
    limits(SEND_BUFFER=2)
    client = await latest_legacy()
    exchange = begin(client, "chatter_on", to=50)
    await read(exchange, 1)
    await leave(exchange)
    checkpoints.gate("chatter").set()
    await checkpoints.until("chattered", 49)
    again = client.listen(exchange.last_id)
    await read(again, *range(2, 51))
    await finish(again)


@on_http
async def test_resuming_after_discarded_events_is_refused(limits, latest_legacy, checkpoints):
    limits(EVENTS=5)
    client = await latest_legacy()
    exchange = begin(client, "chatter_on", to=50)
    await read(exchange, 1)
    await leave(exchange)
    checkpoints.gate("chatter").set()
    await checkpoints.until("chattered", 49)
    reply = await client.listen(exchange.last_id).reply()
    assert (reply.status, b"have expired" in reply.body) == (400, True)


async def test_a_changed_event_id_is_a_bad_request(latest_legacy, checkpoints, subtests):
    for change in [lambda id: id + "x", lambda id: id.replace(".1.", ".2.", 1), lambda id: "é", str.upper]:
        with subtests.test(change=change):
            checkpoints.reset()
            client = await latest_legacy()
            exchange = begin(client, to=1)
            checkpoints.gate("say 1").set()
            await read(exchange, 1)
            reply = await client.listen(change(exchange.last_id)).reply()
            assert reply.status == 400
            checkpoints.gate("answer").set()
            await finish(exchange)


async def test_an_event_id_of_another_session_is_a_bad_request(latest_legacy, checkpoints):
    client, other = await latest_legacy(), await latest_legacy()
    exchange = begin(client, to=1)
    checkpoints.gate("say 1").set()
    await read(exchange, 1)
    assert (await other.listen(exchange.last_id).reply()).status == 400
    checkpoints.gate("answer").set()
    await finish(exchange)


async def test_another_owner_cannot_resume_in_a_session(latest_legacy, checkpoints):
    client = await latest_legacy(token="alice")
    exchange = begin(client, to=1)
    checkpoints.gate("say 1").set()
    await read(exchange, 1)
    client.token = "bob"
    assert (await client.listen(exchange.last_id).reply()).status == 404
    client.token = "alice"
    checkpoints.gate("answer").set()
    await finish(exchange)


async def test_the_stream_of_a_cancelled_call_is_over(latest_legacy, checkpoints, monkeypatch):
    monkeypatch.setattr("mcp_django.runtime.streams.remote_reader.ATTACH_INTERVAL_SECONDS", 0.01)
    client = await latest_legacy()
    exchange = client.begin("tools/call", {"name": "speak_then_wait"}, id=5, meta={"progressToken": 1})
    await exchange.message()
    await leave(exchange)
    await client.notify("notifications/cancelled", {"requestId": 5})
    await checkpoints.until("wait cancelled")
    assert (await client.listen(exchange.last_id).reply()).status == 400


async def test_the_end_of_the_session_ends_a_stream_that_was_resumed(latest_legacy, checkpoints):
    client = await latest_legacy()
    exchange = begin(client, to=1)
    checkpoints.gate("say 1").set()
    await read(exchange, 1)
    await leave(exchange)
    again = client.listen(exchange.last_id)
    await again.started()
    await client.post(method="DELETE", body=b"", headers={"content-type": None})
    await frames_of(again)


@on_http
async def test_a_client_resumes_at_another_worker(legacy, move, checkpoints):
    client = await legacy()
    exchange = begin(client, to=4)
    for gate in ("say 1", "say 2"):
        checkpoints.gate(gate).set()
    await read(exchange, 1)
    seen = exchange.last_id
    await read(exchange, 2)
    move()
    again = client.listen(seen)
    await read(again, 2)
    assert await exchange.frame() is None
    checkpoints.gate("say 3").set()
    await read(again, 3)
    checkpoints.gate("say 4").set()
    checkpoints.gate("answer").set()
    await read(again, 4)
    await finish(again)


async def test_a_client_resumes_at_several_workers(latest_legacy, move, checkpoints):
    client = await latest_legacy()
    exchange = begin(client, to=6)
    for number in range(1, 6):
        checkpoints.gate(f"say {number}").set()
        await read(exchange, number)
        if number != 3:
            move()
        if number % 2:
            await leave(exchange)
        exchange = client.listen(exchange.last_id)
        await exchange.started()
    for gate in ("say 6", "answer"):
        checkpoints.gate(gate).set()
    await read(exchange, 6)
    await finish(exchange)


async def test_events_are_not_relayed_for_a_client_that_left_another_worker(latest_legacy, move, checkpoints):
    client = await latest_legacy()
    exchange = begin(client, to=2)
    checkpoints.gate("say 1").set()
    await read(exchange, 1)
    home = move()
    again = client.listen(exchange.last_id)
    await again.started()
    (ring,) = home.store._buffers.values()
    assert ring.reader.relay_name
    await leave(again)
    await eventually(lambda: ring.reader is None)
    checkpoints.gate("say 2").set()
    await checkpoints.until("said 2")


async def test_repeated_resumptions_do_not_fill_the_event_log(limits, latest_legacy, move, checkpoints, monkeypatch):
    limits(SSE_UPGRADE_AFTER=0.01)  # The stream starts before the first message.
    monkeypatch.setattr("mcp_django.runtime.streams.call_streams.MAX_REPEATED_BYTES", 1000)
    client = await latest_legacy()
    exchange = begin(client, to=2)
    await exchange.started()
    first = (await exchange.frame()).id
    for gate in ("say 1", "say 2"):
        checkpoints.gate(gate).set()
    await read(exchange, 1, 2)
    home = move()
    for _ in range(3):
        again = client.listen(first)
        await read(again, 1, 2)
        await leave(again)
    assert (await client.listen(first).reply()).status == 400
    (ring,) = home.store._buffers.values()
    assert 1000 < ring.repeated_bytes < 2500
    checkpoints.gate("answer").set()
    await checkpoints.until("answered")


async def test_events_are_not_relayed_for_a_client_whose_worker_ended(latest_legacy, move, checkpoints):
    client = await latest_legacy()
    exchange = begin(client, to=2)
    checkpoints.gate("say 1").set()
    await read(exchange, 1)
    home = move()
    again = client.listen(exchange.last_id)
    await again.started()
    (ring,) = home.store._buffers.values()
    assert ring.reader.relay_name
    (readers,) = get_http_endpoint("interaction")._session_streams.get_call_streams().session_streams.values()
    for reader in list(readers):
        reader.end()
    await frames_of(again)
    await eventually(lambda: ring.reader is None)
    for gate in ("say 2", "answer"):
        checkpoints.gate(gate).set()
    await checkpoints.until("answered")
    assert not ring.is_delivered


async def test_a_handler_closes_the_stream_of_a_client_at_another_worker(latest_legacy, move, checkpoints):
    client = await latest_legacy()
    exchange = begin(client, "ask_after_gate")
    await exchange.message()
    home = move()
    again = client.listen(exchange.last_id)
    await again.started()
    (ring,) = home.store._buffers.values()
    assert ring.disconnect_reader(0.5)
    frames = await frames_of(again)
    assert frames[-1].retry == 500


async def test_resuming_events_discarded_by_another_worker_is_refused(limits, latest_legacy, move, checkpoints):
    limits(EVENTS=5)
    client = await latest_legacy()
    exchange = begin(client, "chatter_on", to=50)
    await read(exchange, 1)
    await leave(exchange)
    checkpoints.gate("chatter").set()
    await checkpoints.until("chattered", 49)
    move()
    assert (await client.listen(exchange.last_id).reply()).status == 400


async def test_a_call_that_died_with_its_worker_is_refused(latest_legacy, move, checkpoints, monkeypatch):
    monkeypatch.setattr("mcp_django.runtime.streams.remote_reader.ATTACH_INTERVAL_SECONDS", 0.01)
    client = await latest_legacy()
    exchange = begin(client, to=1)
    checkpoints.gate("say 1").set()
    await read(exchange, 1)
    home = move()
    for ring in list(home.store._buffers.values()):
        home.store.discard(ring)
    assert (await client.listen(exchange.last_id).reply()).status == 400
    checkpoints.gate("answer").set()
    await finish(exchange)


async def test_a_shutdown_stores_unsent_events(latest_legacy, move, checkpoints):
    client = await latest_legacy()
    exchange = begin(client, to=2)
    checkpoints.gate("say 1").set()
    await read(exchange, 1)
    await leave(exchange)
    for gate in ("say 2", "answer"):
        checkpoints.gate(gate).set()
    await checkpoints.until("answered")
    home = move()
    await home._store_finished()
    assert len(home.store) == 0
    for _ in range(2):
        again = client.listen(exchange.last_id)
        await read(again, 2)
        await finish(again)


async def test_a_shutdown_stores_sent_events_that_may_be_lost(latest_legacy, move, checkpoints):
    client = await latest_legacy()
    exchange = begin(client, to=2)
    for gate in ("say 1", "say 2", "answer"):
        checkpoints.gate(gate).set()
    await read(exchange, 1)
    seen = exchange.last_id
    await read(exchange, 2)
    await finish(exchange)
    home = move()
    await home._store_finished()
    assert len(home.store) == 0
    again = client.listen(seen)
    await read(again, 2)
    await finish(again)


async def test_a_shutdown_stores_events_that_another_worker_sent(latest_legacy, move, checkpoints):
    client = await latest_legacy()
    exchange = begin(client, to=2)
    checkpoints.gate("say 1").set()
    await read(exchange, 1)
    seen, home = exchange.last_id, move()
    again = client.listen(seen)
    await again.started()
    for gate in ("say 2", "answer"):
        checkpoints.gate(gate).set()
    await read(again, 2)
    await finish(again)
    (ring,) = home.store._buffers.values()
    await eventually(lambda: ring.is_delivered)
    await home._store_finished()
    assert len(home.store) == 0
    again = client.listen(seen)
    await read(again, 2)
    await finish(again)
