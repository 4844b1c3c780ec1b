"""stdio in one process: a client with pipes, and the server beside it."""

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from django.test import override_settings

from mcp_django import Context, Server
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.models import Session
from mcp_django.transports.connection.connection import DuplexConnection
from mcp_django.transports.connection.options import CloseReason
from mcp_django.transports.services import build_services
from mcp_django.transports.stdio import stdio as stdio_module
from mcp_django.transports.stdio.framing import LineReader, LineWriter
from mcp_django.transports.stdio.redirect import StandardStreams
from mcp_django.transports.stdio.stdio import StdioTransport
from mcp_django.wiring import get_ports
from tests.support.clock import Clock
from tests.support.waiting import WAIT_SECONDS, eventually

pytestmark = pytest.mark.django_db(transaction=True)
STATELESS, HANDSHAKE = "2026-07-28", "2025-11-25"
META = "io.modelcontextprotocol/"
ALICE = DjangoPrincipal(issuer="tests", subject="alice")


class Client:
    """The other ends of the pipes."""

    def __init__(self, sink: int, source: int, serving: "asyncio.Task[CloseReason]") -> None:
        self.writer, self.reader, self.serving = LineWriter(sink), LineReader(source, 1 << 24), serving
        self.sink, self.waiting = sink, list[dict[str, Any]]()

    async def send(self, message: Any) -> None:
        await self.writer.write([message if isinstance(message, bytes) else json.dumps(message).encode()])

    async def next(self) -> dict[str, Any]:
        while not self.waiting:
            lines = await self.reader.read()
            assert lines is not None, "the server has closed its side"
            self.waiting += map(json.loads, lines)
        return self.waiting.pop(0)

    async def rest(self) -> list[dict[str, Any]]:
        while (lines := await self.reader.read()) is not None:
            self.waiting += map(json.loads, lines)
        return self.waiting

    async def modern(self, id: Any, method: str, **params: Any) -> None:
        meta = {META + "protocolVersion": STATELESS, META + "clientCapabilities": {}}
        await self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": meta}})

    async def flood(self) -> None:
        meta = {META + "protocolVersion": STATELESS, META + "clientCapabilities": {}, "progressToken": 1}
        params = {"name": "flood", "arguments": {}, "_meta": meta}
        await self.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})

    async def initialize(self, **capabilities: Any) -> None:
        info = {"name": "tests", "version": "1"}
        params = {"protocolVersion": HANDSHAKE, "capabilities": capabilities, "clientInfo": info}
        await self.send({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params})
        assert (await self.next())["result"]["protocolVersion"] == HANDSHAKE
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def close(self) -> None:
        """Close stdin."""
        self.writer.close()


class Stage:
    """A record of the steps of handlers."""

    def __init__(self) -> None:
        self.begun, self.cancelled, self.go = asyncio.Event(), asyncio.Event(), asyncio.Event()


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def server(stage: Stage) -> Server:
    server = Server("stdio", ports=get_ports())

    @server.tool
    async def wait(ctx: Context) -> str:
        stage.begun.set()
        try:
            await stage.go.wait()
        except asyncio.CancelledError:
            stage.cancelled.set()
            raise
        return "waited"

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def flood(ctx: Context) -> str:
        stage.begun.set()
        try:
            for number in range(1000):
                await ctx.report_progress(number, 1000, "x" * 1000)
        except asyncio.CancelledError:
            stage.cancelled.set()
            raise
        return "flooded"

    @server.tool
    async def count(ctx: Context) -> str:
        for number in range(3):
            await ctx.report_progress(number, 3)
        return "counted"

    @server.tool
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", str)
        return f"Hello, {answer.data}"

    return server


@pytest.fixture
def _small() -> Iterator[None]:
    """Limits that are reached soon."""
    with override_settings(MCP={"AUTH": "none", "LIMITS": {"BODY": 1024, "SEND_BUFFER": 2, "SEND_TIMEOUT": 20}}):
        yield


