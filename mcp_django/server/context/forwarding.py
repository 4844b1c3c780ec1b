"""What passes between a client and another server with this one in the middle: questions, and what the caller wants to
hear meanwhile. Results pass as `results.Relayed`.
"""

from typing import Any

from mcp_django.server.client_requests.conversation import Question
from mcp_django.server.context.context import Context


async def put(ctx: Context, question: Question) -> Any:
    """Ask the client of the call a question that is somebody else's. Raises as `ctx.elicit` does."""
    return await ctx._ask(question)


def may_go_on(ctx: Context) -> bool:
    """Can this be a later round of the call, or a call inside of another one? Otherwise nothing was asked before, and
    nothing is remembered.
    """
    return ctx._conversation is not None


def supports(ctx: Context, needed: dict[str, Any]) -> bool:
    """Did the client declare this capability object?"""
    return ctx._call.supports(needed)


def lasts(ctx: Context) -> bool:
    """Does the event loop outlive the call, and can the client hear more than the answer? Not under WSGI."""
    return ctx._call.connection.streams


def wants_progress(ctx: Context) -> bool:
    """Did the client ask for progress?"""
    return "progressToken" in ctx._call.meta


def wanted_level(ctx: Context) -> str | None:
    """The least level of log messages that is to be sent to the client; None when it wants none."""
    return ctx._call.wanted_level
