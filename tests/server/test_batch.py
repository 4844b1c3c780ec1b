"""Batches: calls that are cancelled by their ids while the others go on."""

import asyncio
from typing import Any

import pytest

from mcp_django import Context
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidParams
from mcp_django.server.calls.call import Call, Connection
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import PendingResponse
from mcp_django.server.ports import Outcome
from tests.server.client import PipelineClient, make_server

REVISION = "2025-03-26"


def calls(*names: str) -> list[dict[str, Any]]:
    """One call of each tool, with the tool's name for an id."""
    return [
        {
            "jsonrpc": "2.0",
            "id": name,
            "method": "tools/call",
            "params": {"name": name, "arguments": {}, "_meta": {"progressToken": name}},
        }
        for name in names
    ]


def begin(peer: PipelineClient, messages: list[Any]) -> "tuple[asyncio.Task[bytes], PendingResponse, Outbox]":
    outbox = Outbox()
    connection = Connection(peer.principal, session=peer.session)
    work = peer.pipeline.handle(peer.pipeline.handshake, messages, connection, outbox)
    assert isinstance(work, PendingResponse)
    return asyncio.ensure_future(work.run), work, outbox


async def test_a_cancelled_call_cleans_up_and_sends_nothing() -> None:
    server, reached, gate, order = make_server(), asyncio.Event(), asyncio.Event(), list[str]()

    @server.tool
    async def ignores_cancel(ctx: Context) -> str:
        try:
            reached.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            order.append(f"cancelled {ctx.cancelled}")
            await ctx.report_progress(1)
            await gate.wait()
            order.append("cleaned up")
        raise InvalidParams("this text must stay hidden")

    @server.tool
    async def other() -> str:
        await gate.wait()
        return "done"

    peer = PipelineClient(server, version=REVISION)
    assert peer.session is not None
    answers, _, outbox = begin(peer, calls("ignores_cancel", "other"))
    await reached.wait()
    peer.session.cancel("ignores_cancel")
    for _ in range(3):
        await asyncio.sleep(0)
    peer.session.cancel("ignores_cancel")
    for _ in range(3):
        await asyncio.sleep(0)
    gate.set()
    assert [answer["id"] for answer in jsonrpc.loads(await answers)] == ["other"]
    assert order == ["cancelled True", "cleaned up"]
    outbox.finish()
    assert await outbox.read(60) is None
    assert peer.session.in_flight == {}


@pytest.mark.parametrize("whole", [False, True])
async def test_a_call_can_be_cancelled_before_the_notifications_of_its_batch_ended(whole: bool) -> None:
    reached, gate, ran = asyncio.Event(), asyncio.Event(), list[str]()

    async def slow_notifications(call: Call, proceed: Any) -> Any:
        if call.id is None:
            reached.set()
            await gate.wait()
        return await proceed(call)

    server = make_server(middleware=[slow_notifications])

    @server.tool
    async def first() -> str:
        ran.append("first")
        return "done"

    @server.tool
    async def second() -> str:
        ran.append("second")
        return "done"

    peer = PipelineClient(server, version=REVISION)
    assert peer.session is not None
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    answers, work, _ = begin(peer, [note, *calls("first", "second")])
    await reached.wait()
    peer.session.cancel("first")
    if whole:
        peer.session.cancel_all()
    gate.set()
    if whole:
        with pytest.raises(asyncio.CancelledError):
            await answers
    else:
        assert [answer["id"] for answer in jsonrpc.loads(await answers)] == ["second"]
    assert ran == ([] if whole else ["second"])
    outcomes = [call.record.outcome for call in work.calls]
    assert outcomes == [Outcome.CANCELLED, Outcome.CANCELLED if whole else Outcome.OK]
    assert peer.session.in_flight == {}
