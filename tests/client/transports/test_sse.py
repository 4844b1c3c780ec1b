"""HTTP+SSE against servers that misbehave."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest

from mcp_django.client.errors import AuthorizationNeeded, ClientConnectionError
from mcp_django.client.transports.targets import SSE
from tests.client.listeners import Exchange, exchanges, listening
from tests.client.transports.test_http import SECRET, Wire
from tests.support.clock import Clock


class FakeServer:
    """A server that responds to posted messages on the stream, unless a test sets another function."""

    def __init__(self, endpoint: str = "/messages?id=1", status: int = 202) -> None:
        self.endpoint, self.status = endpoint, status
        self.requests: list[Exchange] = []
        self.stream: asyncio.Queue[str | None] = asyncio.Queue()

    async def serve(self, exchange: Exchange) -> None:
        self.requests.append(exchange)
        if exchange.method == "GET":
            await exchange.begin(200, content_type="text/event-stream")
            if self.endpoint:
                await exchange.write(f"event: endpoint\r\ndata: {self.endpoint}\r\n\r\n")
            while (text := await self.stream.get()) is not None:
                await exchange.write(text)
            return
        if exchange.message["method"] == "refused":
            await exchange.answer(413, "secret words")
            return
        if exchange.message["method"] == "cut":
            return
        await exchange.answer(self.status)
        if "id" in exchange.message:
            self.send(exchange.event(result={"fine": True}))

    def send(self, event: str | None) -> None:
        self.stream.put_nowait(event)


@asynccontextmanager
async def connected(server: FakeServer, **options: Any) -> AsyncIterator[Wire]:
    async with listening(exchanges(server.serve)) as port:
        target = SSE(f"http://127.0.0.1:{port}/sse?room=a", environment_proxies=False, **options)
        async with target.open() as (reader, writer):
            yield Wire(reader, writer)


async def end(wire: Wire) -> str:
    item = await wire.reader.receive()
    with pytest.raises(anyio.EndOfStream):
        await wire.reader.receive()
    assert isinstance(item, ClientConnectionError), item
    with pytest.raises(anyio.BrokenResourceError):
        await wire.notify("late")
    return str(item)


async def test_messages_are_posted_to_the_endpoint_and_answered_on_the_stream() -> None:
    server = FakeServer()
    async with connected(server, headers=SECRET) as wire:
        assert [await wire.request("fine", number) for number in (1, 2)] == [{"fine": True}] * 2
    assert [request.path for request in server.requests] == ["/sse?room=a", "/messages?id=1", "/messages?id=1"]
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer s3cret"}


async def test_calls_do_not_wait_for_each_other_to_be_posted() -> None:
    server, first = FakeServer(), asyncio.Event()
    serve = server.serve

    async def slow(exchange: Exchange) -> None:
        if exchange.method == "POST" and exchange.message["id"] == 1:
            await first.wait()
        await serve(exchange)

    server.serve = slow
    async with connected(server) as wire, asyncio.TaskGroup() as tasks:
        waiting = SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="slow"))
        tasks.create_task(wire.writer.send(waiting))
        assert await wire.request("fine", 2) == {"fine": True}
        first.set()


async def test_another_origin_is_never_posted_to(subtests: pytest.Subtests) -> None:
    for endpoint in ["https://elsewhere.example/messages", "//elsewhere.example/", "http://[::1/"]:
        with subtests.test(endpoint=endpoint):
            server = FakeServer(endpoint)
            with pytest.raises(ClientConnectionError, match=r"another origin|invalid URL"):
                async with connected(server, headers=SECRET):
                    pass
            assert len(server.requests) == 1


async def test_a_rejected_message_is_an_error_of_its_call(subtests: pytest.Subtests) -> None:
    for method, said in [("refused", "The server answered HTTP 413"), ("cut", "The message could not be sent")]:
        with subtests.test(method=method, said=said):
            async with connected(FakeServer()) as wire:
                error = await wire.request(method)
                assert error.message.startswith(said)
                assert "secret words" not in error.message
                await wire.notify(method)
                assert await wire.request("fine", 2) == {"fine": True}


async def test_events_that_are_no_messages_are_left_out() -> None:
    server = FakeServer()
    async with connected(server) as wire:
        for event in ("data: hello", "data: {}", "data:", ": ping", "event: other\r\ndata: {}", "retry: 1"):
            server.send(f"{event}\r\n\r\n")
        server.send(f"data: {json.dumps({'jsonrpc': '2.0', 'method': 'told'})}\r\n\r\n")
        item = await wire.reader.receive()
    assert isinstance(item.message, JSONRPCNotification)


async def test_the_end_of_the_stream_ends_the_connection(subtests: pytest.Subtests) -> None:
    for last, said in [
        ([None], "ended the stream of events"),
        (["data: " + "x" * 3000 + "\r\n\r\n"], "interrupted the stream of events: SSEError"),
    ]:
        with subtests.test(last=last, said=said):
            server = FakeServer()
            async with connected(server, max_message_size=2000) as wire:
                for event in last:
                    server.send(event)
                assert said in await end(wire)


async def test_a_refused_stream_is_reported_by_its_status() -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.answer(401, "secret words")

    server = FakeServer()
    server.serve = refuse
    with pytest.raises(ClientConnectionError, match=r"^The server answered HTTP 401$"):
        async with connected(server):
            pass


async def test_events_with_an_encoding_that_was_not_offered_are_refused() -> None:
    async def pack(exchange: Exchange) -> None:
        assert exchange.headers["accept-encoding"] == "gzip, deflate"
        await exchange.begin(200, content_type="text/event-stream", content_encoding="br")

    server = FakeServer()
    server.serve = pack
    with pytest.raises(ClientConnectionError, match="unrequested"):
        async with connected(server):
            pass


async def test_a_stream_without_an_endpoint_event_is_a_timeout(clock: Clock) -> None:
    async def use() -> None:
        async with connected(FakeServer(endpoint=""), read_timeout=10):
            pass

    using = asyncio.create_task(use())
    while not using.done():
        await clock.advance(10)
    with pytest.raises(ClientConnectionError, match=r"did not (respond|answer|send)"):
        await using


async def test_unread_answers_make_the_server_wait() -> None:
    server = FakeServer()
    async with connected(server) as wire:
        for number in range(200):
            server.send(f"data: {json.dumps({'jsonrpc': '2.0', 'method': 'told', 'params': {'n': number}})}\r\n\r\n")
        server.send(None)
        numbers = []
        while isinstance(item := await wire.reader.receive(), SessionMessage):
            assert isinstance(item.message, JSONRPCNotification)
            numbers.append((item.message.params or {})["n"])
        assert numbers == list(range(200))
        assert isinstance(item, ClientConnectionError)


async def test_an_error_of_auth_ends_the_connection(subtests: pytest.Subtests) -> None:
    for refused in ["GET", "POST"]:
        with subtests.test(refused=refused):

            class Asking(httpx2.Auth):
                def auth_flow(self, request: httpx2.Request, refused: str = refused) -> Any:
                    if request.method == refused:
                        raise AuthorizationNeeded(url="https://example.com/allow")
                    yield request

            async def use() -> None:
                async with connected(FakeServer(), auth=Asking()) as wire:
                    with pytest.raises(anyio.BrokenResourceError):
                        await wire.notify("anything")
                    raise await wire.reader.receive()

            with pytest.raises(AuthorizationNeeded):
                await use()


async def test_a_bug_of_auth_ends_the_connection() -> None:
    class Broken(httpx2.Auth):
        def auth_flow(self, request: httpx2.Request) -> Any:
            raise KeyError("secret")
            yield request

    with pytest.raises(ClientConnectionError, match=r"could not be reached: KeyError$"):
        async with connected(FakeServer(), auth=Broken()):
            pass
