"""HTTP+SSE as a client sees it, through both doors: the stream, and the messages that are POSTed to it."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from mcp_django.models import Session, StreamEvent
from mcp_django.protocol import jsonrpc, sse
from mcp_django.runtime.streams.sse_messages import DeliveryStatus, SSEMessageRouter
from mcp_django.transports import legacy_sse
from mcp_django.transports.connection.options import CloseReason
from mcp_django.transports.legacy_sse import PROGRESS_PAUSE_SECONDS, RECEIVE_TIMEOUT_SECONDS, LegacySSEStream
from mcp_django.wiring import get_services
from tests.interaction.wire import App
from tests.support.clock import Clock
from tests.support.waiting import eventually
from tests.transports.legacy_sse.client import Client, both_doors

PING = {"jsonrpc": "2.0", "id": 9, "method": "ping"}
TOOLS = {"jsonrpc": "2.0", "id": 9, "method": "tools/list"}


def nothing_is_open() -> bool:
    return not len(get_services().stream_limiter) and not get_services().process.sse_message_routers.get()._streams


async def flood(client: Client) -> None:
    """Send more messages than the queue of a client that does not read holds."""
    assert client.stream is not None
    client.stream.reading.clear()
    (channel,) = get_services().process.sse_message_routers.get()._streams.values()
    assert isinstance(channel, LegacySSEStream)
    await client.send("tools/call", {"name": "flood", "arguments": {"messages": 50}})
    duplex = channel._connection
    # The transport cannot send its messages, so that the queue remains full.
    await eventually(
        lambda: (
            duplex.close_reason is not None or (duplex._client_monitor.has_unsent_messages and not duplex.is_ready())
        )
    )


@both_doors
async def test_a_client_connects_initializes_and_calls(client: Client) -> None:
    hello = await client.hello()
    assert (hello["protocolVersion"], hello["serverInfo"]["name"]) == ("2025-11-25", "posts")
    assert await client.tool("add", a=2, b=3) == 5
    await client.leave()


@both_doors
async def test_the_first_event_is_the_endpoint_below_the_requested_path(client: Client) -> None:
    uri = await client.open()
    assert uri.startswith(f"{client.path}?session_id=")
    assert client.stream is not None
    assert client.stream.raw == f"event: endpoint\ndata: {uri}\n\n".encode()
    await client.leave()


@both_doors
async def test_a_stream_is_neither_cached_nor_buffered_nor_compressed(client: Client) -> None:
    stream = client.get()
    status, headers = await stream.head()
    assert (status, headers["content-type"], headers["x-accel-buffering"]) == (200, "text/event-stream", "no")
    assert headers["cache-control"].startswith("no-cache")
    await stream.leave()


async def test_every_revision_of_the_handshake_era_is_served(subtests: pytest.Subtests, client: Client) -> None:
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]:
        with subtests.test(revision=revision):
            await client.open()
            params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}
            await client.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
            assert client.stream is not None
            event = await client.stream.event()
            assert event is not None
            assert json.loads(event.data)["result"]["protocolVersion"] == revision
            await client.leave()


async def test_a_question_is_asked_on_the_stream_and_answered_by_a_post(client: Client) -> None:
    await client.hello({"elicitation": {}})
    id = await client.send("tools/call", {"name": "ask", "arguments": {}})
    question = await client.message()
    assert question["method"] == "elicitation/create"
    answer = {"action": "accept", "content": {"value": "red"}}
    name = next(iter(question["params"]["requestedSchema"]["properties"]))
    answer["content"] = {name: "red"}
    assert (await client.post({"jsonrpc": "2.0", "id": question["id"], "result": answer})).status == 202
    final = await client.message()
    assert (final["id"], final["result"]["structuredContent"]) == (id, {"result": "accept: red"})
    await client.leave()


async def test_a_cancellation_overtakes_the_call(client: Client, checkpoints: Any) -> None:
    await client.hello()
    id = await client.send("tools/call", {"name": "wait", "arguments": {}})
    await checkpoints.until("wait reached")
    await client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
    await checkpoints.until("wait cancelled")
    assert await client.tool("add", a=1, b=1) == 2
    await client.leave()


@both_doors
async def test_the_end_of_the_stream_ends_the_session_and_its_calls(client: Client, checkpoints: Any) -> None:
    await client.hello()
    await client.send("tools/call", {"name": "wait", "arguments": {}})
    await checkpoints.until("wait reached")
    await client.leave()
    await checkpoints.until("wait cancelled")
    await eventually(nothing_is_open)
    row = await Session.objects.aget()
    assert row.terminated_at is not None
    reply = await client.post(PING)
    assert (reply.status, reply.body) == (404, b"Unknown stream; open a new one with GET.")


async def test_a_disconnect_before_initialize_releases_the_stream(client: Client) -> None:
    await client.open()
    await client.leave()
    await eventually(nothing_is_open)
    assert not await Session.objects.aexists()


async def test_a_post_at_the_worker_of_the_stream_writes_no_row(client: Client) -> None:
    await client.hello()
    before = await StreamEvent.objects.acount()
    for _ in range(3):
        assert await client.tool("add", a=1, b=1) == 2
    assert await StreamEvent.objects.acount() == before
    await client.leave()


async def test_messages_of_the_stateless_era_are_refused_with_the_right_endpoint(client: Client) -> None:
    await client.hello()
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    message = {"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": {"_meta": meta}}
    assert (await client.post(message)).status == 202
    assert client.stream is not None
    event = await client.stream.event()
    assert event is not None
    error = json.loads(event.data)["error"]
    assert error["code"] == -32022
    assert "2025-11-25" in error["data"]["supported"]
    await client.leave()


async def test_a_silent_stream_is_kept_alive(client: Client, limits: Any, clock: Clock) -> None:
    limits(KEEP_ALIVE=15)
    await client.open()
    assert client.stream is not None
    waiting = asyncio.ensure_future(client.stream.next())
    await clock.advance(14)
    assert not waiting.done()
    await clock.advance(1)
    sent = await waiting
    assert sent is not None
    assert sent["body"] == b": keep-alive\n"
    await client.leave()


@both_doors
async def test_handlers_see_the_request_that_opened_the_stream(client: Client, prefix: str) -> None:
    client.path = f"{prefix}/mcp/main/rooms/sse"
    await client.hello(query_string=b"a=1")
    assert await client.tool("whereabouts") == {
        "path": f"{client.path}?a=1",
        "method": "GET",
        "kwargs": {"house": "main"},
        "user": "alice",
        "name": ["mcp_django"],
    }
    assert client.uri.startswith(f"{client.path}?session_id=")
    await client.leave()


@both_doors
async def test_a_trailing_slash_makes_no_difference(client: Client) -> None:
    client.path += "/"
    await client.hello()
    assert client.uri.startswith(f"{client.path}?")
    assert await client.tool("add", a=1, b=1) == 2
    await client.leave()


@both_doors
async def test_without_the_transport_the_path_does_not_exist(subtests: pytest.Subtests, app: App, prefix: str) -> None:
    for server in ["modern", "streamable"]:
        with subtests.test(server=server):
            reply = await Client(app, f"{prefix}/mcp/{server}/sse").get().reply()
            assert reply.status == 404


async def test_it_may_be_the_only_transport(app: App, prefix: str) -> None:
    client = Client(app, f"{prefix}/mcp/only/sse")
    await client.hello()
    await client.leave()
    client.path = f"{prefix}/mcp/only"
    assert (await client.post(TOOLS, uri=client.path)).status == 404


async def test_the_stream_of_a_slow_client_is_closed_and_released(
    client: Client, limits: Any, checkpoints: Any, clock: Clock
) -> None:
    limits(SEND_BUFFER=4, SEND_TIMEOUT=20)
    await client.hello()
    await flood(client)
    await clock.advance_until(nothing_is_open)
    assert checkpoints.counts["said"] < 50
    assert (await client.post(PING)).status == 404
    await client.leave()


@both_doors
async def test_ending_the_session_ends_the_stream(client: Client) -> None:
    await client.hello()
    await sync_to_async(Session.objects.all().end)("by hand")
    assert client.stream is not None
    assert await client.stream.event() is None
    await eventually(nothing_is_open)
    assert (await client.post(PING)).status == 404


async def test_an_ended_stream_is_not_kept_for_a_client_that_does_not_read(
    client: Client, limits: Any, clock: Clock
) -> None:
    limits(SEND_BUFFER=4)
    await client.hello()
    await flood(client)
    (channel,) = get_services().process.sse_message_routers.get()._streams.values()
    assert isinstance(channel, LegacySSEStream)
    channel._connection.end(CloseReason.REVOKED)
    assert len(get_services().stream_limiter) == 1
    await clock.advance(channel._close_timeout)
    await eventually(nothing_is_open)
    await client.leave()


async def test_large_data_is_sent_in_chunks_that_show_that_the_client_reads() -> None:
    waiting, moved = [b"x" * 30_000, b"y" * 30_000, b"z" * 30_000, b"!" * 100_000, b"last"], list[None]()

    async def read(timeout: float) -> list[bytes] | None:
        messages = waiting[:]
        waiting.clear()
        return messages or None

    duplex: Any = SimpleNamespace(on_end=None, close_reason=None, read=read, mark_progress=lambda: moved.append(None))
    channel, pieces = LegacySSEStream(duplex, frozenset(), 60.0), list[bytes]()
    while (piece := await channel.read(1.0)) is not None:
        pieces.append(piece)
    assert [piece.count(b"event: message") for piece in pieces] == [2, 1, 1, 1]
    assert [piece[21:22] for piece in pieces] == [b"x", b"z", b"!", b"l"]
    assert len(moved) == 3


PROGRESS = jsonrpc.notification("notifications/progress", {"progressToken": 1, "progress": 1})
OTHER = jsonrpc.notification("notifications/message", {"level": "info", "data": "x"})
ANSWER = jsonrpc.result(1, {})


@pytest.mark.parametrize("is_late", [False, True])
async def test_an_answer_is_sent_after_a_pause_and_not_in_one_chunk_with_progress(clock: Clock, is_late: bool) -> None:
    """The same if the answer comes when the progress has been sent."""
    batches = (
        [[OTHER, PROGRESS, PROGRESS], [ANSWER, OTHER]] if is_late else [[OTHER, PROGRESS, PROGRESS, ANSWER, OTHER]]
    )
    stream = make_stream(batches)
    assert (await stream.read(1.0) or b"").count(b"event: message") == 3
    reading = asyncio.ensure_future(stream.read(1.0))
    await clock.advance(PROGRESS_PAUSE_SECONDS / 2)
    assert not reading.done()
    await clock.advance(PROGRESS_PAUSE_SECONDS / 2)
    assert reading.done()
    assert await reading == sse.event(ANSWER) + sse.event(OTHER)


async def test_progress_is_sent_without_a_pause(clock: Clock) -> None:
    stream = make_stream([[OTHER], [PROGRESS], [PROGRESS]])
    for message in (OTHER, PROGRESS, PROGRESS):
        reading = asyncio.ensure_future(stream.read(1.0))
        await clock.settle()
        assert reading.done()
        assert await reading == sse.event(message)


def make_stream(batches: list[list[bytes]]) -> LegacySSEStream:
    """Return a stream on a connection that has some messages at each reading."""

    async def read(timeout: float) -> list[bytes] | None:
        return batches.pop(0) if batches else None

    connection: Any = SimpleNamespace(on_end=None, close_reason=None, read=read, mark_progress=lambda: None)
    return LegacySSEStream(connection, frozenset(), 60.0)


async def test_a_post_to_a_client_that_does_not_read_is_answered_in_bounded_time(
    client: Client, limits: Any, clock: Clock
) -> None:
    limits(SEND_BUFFER=4)
    await client.hello()
    await flood(client)
    posting = asyncio.ensure_future(client.post(TOOLS))
    await clock.advance_until(posting.done, RECEIVE_TIMEOUT_SECONDS)
    reply = await posting
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    assert "read" in reply.error["message"]
    # It was not taken: when the client reads on there is no answer to it.
    assert client.stream is not None
    client.stream.reading.set()
    while (message := await client.message()).get("id") is None:
        pass
    assert message["result"]["structuredContent"] == {"result": "flooded"}
    assert await client.tool("add", a=1, b=1) == 2
    assert 9 not in [message.get("id") for message in client.messages]
    await client.leave()


@both_doors
async def test_more_streams_than_allowed_are_refused_at_once(client: Client, limits: Any) -> None:
    limits(MAX_STREAMS_PER_OWNER=1)
    await client.open()
    reply = await client.get().reply()
    assert (reply.status, reply.headers["retry-after"]) == (429, "10")
    await client.leave()


@both_doors
async def test_a_post_of_a_disconnected_client_counts_until_its_message_is_read(
    client: Client, limits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def post(*given: Any) -> DeliveryStatus:
        begun.set()
        await go.wait()
        return DeliveryStatus.TAKEN

    monkeypatch.setattr(legacy_sse, "MAX_WAITING_POSTS", 1)
    limits()
    await client.open()
    monkeypatch.setattr(SSEMessageRouter, "post", post)
    leaving = client.begin_post(TOOLS)
    await begun.wait()
    leaving.task.cancel()  # as Django and daphne do
    await asyncio.wait([leaving.task])
    assert (await client.post(TOOLS)).status == 429
    go.set()
    while (await client.post(TOOLS)).status != 202:
        pass
    await client.leave()


async def test_more_concurrent_posts_than_allowed_are_refused_at_once(
    client: Client, limits: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legacy_sse, "MAX_WAITING_POSTS", 3)
    limits(SEND_BUFFER=4)
    await client.hello()
    await flood(client)
    posting = [asyncio.ensure_future(client.post(TOOLS)) for _ in range(5)]
    await eventually(lambda: sum(one.done() for one in posting) == 2)  # those beyond the limit
    await clock.advance_until(lambda: all(one.done() for one in posting), RECEIVE_TIMEOUT_SECONDS)
    replies = await asyncio.gather(*posting)
    assert sorted(reply.status for reply in replies) == [429, 429, 503, 503, 503]
    await client.leave()
