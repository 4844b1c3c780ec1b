"""Other servers: mounted, passed on, made of a document, called, bridged."""

import asyncio
from typing import Any

import mcp_types as types
import pytest

from mcp_django import Context, Server
from mcp_django.client import (
    Bridge,
    CallError,
    CallTimeout,
    Client,
    ClientConnectionError,
    ClientError,
    HandshakeError,
    ToolNotFound,
)
from mcp_django.providers import HTTPResource, Route
from mcp_django.providers.mounts import Mount
from mcp_django.schema import DeclarationError
from mcp_django.testing import Client as Caller
from tests.client.listeners import listening
from tests.coming_from.declarations import text
from tests.coming_from.table import exercise
from tests.providers.openapi.pets import Api, document, operation, parameter, toolset
from tests.providers.proxies.remote import Remote, served
from tests.server.engine import HANDSHAKE, STATELESS, make_server


@exercise
async def a_server_is_mounted() -> None:
    analytics = Server("analytics")

    @analytics.tool
    async def count(ctx: Context) -> str:
        return f"{ctx.server.info.name} 7"

    server = make_server(mounts=[Mount(analytics, prefix="analytics")])
    assert await text(Caller(server), "analytics__count") == "analytics 7"
    other = make_server()
    other.tool(lambda: 1, name="count")
    with pytest.raises(DeclarationError, match="count"):
        make_server(registry=other.registry, mounts=[Mount(analytics, prefix="")])


@exercise
async def a_remote_server_is_passed_on() -> None:
    caller = Caller(served(Remote()))
    assert {"r__add", "r__fails"} <= {found["name"] for found in await caller.list_tools()}
    assert (await caller.call_tool("r__add", {"a": 1, "b": 2}))["structuredContent"] == {"total": 3}
    assert (await caller.read_resource("thing://one"))[0]["text"] == "the first"
    assert "Go to Oslo" in str(await caller.get_prompt("r__plan", {"city": "Oslo"}))
    down = await Caller(served(Remote(down=True))).call_tool("r__add", {"a": 1})
    assert down["isError"]
    assert "cannot be reached" in down["content"][0]["text"]


@exercise
async def a_document_becomes_tools() -> None:
    paths = {
        "/pets/{id}": {"get": operation(operationId="getPet", parameters=[parameter("id", "path")])},
        "/admin/all": {"delete": operation(operationId="deleteAll")},
    }
    api = Api()
    routes = [Route("* /admin/*", expose=None), Route("GET /pets/*", name="pet", description="A pet, by its number.")]
    caller = Caller(make_server(toolsets=[toolset(document(paths), api, routes=routes)]))
    (found,) = await caller.list_tools()
    assert (found["name"], found["description"]) == ("pet", "A pet, by its number.")
    assert (await caller.call_tool("pet", {"id": "7"}))["structuredContent"] == {"id": 1, "name": "Rex"}
    assert api.path == "/pets/7"


@exercise
def clients_say_where_a_server_is() -> None:
    clients = (
        Client.stdio("python", "-m", "x", env={"A": "1"}, cwd="/tmp", max_retries=1, startup_timeout=5),
        Client.websocket("wss://example.com/mcp/ws", headers={"A": "1"}),
        Client.sse("https://example.com/sse", headers={"A": "1"}),
        Client.streamable_http("https://example.com/mcp", headers={"Authorization": "Bearer secret"}),
    )
    assert [client.target.kind for client in clients] == ["stdio", "websocket", "sse", "http"]
    assert "secret" not in repr(clients[-1])


@exercise
async def a_client_finds_out_what_a_server_speaks() -> None:
    remote = Remote()
    for wanted, spoken in (
        (None, STATELESS),
        ("stateless", STATELESS),
        ("handshake", HANDSHAKE),
        (HANDSHAKE, HANDSHAKE),
    ):
        info = types.Implementation(name="shop", version="1")
        async with Client(remote, protocol_version=wanted, client_info=info) as client:
            assert client.protocol_version == spoken


