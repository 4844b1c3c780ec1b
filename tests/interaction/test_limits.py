"""The limits that no other module of these tests is about, at their value and one beyond it."""

import asyncio
import json
import random
import threading

import pytest
from asgiref.sync import async_to_sync
from django.test import RequestFactory

from mcp_django import Server
from mcp_django.runtime.sessions.store import MAX_CLIENT_INFO_BYTES
from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.server.ports import Overloaded
from mcp_django.transports.http.django_view import as_view
from mcp_django.transports.http.handler import StreamableHTTPEndpoint, get_http_endpoint
from mcp_django.transports.services import build_services
from mcp_django.wiring import get_ports
from tests.interaction.clients import STATELESS, Client, accept, together
from tests.interaction.transports import Transport, contract, contract_with_headers, on_http
from tests.support.waiting import eventually


def text(reply):
    return reply.result["content"][0]["text"]


async def test_client_info_is_limited_in_size(transport, handshake):
    client = Client(transport, handshake)
    about = client.introduction()
    bare = len(json.dumps([about["clientInfo"], about["capabilities"]], separators=(",", ":")))
    most = MAX_CLIENT_INFO_BYTES - bare
    for surplus, fits in ((most + 1, False), (most, True)):
        info = {**about["clientInfo"], "name": "tests" + "x" * surplus}
        reply = await client.request("initialize", {**about, "clientInfo": info})
        assert reply.served if fits else reply.refused(200, -32602)
        assert fits or str(MAX_CLIENT_INFO_BYTES) in reply.error["message"]


@contract_with_headers
async def test_a_handler_waits_when_its_queue_of_unsent_messages_is_full(limits, latest_legacy, checkpoints):
    limits(SEND_BUFFER=5)
    client = await latest_legacy()
    exchange = client.begin("tools/call", {"name": "flood"})
    exchange.stop_reading()
    await checkpoints.until("flood", 5)
    for _ in range(200):
        await asyncio.sleep(0)
    assert checkpoints.counts["flood"] <= 15, "what waits, and what the transport has taken"
    exchange.read_on()
    assert text(await exchange.reply()) == "done"


@on_http
@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_a_client_that_stops_reading_does_not_block_others(limits, clock, either, checkpoints, plain):
    limits(SEND_BUFFER=5, SEND_TIMEOUT=5, IN_FLIGHT=1)
    client = await either()
    exchange = client.begin("tools/call", {"name": "plain_flood" if plain else "flood"})
    exchange.stop_reading()
    await clock.advance_while(checkpoints.until("flood over"))
    assert (await clock.advance_while(client.tool("add", {"a": 1, "b": 2}))).served
    exchange.read_on()
    await exchange.end()


@on_http
async def test_a_refused_call_is_named_in_the_refusal(limits, either, checkpoints, no_queue):
    limits(IN_FLIGHT=1)
    client = await either()
    waiting = client.begin("tools/call", {"name": "wait"})
    await checkpoints.until("wait reached")
    refused = await client.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, id="mine")
    assert refused.busy(429)
    assert refused.message["id"] == "mine"
    checkpoints.gate("wait").set()
    await waiting.reply()


@pytest.mark.parametrize(("bytes", "kind"), [(50_000, "complete"), (400_000, "input_required")])
async def test_the_size_of_a_state_is_limited(monkeypatch, limits, modern, bytes, kind):
    monkeypatch.setattr("mcp_django.wiring.servers.MAX_STATE_BYTES", bytes)
    limits()
    reply = await modern().tool("once_too_much")
    assert reply.result["resultType"] == kind
    assert ("isError" in reply.result) is (kind == "complete")


@pytest.mark.parametrize(("count", "fits"), [(64, True), (65, False)])
async def test_the_number_of_responses_in_a_retry_is_limited(modern, count, fits):
    many = {f"key-{number}": accept(value=number) for number in range(count)}
    reply = await modern().tool("add", {"a": 1, "b": 2}, inputResponses=many)
    assert reply.served if fits else reply.refused(400, -32602)


@pytest.mark.parametrize(("nesting", "fits"), [(62, True), (63, False)])
async def test_the_depth_of_a_message_is_limited(modern, nesting, fits):
    deep = json.loads("[" * nesting + "]" * nesting)
    reply = await modern().request("tools/list", {"x": deep})
    assert reply.served if fits else reply.refused(400, -32600)


