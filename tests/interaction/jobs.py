"""Tools whose calls become tasks."""

from mcp_django import Context, tool
from mcp_django.types import TaskOptions

SERVER = "jobs"


@tool(server=SERVER, task=TaskOptions(grace=0))
async def confirm(ctx: Context, name: str) -> str:
    """Ask, inside the task."""
    answer = await ctx.elicit(f"Delete {name}?", bool, key="confirm")
    return f"{name}: {answer.action} {answer.data}, by {ctx.principal.subject}"


@tool(server=SERVER, task=TaskOptions(grace=0))
def tenant(ctx: Context) -> str:
    """Return the tenant of the URL, from a plain function."""
    ctx.sync.report_progress(1, 1, "found")
    return f"{ctx.url_kwargs}"


@tool(server=SERVER, task="required")
async def quick() -> str:
    """Answer within the grace."""
    return "quick"
