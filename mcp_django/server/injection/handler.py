"""The user's function, and how it is run: async on the loop, plain on a lane, with what it asks for injected."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

from mcp_django.server.calls.callables import is_async, is_generator
from mcp_django.server.injection.dependencies import Dependencies
from mcp_django.server.injection.parameters import Injected
from mcp_django.server.ports import Executor

DEFAULT_DATABASE = "default"
Atomic = Literal[True] | tuple[str, ...] | None
"""The databases, by alias, that a handler's transaction covers: these and no others (none for `()`); True for the
default one besides those of the server; None for those of the server.
"""


class Handler:
    """A compiled function: what it is, whether it is async, what it wants injected, and what is one transaction."""

    __slots__ = ("atomic", "dependencies", "fn", "injected", "is_async", "is_generator")

    def __init__(
        self, fn: Callable[..., Any], injected: Mapping[str, Any] | None = None, *, atomic: Atomic = None
    ) -> None:
        """Raises DeclarationError for a parameter that cannot be filled."""
        self.fn = fn
        self.atomic = atomic
        self.is_async = is_async(fn)
        self.is_generator = is_generator(fn)
        """Does it give its result piece by piece?"""
        self.injected: Injected | None = None
        """What the server fills in; None when that is nothing."""
        self.dependencies: Dependencies | None = None
        if injected:
            where = source_of(fn)
            self.injected = Injected(fn, injected, where)
            self.dependencies = Dependencies(self.injected, where) or None

    async def run(self, executor: Executor, values: dict[str, Any]) -> Any:
        """Call the function, async on the loop or plain on a lane."""
        if self.is_async:
            return await self.fn(**values)
        if self.is_generator:
            return self.fn(**values)  # which begins nothing yet
        value = await executor.run(self.fn, **values)
        return await value if inspect.isawaitable(value) else value

    def databases(self, inherited: tuple[str, ...]) -> tuple[str, ...]:
        """Those its transaction covers, where the server's handlers cover `inherited`."""
        if self.atomic is None:
            return inherited
        if self.atomic is True:
            return (DEFAULT_DATABASE, *(name for name in inherited if name != DEFAULT_DATABASE))
        return self.atomic


def source_of(fn: Any) -> str:
    """`module.function (line)`, for messages about a declaration."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    fn = getattr(fn, "__func__", fn)
    code = getattr(fn, "__code__", None)
    name = f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', repr(fn))}"
    return name if code is None else f"{name} (line {code.co_firstlineno})"
