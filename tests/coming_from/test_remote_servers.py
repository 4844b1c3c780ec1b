"""Examples of other servers: mounts, proxies, OpenAPI documents, clients and bridges."""

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
from mcp_django.contrib.openapi import Route
from mcp_django.providers.mounts import Mount
from mcp_django.schema import DeclarationError
from mcp_django.testing import TestClient as Caller
from tests.coming_from.test_declarations import call_text
from tests.contrib.openapi.pets import Api, document, operation, parameter, toolset
from tests.contrib.proxies.remote import Remote, served
from tests.server.client import make_server


async def test_a_server_is_mounted() -> None:
    analytics = Server("analytics")

    @analytics.tool
    async def count(ctx: Context) -> str:
        return f"{ctx.server.info.name} 7"

    server = make_server(mounts=[Mount(analytics, prefix="analytics")])
    assert await call_text(Caller(server), "analytics__count") == "analytics 7"
    other = make_server()
    other.tool(lambda: 1, name="count")
    with pytest.raises(DeclarationError, match="count"):
        make_server(registry=other.registry, mounts=[Mount(analytics, prefix="")])


async def test_a_remote_server_is_proxied() -> None:
    caller = Caller(served(Remote()))
    assert {"r__add", "r__fails"} <= {found["name"] for found in await caller.list_tools()}
    assert (await caller.call_tool("r__add", {"a": 1, "b": 2}))["structuredContent"] == {"total": 3}
    assert (await caller.read_resource("thing://one"))[0]["text"] == "the first"
    assert "Go to Oslo" in str(await caller.get_prompt("r__plan", {"city": "Oslo"}))
    down = await Caller(served(Remote(down=True))).call_tool("r__add", {"a": 1})
    assert down["isError"]
    assert "cannot be reached" in down["content"][0]["text"]


async def test_an_openapi_document_becomes_tools() -> None:
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


def test_clients_have_one_constructor_per_transport() -> None:
    clients = (
        Client.stdio("python", "-m", "x", env={"A": "1"}, cwd="/tmp", max_retries=1, startup_timeout=5),
        Client.websocket("wss://example.com/mcp/ws", headers={"A": "1"}),
        Client.sse("https://example.com/sse", headers={"A": "1"}),
        Client.streamable_http("https://example.com/mcp", headers={"Authorization": "Bearer secret"}),
    )
    assert [client.target.kind for client in clients] == ["stdio", "websocket", "sse", "http"]
    assert "secret" not in repr(clients[-1])


async def test_clients_call_every_method() -> None:
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


async def test_client_errors_have_their_classes() -> None:
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


async def test_several_servers_are_bridged() -> None:
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
