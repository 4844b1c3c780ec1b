"""The size limit of results."""

from typing import Any

import pytest

from mcp_django import MCPError
from mcp_django.protocol.errors import InvalidParams
from mcp_django.protocol.jsonrpc import loads
from mcp_django.protocol.revisions import Era
from mcp_django.schema import DeclarationError
from mcp_django.server.pipeline import Pipeline
from mcp_django.server.primitives.decorators import build_tool
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_server

LIMIT = 1000


def limited_server() -> Any:
    server = make_server(options={"result_bytes": LIMIT})

    @server.tool
    async def text(length: int) -> str:
        return "x" * length

    @server.tool
    async def page(length: int, limit: int = 10, cursor: str = "") -> str:
        return "x" * length

    @server.tool(max_result=10_000)
    async def larger(length: int) -> str:
        return "x" * length

    @server.tool(max_result=500)
    def smaller(length: int) -> str:
        return "x" * length

    @server.tool
    async def pieces(count: int) -> Any:
        for _ in range(count):
            yield "x" * 100

    @server.resource("test://{length}")
    async def contents(length: int) -> str:
        return "x" * length

    @server.prompt
    async def message(length: int) -> str:
        return "x" * length

    return server


def test_an_error_over_the_limit_loses_its_data_and_the_rest_of_its_message() -> None:
    pipeline = Pipeline(make_server(options={"result_bytes": 4000}))

    def encode(problem: MCPError) -> dict[str, Any]:
        error: dict[str, Any] = loads(pipeline.encode_error(pipeline.eras[Era.STATELESS], problem))["error"]
        return error

    assert encode(MCPError("short", data="d" * 10))["data"] == "d" * 10
    for problem in (MCPError("m" * 5, data="d" * 5000), InvalidParams("m" * 5000, data="d")):
        error = encode(problem)
        assert error.keys() == {"code", "message"}
        assert error["code"] == problem.code
        assert "shortened: the error has 5" in error["message"]
        assert len(error["message"]) < 1200


@pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])
async def test_a_result_over_the_limit_is_an_error_that_names_it(version: str) -> None:
    client = PipelineClient(limited_server(), version=version)
    assert len(await client.text("text", length=300)) == 300
    error = await client.error("text", length=3000)
    assert "at most 1000 are sent" in error
    assert error.endswith("Request less data.")


async def test_the_error_of_a_list_names_the_arguments_of_a_page() -> None:
    error = await PipelineClient(limited_server()).error("page", length=3000)
    assert error.endswith("Request a smaller page, with limit and cursor.")


async def test_a_tool_can_have_a_limit_of_its_own() -> None:
    client = PipelineClient(limited_server())
    assert len(await client.text("larger", length=3000)) == 3000
    assert "at most 10000" in await client.error("larger", length=5001)
    assert "at most 500 " in await client.error("smaller", length=501)


async def test_the_parts_of_a_result_count_together() -> None:
    client = PipelineClient(limited_server())
    assert len(await client.text("pieces", count=3)) == 300
    assert "at most 1000" in await client.error("pieces", count=20)


async def test_resources_and_prompts_have_the_same_limit() -> None:
    client = PipelineClient(limited_server())
    assert (await client.request("resources/read", {"uri": "test://10"}))["contents"]
    for method, params in (
        ("resources/read", {"uri": "test://3000"}),
        ("prompts/get", {"name": "message", "arguments": {"length": "3000"}}),
    ):
        with pytest.raises(MCPError, match="at most 1000 are sent"):
            await client.request(method, params)


async def test_lists_have_pages_instead() -> None:
    assert len(await PipelineClient(limited_server()).names()) == 5


@pytest.mark.parametrize("value", [0, -1, True, "1 MiB", 1.5])
def test_a_limit_is_a_number_of_bytes(value: Any) -> None:
    def text() -> str: ...

    with pytest.raises(DeclarationError, match="max_result="):
        build_tool(text, max_result=value)
