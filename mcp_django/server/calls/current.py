"""Current call, for code without access to it, such as log filters.

It is a context variable, which asyncio copies into tasks and asgiref into threads.
"""

from contextvars import ContextVar, Token
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp_django.server.calls.call import Call

CURRENT_CALL: ContextVar["Call | None"] = ContextVar("mcp_django.call", default=None)
"""Current call; set by the pipeline."""


def current_call() -> "Call | None":
    """Return the MCP call that this code runs for; None outside of a call.

    Also works in threads and tasks that the call started.
    """
    return CURRENT_CALL.get()


def reset_current_call(token: "Token[Call | None]") -> None:
    """Undo a `CURRENT_CALL.set`."""
    try:
        CURRENT_CALL.reset(token)
    except ValueError:
        pass  # closed by the garbage collector, in another context: the variable no longer exists there
