"""Questions about a write to the client's user.

A question is sent before the transaction opens, so no locks are held while the client waits for its user.
"""

from collections.abc import Iterable

from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.rows.lookup import format_on_one_line
from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.jsonrpc import JSONMapping
from mcp_django.server.context.context import Context

_MAX_LINES = 30


def require_confirmation(
    toolset: BaseModelToolset,
    ctx: Context,
    name: str,
    message: str,
    versions: Iterable[str] = (),
    *,
    strict: bool = False,
) -> None:
    """Request confirmation of a tool or an action from the client's user.

    Return if the user agrees. `versions` are the versions of the rows in question. If they change before the answer,
    the question is sent again. With `strict`, an app does not count.

    Raises:
        ToolError: the user did not agree, or the client cannot ask its user.
    """
    if toolset.confirm_fallback == "proceed" and not ctx.supports("elicitation.form"):
        return
    key = "-".join(["confirm", name, *versions])
    answer = ctx.sync.elicit(message, None, key=key[:128], strict=strict)
    if answer.action != "accept":
        raise ToolError("The user did not agree, and nothing was changed")


def format_values(values: JSONMapping) -> str:
    """Format a client's values for people, one line each."""
    lines = []
    for name, value in list(values.items())[:_MAX_LINES]:
        lines.append(f"{name}: {format_on_one_line(value)}")
    if len(values) > _MAX_LINES:
        lines.append(f"… and {len(values) - _MAX_LINES} more")
    return "\n".join(lines)
