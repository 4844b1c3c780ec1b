"""Hooks around handlers: guards, interceptors and exception handlers."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from mcp_django.protocol.errors import ToolError
from mcp_django.schema import DeclarationError
from mcp_django.server.calls.callables import run_callable

if TYPE_CHECKING:
    from mcp_django.server.context.context import Context
    from mcp_django.server.primitives.base import Primitive

Proceed = Callable[[], Awaitable[Any]]


async def run_with_hooks(primitive: "Primitive", context: "Context", innermost: Proceed) -> Any:
    """Run guards, then interceptors around the handler; map exceptions with handlers."""
    executor = context.server.executor
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


async def check_guards(primitive: "Primitive", context: "Context") -> None:
    """Run the guards. Raises ToolError if one refuses, or a guard's own exception."""
    for guard in primitive.guards:
        if await run_callable(guard, context.server.executor, context) is False:
            raise ToolError(f"The {primitive.kind} {primitive.key!r} may not be used here")


def parse_hooks(options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Validate the hooks of a declaration. Raises DeclarationError.

    Classes are refused: calling one creates an instance instead of checking, so every caller would pass.
    """

    guards, interceptors = (tuple(options.get(name, ())) for name in ("guards", "interceptors"))
    handlers = dict(options.get("exception_handlers", {}))
    for name, functions in (
        ("guards", guards),
        ("interceptors", interceptors),
        ("exception_handlers", handlers.values()),
    ):
        for function in functions:
            if isinstance(function, type) or not callable(function):
                raise DeclarationError(f"{where}: {name} must be functions or callable objects, not {function!r}")

    for kind in handlers:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise DeclarationError(f"{where}: keys of exception_handlers must be exception classes, not {kind!r}")
    return {"guards": guards, "interceptors": interceptors, "exception_handlers": handlers}


def _wrap(interceptor: Callable[..., Any], context: "Context", inner: Proceed) -> Proceed:
    async def proceed() -> Any:
        return await interceptor(context, inner)

    return proceed
