"""The call that is running, for code that nobody hands it to: log filters, functions deep below a handler.

It is in a context variable, which asyncio copies into tasks and asgiref into threads.
"""

from contextvars import ContextVar, Token
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp_django.server.calls.call import Call

CURRENT: ContextVar["Call | None"] = ContextVar("mcp_django.call", default=None)
"""The pipeline sets it."""


def current_call() -> "Call | None":
    """The MCP call that this code runs for, also in threads and tasks that it started; None outside of one."""
    return CURRENT.get()


def leave(token: "Token[Call | None]") -> None:
    """Undo a `CURRENT.set`."""
    try:
        CURRENT.reset(token)
    except ValueError:
        pass  # closed by the garbage collector, in another context: ours is gone
