"""Dependencies: values that functions of the project provide to handlers.

    Annotated[Shop, Depends(current_shop)]

A dependency can have dependencies. They are sorted when the handler is registered, and each function runs once per
call. A generator function acts as a context manager: the code after its `yield` runs when the handler has finished,
inside its transaction, and receives its exception.
"""

import contextlib
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mcp_django.schema import DeclarationError, injected_among, shape_of
from mcp_django.server.calls.callables import run, yields, yields_async
from mcp_django.server.context.context import Context
from mcp_django.server.injection.parameters import Depends, Injected, is_injected

if TYPE_CHECKING:
    from mcp_django.server.calls.call import Call
    from mcp_django.server.ports import Executor


class Dependencies:
    """Dependencies of one handler, sorted so that each follows its own dependencies."""

    __slots__ = ("_steps", "_targets", "are_left")

    def __init__(self, injected: Injected, where: str) -> None:
        """Sort the dependencies; raise DeclarationError for a circular or unfilled one."""
        plan = _Plan()
        self._targets = tuple((name, plan.index(what, where)) for name, what in injected.depends)
        self._steps = tuple(plan.steps)
        self.are_left = any(step.is_left for step in self._steps)
        """True if a dependency has cleanup code to run after the handler."""

    async def fill(self, values: dict[str, Any], call: "Call", context: Context, stack: AsyncExitStack) -> None:
        """Add the provided values to `values` in place; enter context managers on `stack`."""
        found: list[Any] = []
        for step in self._steps:
            found.append(await step.value(found, call, context, stack))
        for name, index in self._targets:
            values[name] = found[index]

    def __bool__(self) -> bool:
        return bool(self._steps)


class _Plan:
    """Steps collected while a handler is compiled."""

    def __init__(self) -> None:
        self.steps: list[_Step] = []
        self._known: dict[Any, int] = {}
        self._open: list[Any] = []

    def index(self, depends: Depends, where: str) -> int:
        """Return the index of the step for `depends`; add the step if it is missing."""
        provide = depends.provide
        key = _key(provide)
        if depends.cache and key in self._known:
            return self._known[key]
        if key in self._open:
            raise DeclarationError(f"{where}: the dependency {_name(provide)} depends on itself")
        self._open.append(key)
        step = _Step(provide, self, where)
        self._open.pop()
        self.steps.append(step)
        if depends.cache:
            self._known[key] = len(self.steps) - 1
        return len(self.steps) - 1


class _Step:
    """A function that provides a value."""

    __slots__ = ("_contexts", "_injected", "_needs", "_provide", "is_left")

    def __init__(self, provide: Callable[..., Any], plan: _Plan, where: str) -> None:
        if not callable(provide):
            raise DeclarationError(f"{where}: Depends() requires a function, not {type(provide).__name__}")
        where = f"{where}: the dependency {_name(provide)}"
        arguments = shape_of(provide).arguments
        injected = injected_among(arguments, is_injected)
        self._contexts: tuple[str, ...] = ()
        for number, (name, argument) in enumerate(arguments.items()):
            if name in injected:
                continue
            if number == 0 and not injected and argument.annotation in (Any, object):
                self._contexts = (name,)  # an unannotated first parameter receives the Context
            elif argument.required:
                raise DeclarationError(
                    f"{where}: nothing fills its parameter '{name}'; annotate it as Context, Principal, with Depends() "
                    "or Header(), or give it a default"
                )

        self._injected = Injected(provide, injected, where)
        self._needs = tuple((name, plan.index(what, where)) for name, what in self._injected.depends)
        self._provide, self.is_left = _opened(provide)

    async def value(self, found: list[Any], call: "Call", context: Context, stack: AsyncExitStack) -> Any:
        values: dict[str, Any] = dict.fromkeys(self._contexts, context)
        self._injected.fill(values, call, context)
        for name, index in self._needs:
            values[name] = found[index]

        executor = call.server.executor
        if not self.is_left:
            return await run(self._provide, executor, **values)
        opened = self._provide(**values)
        if isinstance(opened, AbstractContextManager):
            opened = _OnLane(opened, executor)
        return await stack.enter_async_context(opened)


class _OnLane:
    """Sync context manager, entered and exited on a thread for blocking code."""

    def __init__(self, inner: AbstractContextManager[Any], executor: "Executor") -> None:
        self._inner, self._executor = inner, executor

    async def __aenter__(self) -> Any:
        return await self._executor.run(self._inner.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._executor.run(self._inner.__exit__, kind, problem, trace)


def _opened(provide: Callable[..., Any]) -> tuple[Callable[..., Any], bool]:
    """Return the function to call, and True if it returns a context manager."""
    if yields_async(provide):
        return contextlib.asynccontextmanager(provide), True
    if yields(provide):
        return contextlib.contextmanager(provide), True
    # A decorated context manager: the wrapper is a plain function, the wrapped function a generator.
    inner = inspect.unwrap(provide)
    return provide, inner is not provide and (yields(inner) or yields_async(inner))


def _key(provide: Any) -> Any:
    try:
        hash(provide)
    except TypeError:
        return id(provide)
    return provide


def _name(provide: Any) -> str:
    return str(getattr(provide, "__qualname__", type(provide).__qualname__)).replace("<locals>.", "")