async def test_a_full_server_sends_retry_after(limits, latest_legacy, transport):
    limits(SESSIONS=1)
    client = await latest_legacy(token="alice")
    other = Client(transport, "2025-11-25", token="bob")
    reply = await other.request("initialize", other.introduction())
    assert reply.busy(503)
    if transport.http:
        await client.post(method="DELETE", body=b"")
    else:
        await client.channel.hang_up()
    assert (await other.request("initialize", other.introduction())).served


async def test_a_process_without_a_free_thread_sends_retry_after(either, monkeypatch):
    client = await either()

    async def full(*_, **__):
        raise Overloaded(retry_after=2.4)

    monkeypatch.setattr(LeasingExecutor, "run", full)
    reply = await client.tool("add_in_a_thread", {"a": 1, "b": 2})
    assert reply.busy(503)
    assert reply.headers.get("retry-after") in ("2", None)
    assert (await client.tool("add", {"a": 1, "b": 2})).served


@contract
@pytest.mark.revisions(STATELESS, "2025-11-25", "2025-03-26")
async def test_every_ended_call_is_subtracted_from_the_count(limits, transport, checkpoints, revision, subtests):
    limits(IN_FLIGHT=6)
    for seed in range(4):
        with subtests.test(seed=seed):
            checkpoints.reset()
            chance = random.Random(f"{revision} {seed}")
            client = await Client(transport, revision).open()
            counts, running = get_http_endpoint("interaction")._limiter, []
            for number in range(60):
                match chance.randrange(6):
                    case 0 | 1:
                        name = chance.choice(["wait", "speak_then_wait", "buggy", "too_slow", "add", "nobody"])
                        running.append((f"c{number}", client.begin("tools/call", {"name": name}, id=f"c{number}")))
                    case 2 if revision == "2025-03-26":
                        ids = [f"b{number} {part}" for part in range(chance.randrange(1, 9))]
                        calls = [client.request_message("tools/call", {"name": "wait"}, id=id) for id in ids]
                        running.append(
                            (ids[0], client.send([*calls, {"jsonrpc": "2.0", "method": "notifications/initialized"}]))
                        )
                    case 3 if running:
                        running.pop(chance.randrange(len(running)))[1].leave()
                    case 4 if running and not client.stateless:
                        await client.notify("notifications/cancelled", {"requestId": chance.choice(running)[0]})
                    case _:
                        await asyncio.sleep(0)
                assert len(counts) <= 6
            checkpoints.gate("wait").set()
            await together(*(exchange.reply() for _, exchange in running))
            if client.session is not None:
                await client.post(method="DELETE", body=b"")
            await eventually(lambda counts=counts: not len(counts))
            assert counts._calls._queues == {}


def test_threads_under_wsgi_share_one_count_and_a_short_queue(limits):
    limits(IN_FLIGHT=3, WSGI_WAITS=2)
    arrived, refused, go = threading.Semaphore(0), threading.Semaphore(0), threading.Event()
    server = Server("crowded", alias="crowded")

    @server.tool
    async def wait() -> str:
        arrived.release()
        await asyncio.to_thread(go.wait, 30)
        return "waited"

    exchange = StreamableHTTPEndpoint(build_services(server.bind(get_ports("crowded"))))
    view, speaker = as_view(lambda: exchange), Client(Transport(None, ""), STATELESS)
    statuses = []

    def call(number):
        message = speaker.request_message("tools/call", {"name": "wait"}, id=number)
        headers = speaker.headers(message)
        kind = headers.pop("content-type")
        factory = RequestFactory(**{"wsgi.multithread": True})
        request = factory.post("/mcp", json.dumps(message), content_type=kind, headers=headers)
        status = async_to_sync(view)(request).status_code
        statuses.append(status)
        if status == 429:
            refused.release()

    crowd = [threading.Thread(target=call, args=(number,)) for number in range(10)]
    for thread in crowd:
        thread.start()
    try:
        assert all(arrived.acquire(timeout=30) for _ in range(3))
        assert all(refused.acquire(timeout=30) for _ in range(5))
    finally:
        go.set()
        for thread in crowd:
            thread.join(30)
    assert sorted(statuses) == [200] * 5 + [429] * 5
    assert len(exchange._limiter) == 0
