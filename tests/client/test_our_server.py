"""The client against a server of this project in a process of its own, in both eras."""

import asyncio
import contextvars
import subprocess
import sys
from collections.abc import Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import mcp_types as types
import pytest

from mcp_django.client import SSE, Client, ClientConnectionError, StreamableHTTP, WebSocket
from tests.client.script import ERAS
from tests.conformance.__main__ import listens
from tests.support.ports import take_port
from tests.support.waiting import WAIT_SECONDS, eventually, wait_until

pytestmark = pytest.mark.integration

WATCHED = "test://watched-resource"
CALLER: contextvars.ContextVar[str] = contextvars.ContextVar("caller")


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    port = take_port()
    with subprocess.Popen([sys.executable, "-m", "tests.conformance.server", "--port", str(port)]) as process:
        try:
            wait_until(lambda: listens(port) or process.poll() is not None)
            assert process.poll() is None
            yield port
        finally:
            process.terminate()


WAYS = [*(f"http {era}" for era in ERAS), *(f"websocket {era}" for era in ERAS), "sse handshake"]


def client_of(port: int, way_and_era: str) -> Client:
    """Build a client that reaches the server over one transport, in one era."""
    way, era = way_and_era.split()
    targets = {
        "http": StreamableHTTP(f"http://127.0.0.1:{port}/mcp"),
        "websocket": WebSocket(f"ws://127.0.0.1:{port}/mcp/ws"),
        "sse": SSE(f"http://127.0.0.1:{port}/mcp/sse"),
    }
    return Client(
        targets[way],
        protocol_version=era,
        roots=["file:///work"],
        elicitation=fill_in,
        sampling=sample,
        log_level="debug",
    )


def fill_in(params: types.ElicitRequestParams) -> dict[str, Any] | None:
    if not isinstance(params, types.ElicitRequestFormParams):
        return None
    return {name: "Al" if name == "name" else "blue" for name in params.requested_schema["properties"]}


