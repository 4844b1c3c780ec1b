"""The handlers of these tests."""

import functools
from typing import Any

import mcp_django
from mcp_django import Context
from tests.interaction.checkpoints import CHECKPOINTS

tool = functools.partial(mcp_django.tool, server="posts")


@tool()
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@tool()
async def wait() -> str:
    """Wait at a gate."""
    await CHECKPOINTS.wait_at("wait")
    return "waited"


@tool()
async def ask(ctx: Context) -> str:
    """Ask for a colour."""
    answer = await ctx.elicit("Which colour?", str)
    return f"{answer.action}: {answer.data}"


@tool()
async def flood(ctx: Context, messages: int) -> str:
    """Log more messages than the client reads."""
    for number in range(messages):
        await ctx.info("x" * 1000)
        CHECKPOINTS.note("said" if number else "began")
    return "flooded"


@mcp_django.tool(server="rooms")
async def whereabouts(ctx: Context) -> dict[str, Any]:
    """Return the content of the request."""
    request = ctx.request
    return {
        "path": request.get_full_path(),
        "method": request.method,
        "kwargs": dict(ctx.url_kwargs),
        "user": ctx.principal.subject,
        "name": request.resolver_match.namespaces,
    }