@asynccontextmanager
async def connected(server: Server) -> AsyncIterator[Client]:
    (theirs, sink), (source, ours) = os.pipe(), os.pipe()
    stdio = StdioTransport(build_services(server), StandardStreams(theirs, ours))
    serving = asyncio.create_task(stdio.serve(ALICE))
    client = Client(sink, source, serving)
    try:
        yield client
    finally:
        client.close()
        serving.cancel()
        await asyncio.wait([serving])
        client.reader.close()


async def test_both_eras_are_served_on_one_channel(server: Server) -> None:
    async with connected(server) as client:
        await client.modern(1, "tools/call", name="echo", arguments={"text": "ä\n\u2028"})
        assert (await client.next())["result"]["content"][0]["text"] == "ä\n\u2028"
        await client.initialize()
        await client.send({"jsonrpc": "2.0", "id": 2, "method": "ping"})
        assert await client.next() == {"jsonrpc": "2.0", "id": 2, "result": {}}
        client.close()
        assert await client.rest() == []
        assert await client.serving is CloseReason.SHUTDOWN
    assert await Session.objects.filter(terminated_at=None).acount() == 0


async def test_a_cancellation_overtakes_the_call(server: Server, stage: Stage) -> None:
    async with connected(server) as client:
        await client.modern(1, "tools/call", name="wait", arguments={})
        await stage.begun.wait()
        await client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        await stage.cancelled.wait()
        await client.modern(2, "tools/call", name="echo", arguments={"text": "on"})
        assert (await client.next())["id"] == 2


async def test_questions_are_sent_and_responses_read(server: Server) -> None:
    async with connected(server) as client:
        await client.initialize(elicitation={})
        params = {"name": "greet", "arguments": {}}
        await client.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        question = await client.next()
        assert question["method"] == "elicitation/create"
        content = dict.fromkeys(question["params"]["requestedSchema"]["properties"], "Ada")
        answer = {"action": "accept", "content": content}
        await client.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
        assert (await client.next())["result"]["content"][0]["text"] == "Hello, Ada"


async def test_an_invalid_message_is_answered_and_others_are_served(server: Server) -> None:
    async with connected(server) as client:
        for garbage in (b"\xff\xfe", b"{", b"[]", b"12"):
            await client.send(garbage)
            answer = await client.next()
            assert answer["error"]["code"] in (-32700, -32600)
            assert answer.get("id") is None
        await client.send(b"")
        await client.send(b" \r")
        await client.modern(1, "tools/call", name="echo", arguments={"text": "still here"})
        assert (await client.next())["id"] == 1


@pytest.mark.usefixtures("_small")
async def test_a_line_that_is_too_long_is_refused_before_its_end(server: Server) -> None:
    async with connected(server) as client:
        os.write(client.sink, b"x" * 2000)  # it continues
        refused = await client.next()
        assert "1024 bytes" in refused["error"]["message"]
        await client.send(b"y" * 100_000)  # and on, to its end
        await client.modern(1, "tools/call", name="echo", arguments={"text": "next"})
        assert (await client.next())["id"] == 1


async def test_calls_running_at_the_end_of_stdin_are_answered(server: Server, stage: Stage) -> None:
    async with connected(server) as client:
        await client.modern(1, "tools/call", name="wait", arguments={})
        await stage.begun.wait()
        client.close()
        stage.go.set()
        assert [message["id"] for message in await client.rest()] == [1]
        assert await client.serving is CloseReason.SHUTDOWN
        assert not stage.cancelled.is_set()


async def test_questions_end_at_the_end_of_stdin(server: Server) -> None:
    async with connected(server) as client:
        await client.initialize(elicitation={})
        params = {"name": "greet", "arguments": {}}
        await client.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        assert (await client.next())["method"] == "elicitation/create"
        client.close()
        (answer,) = await client.rest()
        assert answer["result"]["isError"]
        assert answer["result"]["content"][0]["text"] == "The client has closed its sending side"
        assert await client.serving is CloseReason.SHUTDOWN


