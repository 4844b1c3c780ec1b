"""A handler with questions, a loop and sampling in one call, for the real clients of `tests.clients`."""

import itertools
from dataclasses import dataclass
from typing import Literal

from mcp_django import Context, tool

BOOKINGS = itertools.count(1)


@dataclass
class Traveller:
    """Asked first."""

    name: str
    cabin: Literal["first", "second"] = "second"


def distance(stops: int) -> int:
    """How far a journey is.

    Args:
        stops: How many places it visits.
    """
    return 100 * stops


@tool()
async def plan_journey(ctx: Context) -> str:
    """Plan and book a journey: questions, a loop, a `once` and a sample, with a tool where the client has them."""
    who = await ctx.elicit("Who travels?", Traveller)
    stops: list[str] = []
    while (await ctx.elicit(f"Another stop after {len(stops)}?", bool)).data:
        stops.append((await ctx.elicit("Which stop?", str)).data or "")
    number = await ctx.run_once("book", lambda: next(BOOKINGS))
    tools = [distance] if ctx.supports("sampling.tools") else None
    said = await ctx.sample(f"How far is it to visit {len(stops)} places?", tools=tools, max_tokens=50)
    sure = await ctx.elicit("Confirm?", bool, key="confirm")
    booked = "confirmed" if sure and sure.data else "dropped"
    return f"{who.data.name} ({who.data.cabin}) via {', '.join(stops)}: {said.text} km, {booked}, booking {number}"
