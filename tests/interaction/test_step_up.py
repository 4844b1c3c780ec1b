"""Scopes that depend on arguments, over transports: all are named in the first response."""

from typing import Any

import pytest

from mcp_django import Context, tool
from mcp_django.protocol.errors import InsufficientScope
from mcp_django.server.primitives.registry import get_registry
from tests.interaction.transports import contract


@pytest.fixture(autouse=True)
def _proclaim_tool(settings: Any, checkpoints: Any) -> Any:
    """It streams before it answers, and takes more for loud words. The server requires a scope of everybody."""
    servers = settings.MCP["SERVERS"]
    described = {**servers["interaction"], "REQUIRED_SCOPES": ["notes:read"]}
    settings.MCP = {**settings.MCP, "SERVERS": {**servers, "interaction": described}}

    @tool(server="interaction", scopes_for=lambda arguments: ["notes:write"] if arguments["word"].isupper() else [])
    async def proclaim(word: str, ctx: Context) -> str:
        checkpoints.note("proclaim")
        if word == "locked":
            raise InsufficientScope(["notes:admin"])
        for step in range(3):
            await ctx.report_progress(step, 3)
        return word

    yield
    get_registry("interaction").tools.remove("proclaim")


async def test_arguments_without_additional_scopes_are_served(either):
    assert (await (await either(token="carol")).tool("proclaim", {"word": "hush"})).served


@contract
async def test_arguments_with_additional_scopes_are_refused_with_all_required_scopes(either, checkpoints):
    reply = await (await either(token="carol")).tool("proclaim", {"word": "HEAR"})
    assert checkpoints.counts["proclaim"] == 0
    assert reply.error["data"] == {"requiredScopes": ["notes:read", "notes:write"]}
    if reply.status is None:
        return
    assert reply.status == 403
    challenge = reply.headers["www-authenticate"]
    assert 'error="insufficient_scope"' in challenge
    assert 'scope="notes:read notes:write"' in challenge


async def test_the_refusal_of_a_handler_includes_the_scopes_of_every_request(either):
    reply = await (await either(token="writer")).tool("proclaim", {"word": "locked"})
    assert reply.error["data"] == {"requiredScopes": ["notes:admin", "notes:read"]}
    if reply.status is not None:
        assert 'scope="notes:admin notes:read"' in reply.headers["www-authenticate"]


async def test_a_caller_with_all_scopes_is_served(either):
    assert (await (await either(token="writer")).tool("proclaim", {"word": "HEAR"})).served


async def test_the_refusal_comes_before_the_first_byte_of_a_stream(modern):
    reply = await modern(token="carol").tool("proclaim", {"word": "HEAR"}, meta={"progressToken": 1})
    assert reply.status == 403
    assert reply.headers["content-type"] == "application/json"


async def test_invalid_arguments_are_refused_before_scopes(either):
    reply = await (await either(token="carol")).tool("proclaim", {"word": 5})
    assert reply.status != 403
