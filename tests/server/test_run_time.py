"""Changes while a server runs: its registered primitives, and its declared capabilities."""

import pytest

from mcp_django import Context, MCPError, Server
from mcp_django.testing import TestClient
from tests.server.client import HANDSHAKE, STATELESS, make_server

both = pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])


def small() -> Server:
    server = make_server()

    @server.tool
    async def soup(ctx: Context) -> str:
        await ctx.warning("hot")
        return "soup"

    @server.resource("menu://today")
    def today() -> str:
        return "soup"

    @server.resource("menu://{day}")
    def menu(day: str) -> str:
        return day

    @server.prompt
    def order(dish: str) -> str:
        return dish

    @server.completion("order", "dish")
    def dishes(value: str) -> list[str]:
        return ["soup"]

    @server.completion("menu://{day}", "day")
    def days(value: str) -> list[str]:
        return ["monday"]

    return server


@both
async def test_removed_primitives_are_unknown(revision: str) -> None:
    server = small()
    client = TestClient(server, revision=revision)
    assert (await client.call_tool("soup"))["isError"] is False
    version = server.registry.version
    for kind, key in (
        ("tool", "soup"),
        ("resource", "menu://today"),
        ("template", "menu://{day}"),
        ("prompt", "order"),
    ):
        assert server.remove(kind, key)
        assert not server.remove(kind, key)
    assert server.registry.version > version
    assert not server.registry.completers
    assert not {"tools", "resources", "prompts", "completions"} & server.offered_capabilities
    with pytest.raises(MCPError, match="does not offer tools"):
        await client.call_tool("soup")


async def test_the_name_of_a_removed_tool_is_free() -> None:
    server = small()

    async def bread() -> str:
        return "bread"

    server.remove("tool", "soup")
    server.tool(bread, name="soup")
    assert (await TestClient(server).call_tool("soup"))["content"][0]["text"] == "bread"


def test_an_unknown_kind_cannot_be_removed() -> None:
    with pytest.raises(ValueError, match="Unknown kind 'completion'"):
        small().remove("completion", "order")  # type: ignore[arg-type]


@both
async def test_a_removed_capability_is_neither_declared_nor_served(revision: str) -> None:
    server = small().set_options(capabilities={"logging": None, "prompts": None, "experimental": {"acme": {}}})
    client = TestClient(server, revision=revision, log_level="debug")
    declared = (await client.initialize())["capabilities"]
    assert set(declared) == {"tools", "resources", "completions", "experimental"}
    await client.call_tool("soup")
    assert "notifications/message" not in [said["method"] for said in client.notifications]
    with pytest.raises(MCPError, match="does not offer prompts"):
        await client.list_prompts()


async def test_without_logging_no_level_can_be_set() -> None:
    client = TestClient(small(), revision=HANDSHAKE)
    assert await client.request("logging/setLevel", {"level": "error"}) == {}
    silent = TestClient(small().set_options(capabilities={"logging": None}), revision=HANDSHAKE)
    with pytest.raises(MCPError, match="does not offer logging") as refused:
        await silent.request("logging/setLevel", {"level": "error"})
    assert refused.value.code == -32601
