"""Middleware: functions around every message that has become a call.

    async def audit(call, call_next):
        result = await call_next(call)
        ...
        return result

The first of a server's list is the outermost. It sees `initialize` and `notifications/initialized`, methods that do
not exist, arguments that do not fit, and the handler's result; errors reach it as exceptions, and raising an MCPError
answers the request with it, which is how `initialize` is refused. `dataclasses.replace(call, ...)` passes another
call on. A notification has `call.id is None`; what is returned for it is dropped. During `initialize` there is no
session yet, so nothing can be asked.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from mcp_django.server.calls.call import Call

Handle = Callable[[Call], Awaitable[dict[str, Any]]]
Middleware = Callable[[Call, Handle], Awaitable[dict[str, Any]]]


def chain(middleware: Sequence[Middleware], innermost: Handle) -> Handle:
    """The one function that runs them all, the first outermost."""
    handle = innermost
    for layer in reversed(middleware):
        handle = _around(layer, handle)
    return handle


def _around(layer: Middleware, inner: Handle) -> Handle:
    def handle(call: Call) -> Awaitable[dict[str, Any]]:
        return layer(call, inner)

    return handle