async def test_a_client_that_closes_stdout_ends_its_calls_without_an_error(server: Server, stage: Stage) -> None:
    async with connected(server) as client:
        await client.modern(2, "tools/call", name="wait", arguments={})
        await stage.begun.wait()
        client.reader.close()
        # More than one message: the first may still reach a thread that was reading when the pipe was closed.
        await client.flood()
        assert await client.serving is CloseReason.CLIENT_GONE
        await stage.cancelled.wait()


async def test_a_client_that_does_not_read_can_cancel_its_call(
    server: Server, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[DuplexConnection] = []
    opens = stdio_module.open_connection
    monkeypatch.setattr(stdio_module, "open_connection", lambda *given: opened.append(opens(*given)) or opened[0])
    async with connected(server) as client:
        await client.flood()
        await eventually(lambda: opened and not opened[0].is_ready())  # the pipe is full, and then the queue
        await client.modern(2, "tools/call", name="echo", arguments={"text": "later"})
        await client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        await stage.cancelled.wait()
        while "id" not in (answer := await client.next()):
            assert answer["method"] == "notifications/progress"
        assert answer["id"] == 2


async def test_an_answer_is_written_once_the_client_has_read_the_progress_before_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one read with it, clients of the TypeScript SDK drop the last progress."""
    events: list[str] = []
    ended = asyncio.Event()

    class RecordingWriter:
        def __init__(self, sink: int) -> None:
            self.sink = sink

        async def write(self, messages: Sequence[bytes]) -> None:
            kinds = ["progress" if "method" in json.loads(message) else "answer" for message in messages]
            events.append(" ".join(dict.fromkeys(kinds)))
            if "answer" in kinds:
                ended.set()

        async def wait_until_read(self) -> None:
            events.append("read")

        def close(self) -> None:
            os.close(self.sink)

    monkeypatch.setattr(stdio_module, "LineWriter", RecordingWriter)
    async with connected(server) as client:
        meta = {META + "protocolVersion": STATELESS, META + "clientCapabilities": {}, "progressToken": 1}
        params = {"name": "count", "arguments": {}, "_meta": meta}
        await client.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        async with asyncio.timeout(WAIT_SECONDS):
            await ended.wait()
    assert list(dict.fromkeys(events)) == ["progress", "read", "answer"]
    assert events[-2:] == ["read", "answer"]


@pytest.mark.usefixtures("_small")
async def test_a_client_that_is_slow_for_too_long_is_disconnected(server: Server, stage: Stage, clock: Clock) -> None:
    async with connected(server) as client:
        await client.flood()
        await stage.begun.wait()
        await clock.advance_until(client.serving.done)
        assert await client.serving is CloseReason.SLOW_CLIENT


async def test_a_cancelled_server_leaves_nothing_running(server: Server, stage: Stage) -> None:
    async with connected(server) as client:
        await client.initialize()
        params = {"name": "wait", "arguments": {}}
        await client.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        await stage.begun.wait()
        client.serving.cancel()
        await stage.cancelled.wait()
        assert await client.rest() == []
        await asyncio.wait([client.serving])
    assert await Session.objects.filter(terminated_at=None).acount() == 0


async def test_many_clients_leave_no_thread_behind(server: Server) -> None:
    async with connected(server) as client:
        await client.initialize()
    before = {thread for thread in threading.enumerate() if thread.name.startswith("mcp-stdio")}
    for _ in range(5):
        async with connected(server) as client:
            await client.modern(1, "tools/call", name="echo", arguments={"text": "x" * 100_000})
            assert (await client.next())["id"] == 1
    for thread in threading.enumerate():
        if thread.name.startswith("mcp-stdio") and thread not in before:
            await asyncio.to_thread(thread.join, WAIT_SECONDS)
            assert not thread.is_alive()