def sample(params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    return types.CreateMessageResult(role="assistant", content=types.TextContent(type="text", text="Paris"), model="m")


def text_of(result: types.CallToolResult) -> str:
    block = result.content[0]
    assert isinstance(block, types.TextContent)
    return block.text


async def test_a_tool_requests_input_in_rounds_and_several_at_once(port: int, subtests: pytest.Subtests) -> None:
    for way in WAYS:
        with subtests.test(way=way):
            client = client_of(port, way)
            async with client:
                multi = await client.call_tool("test_input_required_result_multi_round")
                assert text_of(multi) == "Multi-round complete for Al who likes blue"
                several = await client.call_tool("test_input_required_result_multiple_inputs")
                assert text_of(several) == "Name: Al; Greeting: Paris; Roots: 1"


async def test_progress_and_logs_arrive(port: int, subtests: pytest.Subtests) -> None:
    for way in WAYS:
        with subtests.test(way=way):
            client = client_of(port, way)
            progress, logs = list[float](), list[Any]()
            async with client:
                client.on_log(lambda message, logs=logs: logs.append(message.data))
                await client.call_tool(
                    "test_tool_with_progress", on_progress=lambda done, *_, progress=progress: progress.append(done)
                )
                assert progress == [0, 50, 100]
                await client.call_tool("test_tool_with_logging")
                await eventually(lambda logs=logs: len(logs) == 3)


async def test_an_argument_is_mirrored_into_a_header_without_a_list_of_tools(
    port: int, subtests: pytest.Subtests
) -> None:
    for way in WAYS:
        with subtests.test(way=way):
            client = client_of(port, way)
            async with client:
                assert text_of(await client.call_tool("test_x_mcp_header", {"region": "Köln "})) == "Region: Köln "
                listed = await client.exchange(
                    "tools/call", {"name": "test_x_mcp_header", "arguments": {"region": "eu"}}
                )
                assert listed["content"][0]["text"] == "Region: eu"


async def test_changes_reach_the_handler(port: int, subtests: pytest.Subtests) -> None:
    for way in WAYS:
        with subtests.test(way=way):
            client = client_of(port, way)
            kinds, uris = asyncio.Queue[str](), asyncio.Queue[str]()
            async with client:
                client.on_list_changed(kinds.put_nowait)
                client.on_resource_updated(uris.put_nowait)
                await client.subscribe(WATCHED)
                async with asyncio.timeout(WAIT_SECONDS):
                    # The stream of a session opens during the calls, so the first change may come before it.
                    while kinds.empty():
                        await client.call_tool("test_trigger_tool_change")
                        await asyncio.sleep(0)
                    assert await kinds.get() == "tools"
                    before = await client.read_resource(WATCHED)
                    await client.call_tool("touch_watched_resource")
                    assert await uris.get() == WATCHED
                    after = await client.read_resource(WATCHED)
                assert before.contents != after.contents


async def test_a_cancelled_call_does_not_affect_the_connection(port: int, subtests: pytest.Subtests) -> None:
    for way in WAYS:
        with subtests.test(way=way):
            client = client_of(port, way)
            async with client:
                calls = [asyncio.create_task(client.call_tool("slow_compute", {"seconds": 60})) for _ in range(3)]
                await client.ping()  # the server has the calls, which came before
                for call in calls:
                    call.cancel()
                assert all(
                    isinstance(r, asyncio.CancelledError) for r in await asyncio.gather(*calls, return_exceptions=True)
                )
                assert text_of(await client.call_tool("add_numbers", {"a": 2, "b": 3})) == "5"


async def test_a_callback_runs_in_the_context_of_its_call(port: int, subtests: pytest.Subtests) -> None:
    """A callback that serves several callers can so identify its call."""
    for way in WAYS[:2]:
        with subtests.test(way=way):
            client = client_of(port, way)
            seen: list[tuple[str, str]] = []

            async def elicit(params: types.ElicitRequestParams, seen: Any = seen) -> dict[str, Any] | None:
                await asyncio.sleep(0)
                seen.append((CALLER.get("nobody"), params.message))
                return fill_in(params)

            async def call(caller: str, client: Client = client) -> None:
                CALLER.set(caller)
                await client.call_tool("test_input_required_result_multi_round")

            client.on_elicitation(elicit)
            async with client:
                await asyncio.gather(call("ada"), call("grace"))
            assert sorted({caller for caller, _ in seen}) == ["ada", "grace"]


async def test_a_session_lost_by_the_server_is_replaced(port: int) -> None:
    target = StreamableHTTP(f"http://127.0.0.1:{port}/mcp")
    sessions: list[str] = []

    class Noting(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            if id := request.headers.get("mcp-session-id"):
                sessions.append(id)
            return await super().handle_async_request(request)

    noted = StreamableHTTP(target.url, transport=Noting())
    async with Client(noted, protocol_version="handshake") as client:
        await client.list_tools()
        async with httpx2.AsyncClient() as http:
            gone = await http.delete(target.url, headers={"mcp-session-id": sessions[-1]})
        assert gone.is_success
        assert await client.list_tools()
        assert len(set(sessions)) == 2


async def test_a_restarted_server_is_used_again() -> None:
    port = take_port()
    client = Client.streamable_http(f"http://127.0.0.1:{port}/mcp", max_retries=0)

    @asynccontextmanager
    async def up() -> Any:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await _serve(reader, writer)
            finally:
                writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", port)
        async with server:
            yield

    with pytest.raises(ClientConnectionError, match="could not be reached"):
        await client.list_tools()
    async with up():
        assert await client.list_tools() == []
    with pytest.raises(ClientConnectionError):
        await client.list_tools()
    async with up():
        assert await client.list_tools() == []
        await client.close()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one request on one connection, of the stateless era."""
    import json

    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    size = next((int(line[15:]) for line in head.splitlines() if line.startswith("content-length:")), 0)
    request = json.loads(await reader.readexactly(size))
    result: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    if request["method"] == "server/discover":
        result |= {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    else:
        result |= {"tools": []}
    body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n")
    writer.write(b"content-length: %d\r\n\r\n%s" % (len(body), body))
    await writer.drain()
