"""Handlers whose calls outlast their connections. Tests decide when they send messages."""

import functools

import mcp_django
from mcp_django import Context
from tests.interaction.checkpoints import CHECKPOINTS

tool = functools.partial(mcp_django.tool, server="interaction")


@tool()
async def count(to: int, ctx: Context) -> str:
    """Log the numbers from 1 on, each when its gate is open."""
    for number in range(1, to + 1):
        await CHECKPOINTS.gate(f"say {number}").wait()
        await ctx.warning(number)
        CHECKPOINTS.note(f"said {number}")
    await CHECKPOINTS.gate("answer").wait()
    CHECKPOINTS.note("answered")
    return "counted"


@tool()
async def chatter_on(to: int, ctx: Context) -> str:
    """Log the numbers from 1 on without a pause, after a wait at a gate."""
    await ctx.warning(1)
    await CHECKPOINTS.wait_at("chatter")
    for number in range(2, to + 1):
        await ctx.warning(number)
        CHECKPOINTS.note("chattered")
    return "counted"


@tool()
async def poll(ctx: Context, first: str = "", retry: float = 0.25) -> str:
    """Send the client away, after a word if there is one, and wait at a gate."""
    if first:
        await ctx.warning(first)
    closed = await ctx.close_stream(retry=retry)
    CHECKPOINTS.note("closed" if closed else "not closed")
    await CHECKPOINTS.wait_at("poll")
    await ctx.warning("meanwhile")
    return "closed" if closed else "not closed"


@tool()
def poll_in_a_thread(ctx: Context) -> str:
    """The same in a plain function."""
    return "closed" if ctx.sync.close_stream(retry=0.25) else "not closed"


@tool()
async def ask_after_gate(ctx: Context) -> str:
    """Log a word, wait at a gate, then ask."""
    await ctx.warning("before")
    await CHECKPOINTS.wait_at("ask")
    answer = await ctx.elicit("Your name?", str)
    return f"Hello {answer.data}"
