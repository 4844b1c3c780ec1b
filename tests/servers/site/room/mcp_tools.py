"""A tool that asks twice, and calls whose number, durations and outcomes are known."""

from time import perf_counter
from typing import Annotated

from pydantic import Field

from mcp_django import Context, ToolError, tool, wiring
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.observability import current_call
from tests.server.client import PipelineClient

KNOWN_CALLS = 1000
"""Calls that all processes together make. The n-th takes n milliseconds, and every 50th fails."""


@tool()
async def plan_with_questions(place: Annotated[str, Field(max_length=10)], ctx: Context) -> str:
    """Report three steps, and ask twice."""
    await ctx.info("<b>planning</b>")
    for done in range(3):
        await ctx.report_progress(done, 3, f"step {done}")
    days = await ctx.elicit("How many days?", int, key="days")
    sure = await ctx.elicit(f"{days.data} days in {place}?", bool, key="sure")
    return f"{place}, {days.data} days, {sure.action}"


@tool()
async def spend(milliseconds: int) -> str:
    """Have taken some time."""
    call = current_call()
    assert call is not None
    call.started_at = perf_counter() - milliseconds / 1000
    if not milliseconds % 50:
        raise ToolError("Spent in vain")
    return "spent"


@tool()
async def make_known_calls(user: str, revision: str, first: int) -> int:
    """Make every second of the known calls from the first one on, as a user in a revision."""
    principal = DjangoPrincipal(issuer="tests", subject=user, client_id="cli")
    client = PipelineClient(wiring.get_server("default"), principal, revision)
    numbers = range(first, KNOWN_CALLS + 1, 2)
    for number in numbers:
        await client.call("spend", milliseconds=number)
    return len(numbers)
