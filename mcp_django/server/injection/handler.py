"""Compiled project functions, called on the loop or a thread with injected values."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

from mcp_django.server.callables import is_async, is_generator
from mcp_django.server.injection.dependencies import Dependencies
from mcp_django.server.injection.parameters import InjectedParameters
from mcp_django.server.ports import AttemptControl, Executor

DEFAULT_DATABASE = "default"
AtomicDatabases = Literal[True] | tuple[str, ...] | None
"""Databases of a handler's transaction.

A tuple of aliases covers exactly those databases; `()` covers no database. True adds the default database to those of
the server. None uses those of the server.
"""


class Handler:
    """Compiled function with its kind, its injected parameters and its transaction."""

    __slots__ = ("atomic", "dependencies", "fn", "injected", "is_async", "is_generator")

    def __init__(
        self, fn: Callable[..., Any], injected: Mapping[str, Any] | None = None, *, atomic: AtomicDatabases = None
    ) -> None:
        """Compile a function; raise DeclarationError for an unfilled parameter."""
        self.fn = fn
        self.atomic = atomic
        self.is_async = is_async(fn)
        self.is_generator = is_generator(fn)
        """True if the function returns its result piece by piece."""
        self.injected: InjectedParameters | None = None
        """Parameters that the server fills; None if there are none."""
        self.dependencies: Dependencies | None = None
        if injected:
            where = describe_source(fn)
            self.injected = InjectedParameters(fn, injected, where)
            self.dependencies = Dependencies(self.injected, where) or None

    async def run(
        self,
        executor: Executor,
        values: dict[str, Any],
        attempt: AttemptControl | None = None,
        on_value: Callable[[Any], object] | None = None,
    ) -> Any:
        """Call the function: async on the event loop, sync on a thread. Its begin is recorded in `attempt`.

        With an attempt, `on_value` is called with the value of a sync function, on its thread.
        """
        if attempt is not None and (self.is_async or self.is_generator):
            attempt.has_begun = True
        if self.is_async:
            return await self.fn(**values)
        if self.is_generator:
            return self.fn(**values)  # does not start the generator
        if attempt is None:
            value = await executor.run(self.fn, **values)
        else:
            value = await executor.run(self._run_on_thread, attempt, values, on_value)
        return await value if inspect.isawaitable(value) else value

    def _run_on_thread(
        self, attempt: AttemptControl, values: dict[str, Any], on_value: Callable[[Any], object] | None
    ) -> object:
        attempt.has_begun = True
        value = self.fn(**values)
        if on_value is not None:
            on_value(value)
        return value

    def get_databases(self, inherited: tuple[str, ...]) -> tuple[str, ...]:
        """Return the databases of the handler's transaction, given those of the server."""
        if self.atomic is None:
            return inherited
        if self.atomic is True:
            return (DEFAULT_DATABASE, *(name for name in inherited if name != DEFAULT_DATABASE))
        return self.atomic


def describe_source(fn: Any) -> str:
    """Return `module.function (line)`, for messages about a declaration."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    fn = getattr(fn, "__func__", fn)
    code = getattr(fn, "__code__", None)
    name = f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', repr(fn))}"
    return name if code is None else f"{name} (line {code.co_firstlineno})"
