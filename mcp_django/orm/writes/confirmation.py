"""Asking the person in front of the client before something is done: before the transaction opens, so that it holds
nothing while somebody thinks.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import ToolError
from mcp_django.server.context.context import Context

if TYPE_CHECKING:
    from mcp_django.orm.toolset import ModelToolset

_TOLD = 200
"""Characters of one value that the question shows."""
_LINES = 30


def confirmed(toolset: "ModelToolset", ctx: Context, name: str, message: str, about: Iterable[str] = ()) -> None:
    """Ask about `name`, a verb or an action; come back when the person agrees.

    `about` are the versions of the rows in question: a person who answers after they changed is asked again.

    Raises ToolError when the person does not agree, and when the client cannot ask.
    """
    if toolset.confirm_fallback == "proceed" and not ctx.supports("elicitation.form"):
        return
    key = "-".join(["confirm", name, *about])
    answer = ctx.sync.elicit(message, None, key=key[:128])
    if answer.action != "accept":
        raise ToolError("The person who was asked did not agree, and nothing was changed")


def in_line(value: Any) -> str:
    """A text, or any JSON, on one line and not too long, so that it cannot look like another line of a question."""
    text = " ".join((value if isinstance(value, str) else jsonrpc.dumps(value).decode()).split())
    return text if len(text) <= _TOLD else f"{text[:_TOLD]}…"


def lines(values: Mapping[str, Any]) -> str:
    """What a client gave, a line for each value, for people to read."""
    told = []
    for name, value in list(values.items())[:_LINES]:
        told.append(f"{name}: {in_line(value)}")
    if len(values) > _LINES:
        told.append(f"… and {len(values) - _LINES} more")
    return "\n".join(told)
