"""Hooks around handlers: guards, interceptors and exception handlers."""

from collections.abc import Awaitable, Callable
from typing import Any

from mcp_django.protocol.errors import ToolError
from mcp_django.server.callables import run_callable
from mcp_django.server.context.context import Context
from mcp_django.server.primitives.base import Primitive

Proceed = Callable[[], Awaitable[object]]


async def run_with_hooks(primitive: Primitive, context: Context, innermost: Proceed) -> Any:
    """Run guards, then interceptors around the handler; map exceptions with handlers."""
    executor = context.server.ports.executor
    proceed = innermost
    for interceptor in reversed(primitive.interceptors):
        proceed = _wrap(interceptor, context, proceed)
    try:
        await check_guards(primitive, context)
        return await proceed()
    except Exception as problem:
        for kind in type(problem).__mro__:
            handle = primitive.exception_handlers.get(kind)
            if handle is not None:
                return await run_callable(handle, executor, problem, context)
        raise


async def check_guards(primitive: Primitive, context: Context) -> None:
    """Run the guards. Raises ToolError if one refuses, or a guard's own exception."""
    for guard in primitive.guards:
        if await run_callable(guard, context.server.ports.executor, context) is False:
            raise ToolError(f"The {primitive.kind} {primitive.key!r} may not be used here")


def _wrap(interceptor: Callable[..., Any], context: Context, inner: Proceed) -> Proceed:
    async def proceed() -> Any:
        return await interceptor(context, inner)

    return proceed
