"""The tools of the measurements.

env: NTOOLS adds fillers, BENCH_ANNOUNCE adds a tool that notifies clients of a changed list, and with BENCH_GUARDED
"add" requires a scope and a permission.
"""

import os
from collections.abc import Awaitable, Callable

from benchmarks.site.models import Item
from mcp_django import Context, anotify_list_changed, tool

GUARDED = bool(os.environ.get("BENCH_GUARDED"))


@tool(scopes=["bench:add"] if GUARDED else [], permission="benchmarks_site.view_item" if GUARDED else None)
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@tool
async def echo(text: str) -> str:
    """Echo the text."""
    return text


@tool
async def countdown(steps: int, ctx: Context) -> str:
    """Emit progress notifications."""
    for step in range(steps):
        await ctx.report_progress(step + 1, steps)
    return "done"


@tool
def lookup(pk: int) -> str:
    """Look an item up."""
    return Item.objects.get(pk=pk).name


@tool
async def greet(name: str = "you", excited: bool = False) -> str:
    """Greet someone."""
    return f"hi {name}{'!' if excited else ''}"


async def announce() -> str:
    """Send a notification that the list of tools changed."""
    await anotify_list_changed("tools")
    return "said"


def filler(number: int) -> Callable[..., Awaitable[str]]:
    """Return another tool, which makes the list longer."""

    async def fill(a: int, b: str = "x", c: bool = False) -> str:
        return f"{a}{b}{c}"

    fill.__name__, fill.__doc__ = f"tool_{number}", f"Filler tool number {number}."
    return fill


for extra in range(5, int(os.environ.get("NTOOLS", "5"))):
    tool(filler(extra))
if os.environ.get("BENCH_ANNOUNCE"):
    tool(announce)
