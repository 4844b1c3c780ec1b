"""Handlers that do something a single time, and those of a server without sessions."""

import mcp_django
from mcp_django import Context, ToolError
from tests.interaction.checkpoints import CHECKPOINTS
from tests.interaction.handlers import tool


@tool()
async def charge(ctx: Context, amount: int = 1) -> str:
    """Take money, at most once."""
    return str(await ctx.run_once("charge", lambda: CHECKPOINTS.note("charged"), durable=True))


@tool()
async def charge_and_ask(ctx: Context) -> str:
    """Ask, take money at most once, and ask again."""
    if not await ctx.elicit("Pay?", None, key="pay"):
        return "not paid"
    number = await ctx.run_once("charge", lambda: CHECKPOINTS.note("charged"), durable=True)
    answer = await ctx.elicit("A receipt?", bool, key="receipt")
    return f"{number} {answer.action}"


@tool()
def charge_in_a_thread(ctx: Context) -> str:
    """Take money at most once, in a plain function."""
    return str(ctx.sync.run_once("charge", lambda: CHECKPOINTS.note("charged"), durable=True))


@tool()
async def charge_in_vain(ctx: Context) -> str:
    """Take money that is not there."""

    def run() -> None:
        CHECKPOINTS.note("charged")
        raise ToolError("No funds")

    return str(await ctx.run_once("charge", run, durable=True))


@tool(atomic=True)
async def charge_in_a_transaction(ctx: Context) -> str:
    """Take money that could be given back."""
    return str(await ctx.run_once("charge", lambda: CHECKPOINTS.note("charged"), durable=True))


@mcp_django.tool(server="tenants", name="confirm")
@mcp_django.tool(server="unsessioned", name="confirm")
@tool(single_use_state=True)
async def confirm(ctx: Context) -> str:
    """Take one answer, once."""
    return (await ctx.elicit("Sure?", None, key="sure")).action


@mcp_django.tool(server="unsessioned")
async def whose(ctx: Context) -> list[str | None]:
    """Return the client info, log, and report progress."""
    await ctx.info("not for anybody")
    await ctx.report_progress(1)
    return [ctx.revision, None if ctx.session is None else "a session", ctx.client_info.get("name")]


@mcp_django.tool(server="unsessioned")
async def ask_user(ctx: Context) -> str:
    """Ask a user that cannot answer."""
    return (await ctx.elicit("Sure?", None, key="sure")).action


@mcp_django.tool(server="unsessioned")
async def charge_per_request(ctx: Context) -> str:
    """Take money once for each request."""
    return str(await ctx.run_once("charge", lambda: CHECKPOINTS.note("charged"), durable=True))
