"""Middleware: functions around every message that has become a call.

    async def audit(call, call_next):
        result = await call_next(call)
        ...
        return result

The first function of a server's list is the outermost. It receives `initialize`, `notifications/initialized`, unknown
methods and invalid arguments, and it receives the handler's result. Errors reach it as exceptions. Raising an MCPError
answers the request with that error; this is how to refuse `initialize`.

`dataclasses.replace(call, ...)` passes a changed call on. A notification has `call.id is None`, and its return value is
discarded. During `initialize` no session exists, so the handler cannot send requests to the client.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from mcp_django.server.calls.call import Call

CallHandler = Callable[[Call], Awaitable[dict[str, Any]]]
Middleware = Callable[[Call, CallHandler], Awaitable[dict[str, Any]]]


def chain_middleware(middleware: Sequence[Middleware], innermost: CallHandler) -> CallHandler:
    """Build one function that runs all middleware, the first outermost."""
    handle = innermost
    for layer in reversed(middleware):
        handle = _wrap(layer, handle)
    return handle


def _wrap(layer: Middleware, inner: CallHandler) -> CallHandler:
    def handle(call: Call) -> Awaitable[dict[str, Any]]:
        return layer(call, inner)

    return handle
