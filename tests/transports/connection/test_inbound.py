"""Messages that wait because the client does not read, or its session opens."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest

from mcp_django import Server
from mcp_django.server.calls.call import Call
from mcp_django.transports.connection.connection import open_connection
from mcp_django.transports.connection.inbound import InboundQueue
from mcp_django.transports.connection.options import CloseReason
from mcp_django.transports.services import build_services
from mcp_django.wiring import get_ports
from tests.transports.connection.client import HANDSHAKE, FakeClient, call, live_sessions
from tests.transports.connection.conftest import ALICE

HELLO = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}


@pytest.fixture(autouse=True)
def _room_for_two(settings: Any) -> None:
    settings.MCP = {"LIMITS": {"SEND_BUFFER": 2}}


async def fill(client: FakeClient) -> None:
    """Fill the channel with unread messages."""
    for id in ("a", "b"):
        await client.legacy(id, "ping")
    assert not client.duplex.is_ready()


def begin(*sending: Coroutine[Any, Any, None]) -> list["asyncio.Task[None]"]:
    """Send side by side, as transports do while the client does not read."""
    return [asyncio.ensure_future(one) for one in sending]


async def answers(client: FakeClient, *ids: Any) -> dict[Any, Any]:
    """The answers to these requests, which are all that is sent."""
    found = [await client.next() for _ in range(len(ids) + 2)]
    assert {answer["id"] for answer in found} == {"a", "b", *ids}
    return {answer["id"]: answer for answer in found}


async def test_one_of_two_waiting_initialize_requests_opens_the_session(peer):
    async with peer() as client:
        await fill(client)
        sending = begin(client.legacy(1, "initialize", **HELLO), client.legacy(2, "initialize", **HELLO))
        await asyncio.sleep(0)
        found = await answers(client, 1, 2)
        await asyncio.gather(*sending)
        assert found[1]["result"]["protocolVersion"] == HANDSHAKE
        assert "already" in found[2]["error"]["message"]
        assert await live_sessions() == 1
    assert await live_sessions() == 0


async def test_messages_behind_a_waiting_initialize_belong_to_its_session(peer):
    async with peer() as client:
        await fill(client)
        sending = begin(
            client.legacy(1, "initialize", **HELLO), client.legacy(2, "tools/call", **call("add", a=1, b=1))
        )
        await asyncio.sleep(0)
        found = await answers(client, 1, 2)
        await asyncio.gather(*sending)
        assert found[2]["result"]["structuredContent"] == {"result": 2}


async def test_a_batch_sent_before_the_session_is_open_belongs_to_it(peer):
    async with peer() as client:
        await client.legacy(1, "initialize", **{**HELLO, "protocolVersion": "2025-03-26"})
        await client.send([{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call("add", a=1, b=1)}])
        assert (await client.next())["id"] == 1
        (answer,) = await client.next()
        assert answer["result"]["content"][0]["text"] == "2"


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_waiting_request_can_be_cancelled(peer, stage, era):
    async with peer() as client:
        await client.initialize()
        await fill(client)
        send = getattr(client, era)
        sending = begin(send(7, "tools/call", **call("wait")), send(8, "tools/call", **call("add", a=1, b=1)))
        await asyncio.sleep(0)
        await client.notify("notifications/cancelled", requestId=7)
        found = await answers(client, 8)
        await asyncio.gather(*sending)
        assert not stage.begun.is_set()
        assert found[8]["result"]["structuredContent"] == {"result": 2}
        await client.modern(7, "tools/call", **call("add", a=1, b=1))
        assert (await client.next())["id"] == 7  # the id is free again


async def test_a_closing_channel_does_not_wait_for_cancelled_requests(peer):
    async with peer() as client:
        await fill(client)
        sending = begin(client.modern(7, "tools/call", **call("wait")))
        await asyncio.sleep(0)
        client.duplex.end(CloseReason.SHUTDOWN)
        await client.notify("notifications/cancelled", requestId=7)
        assert {answer["id"] for answer in await client.rest()} == {"a", "b"}
        await asyncio.gather(*sending)
        assert client.duplex.close_reason is CloseReason.SHUTDOWN


async def test_later_messages_do_not_overtake_waiting_ones(peer):
    async with peer() as client:
        await fill(client)
        ahead = InboundQueue(client.duplex.receive, client.duplex.is_ready, 1000)
        for id in range(3):
            await ahead.put(ping(id))
        await asyncio.sleep(0)
        client.waiting += map(json.loads, await client.duplex.read(1))
        await ahead.put(ping(3))  # those before are free to go on, and have not done so yet
        assert [(await client.next())["id"] for _ in range(6)] == ["a", "b", 0, 1, 2, 3]


async def test_large_messages_read_ahead_are_bounded(peer):
    async with peer() as client:
        await fill(client)
        ahead = InboundQueue(client.duplex.receive, client.duplex.is_ready, 1000)
        taken: list[int] = []

        async def read() -> None:
            for id in range(5):
                await ahead.put(ping(id, bytes=900))
                taken.append(id)

        reading = asyncio.ensure_future(read())
        for _ in range(10):
            await asyncio.sleep(0)
        assert taken == [0, 1]
        assert [(await client.next())["id"] for _ in range(7)] == ["a", "b", 0, 1, 2, 3, 4]
        await reading


async def test_concurrent_slow_notifications_are_limited(db, settings):
    settings.MCP = {"LIMITS": {"IN_FLIGHT": 3}}
    running: list[str] = []
    go = asyncio.Event()

    async def slow(call: Call, call_next: Any) -> Any:
        running.append(call.method)
        await go.wait()
        return await call_next(call)

    server = Server("slow", "1", alias="slow", middleware=[slow]).bind(get_ports("slow"))
    client = FakeClient(open_connection(build_services(server), ALICE))
    sending = begin(*(client.notify("notifications/progress", progressToken=1, progress=n) for n in range(10)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(running) == 3
    go.set()
    await asyncio.gather(*sending)
    assert len(running) == 10
    await client.duplex.close()


def ping(id: int, bytes: int = 0) -> bytes:
    """A request, with so many bytes and a few more."""
    params = {"_meta": {"padding": "x" * bytes}}
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": "ping", "params": params}).encode()
