"""Calls beyond the limit of running ones: they wait in a bounded queue."""

import asyncio
import json
from typing import Any

import pytest

from mcp_django.runtime.calls import call_limiter
from mcp_django.transports.connection.options import CloseReason
from tests.transports.connection.client import FakeClient, call


@pytest.fixture(autouse=True)
def _two_at_once(settings: Any) -> None:
    settings.MCP = {"LIMITS": {"IN_FLIGHT": 2}}


async def fill(client: FakeClient, *more: Any) -> None:
    """Have two calls running, and more waiting."""
    for id in ("a", "b", *more):
        await client.modern(id, "tools/call", **call("wait"))


async def turn() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def is_silent(client: FakeClient) -> bool:
    await turn()
    return not await client.duplex.read(0)


async def test_calls_beyond_the_limit_wait_and_are_all_answered(peer, stage):
    async with peer() as client:
        await fill(client, *range(40))
        assert await is_silent(client)
        stage.go.set()
        assert [(await client.next())["id"] for _ in range(42)] == ["a", "b", *range(40)]


async def test_running_calls_never_exceed_the_limit(peer, stage, server):
    running: list[int] = []
    peak: list[int] = []

    @server.tool
    async def count(n: int) -> int:
        running.append(n)
        peak.append(len(running))
        await asyncio.sleep(0)
        running.remove(n)
        return n

    async with peer() as client:
        for id in range(20):
            await client.modern(id, "tools/call", **call("count", n=id))
        assert sorted([(await client.next())["id"] for _ in range(20)]) == list(range(20))
    assert max(peak) == 2


async def test_a_later_call_does_not_overtake_the_queue(peer, stage):
    async with peer() as client:
        await fill(client, "waits")
        stage.go.set()
        await client.modern("later", "tools/call", **call("add", a=1, b=1))
        assert [(await client.next())["id"] for _ in range(4)] == ["a", "b", "waits", "later"]


async def test_a_call_in_the_queue_can_be_cancelled(peer, stage):
    async with peer() as client:
        await fill(client, 7, 8)
        await client.notify("notifications/cancelled", requestId=7)
        await turn()
        await client.modern(7, "tools/call", **call("add", a=1, b=1))  # The id is free again.
        stage.go.set()
        answers = [await client.next() for _ in range(4)]
        assert [answer["id"] for answer in answers] == ["a", "b", 8, 7]
        assert answers[3]["result"]["structuredContent"] == {"result": 2}


async def test_an_id_in_the_queue_is_in_use(peer, stage):
    async with peer() as client:
        await fill(client, 7)
        await client.modern(7, "tools/call", **call("add", a=1, b=1))
        assert (await client.next())["error"]["message"] == "A request with this id is still running"
        stage.go.set()
        assert [(await client.next())["id"] for _ in range(3)] == ["a", "b", 7]


async def test_pings_and_the_opening_of_a_session_do_not_wait(peer, stage):
    async with peer() as client:
        await fill(client, 7)
        await client.initialize()
        await client.legacy("ping", "ping")
        assert (await client.next())["id"] == "ping"


async def test_answers_to_questions_do_not_wait(peer):
    async with peer() as client:
        await client.initialize(elicitation={"form": {}})
        for id in range(3):
            await client.legacy(id, "tools/call", **call("confirm"))
        answers: dict[Any, Any] = {}
        while len(answers) < 3:
            message = await client.next()
            if "method" in message:
                await client.send({"jsonrpc": "2.0", "id": message["id"], "result": {"action": "decline"}})
            else:
                answers[message["id"]] = message["result"]["content"][0]["text"]
        assert answers == {0: "decline", 1: "decline", 2: "decline"}


async def test_a_full_queue_stops_the_reading_of_requests(peer, stage, monkeypatch):
    monkeypatch.setattr(call_limiter, "MAX_QUEUED_CALLS", 3)
    async with peer() as client:
        await fill(client, 1, 2, 3)
        assert not client.duplex.is_ready()
        sending = asyncio.ensure_future(client.modern(4, "tools/call", **call("add", a=1, b=1)))
        await turn()
        assert not sending.done()
        # Other messages still get through.
        await client.notify("notifications/cancelled", requestId=2)
        await asyncio.wait_for(sending, 5)
        stage.go.set()
        assert [(await client.next())["id"] for _ in range(5)] == ["a", "b", 1, 3, 4]


async def test_the_bytes_in_the_queue_are_limited(peer, stage, settings):
    settings.MCP = {"LIMITS": {"IN_FLIGHT": 2, "BODY": 1000}}
    async with peer() as client:
        await fill(client)
        padding = "x" * 700
        await client.modern(1, "tools/call", **call("wait", padding=padding))
        assert client.duplex.is_ready()
        await client.modern(2, "tools/call", **call("wait", padding=padding))
        assert not client.duplex.is_ready()


async def test_a_batch_waits_until_all_its_calls_may_run(peer, stage):
    async with peer() as client:
        await client.initialize("2025-03-26")
        await client.legacy("a", "tools/call", **call("wait"))
        batch = [
            {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call("add", a=id, b=1)} for id in (1, 2)
        ]
        await client.send(batch)
        await client.legacy("later", "tools/call", **call("add", a=1, b=1))  # There is room for it alone.
        assert await is_silent(client)
        stage.go.set()
        assert (await client.next())["id"] == "a"
        answers = [await client.next(), await client.next()]
        (batched,) = [answer for answer in answers if isinstance(answer, list)]
        assert {answer["id"] for answer in batched} == {1, 2}


async def test_a_batch_larger_than_the_limit_is_refused(peer):
    async with peer() as client:
        await client.initialize("2025-03-26")
        calls = [{"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call("wait")} for id in range(3)]
        await client.send(calls)
        assert "2 calls at most" in json.dumps(await client.next())


async def test_queued_calls_run_before_a_connection_drains(peer, stage):
    async with peer() as client:
        await fill(client, 7)
        client.duplex.end(CloseReason.SHUTDOWN)
        stage.go.set()
        assert [answer["id"] for answer in await client.rest()] == ["a", "b", 7]
        assert client.duplex.close_reason is CloseReason.SHUTDOWN


async def test_shutdown_refuses_queued_calls(peer, stage):
    async with peer() as client:
        await fill(client, 7)
        client.duplex.abort()
        (refused,) = [answer for answer in await client.rest() if answer["id"] == 7]
        assert refused["error"]["message"] == "The server is shutting down"


async def test_queued_calls_of_a_disconnected_client_never_run(peer, stage, server):
    called: list[int] = []

    @server.tool
    async def record(n: int) -> int:
        called.append(n)
        return n

    async with peer() as client:
        await fill(client)
        await stage.begun.wait()
        await client.modern(1, "tools/call", **call("record", n=1))
        client.duplex.end(CloseReason.CLIENT_GONE)
        await asyncio.wait_for(stage.cancelled.wait(), 5)
        await turn()
        assert await client.rest() == []
    assert not called