@exercise
async def a_client_does_what_it_is_asked() -> None:
    for era in ("handshake", "stateless"):
        client = Client(Remote(), protocol_version=era)
        await client.connect()
        try:
            assert "add" in [tool.name for tool in await client.list_tools()]
            result = await client.call_tool("add", {"a": 1, "b": 2})
            assert isinstance(result, types.CallToolResult)
            assert result.structured_content == {"total": 3}
            assert [str(found.uri) for found in await client.list_resources()] == ["thing://one"]
            assert (await client.read_resource("thing://one")).contents[0].text == "the first"
            assert [found.name for found in await client.list_prompts()] == ["plan"]
            assert (await client.get_prompt("plan", {"city": "Oslo"})).messages
            await client.ping()
            assert client.server_info is not None
            assert client.server_info.name == "remote"
            assert client.capabilities.tools is not None
            assert client.instructions is None
            raw: Any = await client.exchange("tools/call", {"name": "add", "arguments": {"a": 1}})
            assert raw["structuredContent"] == {"total": 2}
        finally:
            await client.close()
        assert not client.is_connected


@exercise
async def a_client_answers_and_hears() -> None:
    remote, heard, asked = Remote(), [], []
    done = asyncio.Event()

    async def elicit(*given: Any) -> types.ElicitResult:
        asked.append(given)
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async with Client(remote, protocol_version="handshake", elicitation=elicit, roots=["/tmp"]) as client:
        greeted = await client.call_tool("greet", {})
        assert greeted.content[0].text == "Hello Ada"
        assert asked
        stop = client.on_progress(lambda progress: (heard.append((progress.progress, progress.message)), done.set()))
        own: list[float] = []
        await client.call_tool("steps", {}, on_progress=lambda progress, total, message: own.append(progress))
        async with asyncio.timeout(10):
            await done.wait()
        assert own == [1, 2]
        assert heard[0] == (1, "one")
        stop()
        heard.clear()
        await client.call_tool("steps", {})
        assert heard == []
        for listen in (client.on_log, client.on_list_changed, client.on_resource_updated):
            assert callable(listen(lambda value: None))
        await client.notify_roots_changed()


@exercise
async def errors_of_clients_have_their_classes() -> None:
    assert issubclass(ClientConnectionError, ClientError)
    assert issubclass(HandshakeError, ClientConnectionError)
    assert issubclass(CallTimeout, ClientError)
    remote = Remote()
    async with Client(remote, protocol_version="handshake") as client:
        with pytest.raises(CallError) as refused:
            await client.exchange("no/such", {})
        assert refused.value.code
        assert refused.value.message
        with pytest.raises(CallTimeout):
            await client.call_tool("slow", {}, timeout=0.02)
    with pytest.raises(ClientConnectionError):
        await Client(Remote(down=True), max_retries=0).connect()
    assert issubclass(ToolNotFound, CallError)


@exercise
async def several_servers_are_bridged() -> None:
    told: list[tuple[str, int, str]] = []

    def register_mcp_server(alias: str, tools: list[types.Tool], client: Client) -> None:
        told.append((alias, len(tools), type(client).__name__))

    servers = {"one": Client(Remote()), "two": Client(Remote()), "gone": Client(Remote(down=True), max_retries=0)}
    bridge = Bridge(servers, tools=["add", "st*"])
    bridge.on_registry(register_mcp_server)
    async with bridge:
        assert sorted(bridge.tool_names()) == ["one__add", "one__steps", "two__add", "two__steps"]
        assert {schema["name"] for schema in bridge.tool_schemas()} == set(bridge.tool_names())
        assert (await bridge.call("two__add", {"a": 1, "b": 2})).structured_content == {"total": 3}
        assert set(bridge.errors) == {"gone"}
        with pytest.raises(ToolNotFound):
            await bridge.call("one__fails", {})
    assert sorted(told) == [("one", 2, "Client"), ("two", 2, "Client")]


@exercise
async def a_page_is_fetched() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        said = b"warm" if "x-key: 1" in head else b"no key"
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n%b" % (len(said), said))
        await writer.drain()

    async with listening(serve) as port:
        url = f"http://127.0.0.1:{port}/weather"
        with pytest.raises(DeclarationError):
            HTTPResource(url, "weather://current")
        page = HTTPResource(url, "weather://current", headers={"X-Key": "1"}, http=True, private=True, timeout=5)
        (contents,) = await Caller(make_server(providers=[page])).read_resource("weather://current")
    assert (contents["text"], contents["mimeType"]) == ("warm", "text/plain")
