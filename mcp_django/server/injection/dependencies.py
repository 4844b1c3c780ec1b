"""Dependencies: values that functions of the project provide to handlers.

    Annotated[Shop, Depends(current_shop)]

A dependency can have dependencies. They are sorted when the handler is registered, and each function runs once per
call. A generator function acts as a context manager: the code after its `yield` runs when the handler has finished,
inside its transaction, and receives its exception.
"""

import contextlib
import contextvars
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack
from types import TracebackType
from typing import Any

from mcp_django.aio.asgiref_internals import move_context
from mcp_django.schema import DeclarationError, find_injected, inspect_callable
from mcp_django.server.callables import is_async_generator, is_sync_generator, run_callable
from mcp_django.server.injection.parameters import Depends, InjectedParameters, is_injected
from mcp_django.server.ports import ContextView, Executor


class Dependencies:
    """Dependencies of one handler, sorted so that each follows its own dependencies."""

    __slots__ = ("_steps", "_targets", "has_cleanup")

    def __init__(self, injected: InjectedParameters, where: str) -> None:
        """Sort the dependencies; raise DeclarationError for a circular or unfilled one."""
        plan = _DependencyPlan()
        self._targets = tuple((name, plan.add(what, where)) for name, what in injected.depends)
        self._steps = tuple(plan.steps)
        self.has_cleanup = any(step.has_cleanup for step in self._steps)
        """True if a dependency has cleanup code to run after the handler."""

    async def fill(
        self, values: dict[str, Any], context: ContextView, executor: Executor, stack: AsyncExitStack
    ) -> None:
        """Add the provided values to `values` in place; enter context managers on `stack`."""
        results: list[Any] = []
        for step in self._steps:
            results.append(await step.provide(results, context, executor, stack))
        for name, index in self._targets:
            values[name] = results[index]

    def __bool__(self) -> bool:
        return bool(self._steps)


class _DependencyPlan:
    """Steps collected while a handler is compiled."""

    def __init__(self) -> None:
        self.steps: list[_DependencyStep] = []
        self._indexes: dict[Any, int] = {}
        self._open: list[Any] = []

    def add(self, depends: Depends, where: str) -> int:
        """Return the index of the step for `depends`; add the step if it is missing."""
        provide = depends.provide
        key = _cache_key(provide)
        if depends.cache and key in self._indexes:
            return self._indexes[key]
        if key in self._open:
            raise DeclarationError(f"{where}: the dependency {_get_name(provide)} depends on itself")
        self._open.append(key)
        step = _DependencyStep(provide, self, where)
        self._open.pop()
        self.steps.append(step)
        if depends.cache:
            self._indexes[key] = len(self.steps) - 1
        return len(self.steps) - 1


class _DependencyStep:
    """A function that provides a value."""

    __slots__ = ("_context_names", "_dependencies", "_injected", "_provide", "has_cleanup")

    def __init__(self, provide: Callable[..., object], plan: _DependencyPlan, where: str) -> None:
        if not callable(provide):
            raise DeclarationError(f"{where}: Depends() requires a function, not {type(provide).__name__}")
        where = f"{where}: the dependency {_get_name(provide)}"
        arguments = inspect_callable(provide).parameters
        injected = find_injected(arguments, is_injected)
        self._context_names: tuple[str, ...] = ()
        for number, (name, argument) in enumerate(arguments.items()):
            if name in injected:
                continue
            if number == 0 and not injected and argument.annotation in (object, Any):
                self._context_names = (name,)  # an unannotated first parameter receives the Context
            elif argument.is_required:
                raise DeclarationError(
                    f"{where}: nothing fills its parameter '{name}'; annotate it as Context, Principal, with Depends() "
                    "or Header(), or give it a default"
                )

        self._injected = InjectedParameters(provide, injected, where)
        self._dependencies = tuple((name, plan.add(what, where)) for name, what in self._injected.depends)
        self._provide, self.has_cleanup = _resolve_provider(provide)

    async def provide(self, results: list[Any], context: ContextView, executor: Executor, stack: AsyncExitStack) -> Any:
        values: dict[str, Any] = dict.fromkeys(self._context_names, context)
        self._injected.fill(values, context)
        for name, index in self._dependencies:
            values[name] = results[index]

        if not self.has_cleanup:
            return await run_callable(self._provide, executor, **values)
        manager = self._provide(**values)
        if isinstance(manager, AbstractContextManager):
            manager = _ThreadedContextManager(manager, executor)
        return await stack.enter_async_context(manager)


class _ThreadedContextManager:
    """Sync context manager, entered and exited on a thread for blocking code.

    Both happen in one context, because `ContextVar.reset` accepts a token in no other. Its variables are those of the
    caller, and the caller gets the values that the manager sets.
    """

    def __init__(self, inner: AbstractContextManager[object], executor: Executor) -> None:
        self._inner = inner
        self._executor = executor
        self._context = contextvars.Context()

    async def __aenter__(self) -> object:
        value = await self._executor.run(self._run_in_context, self._inner.__enter__)
        move_context(self._context)
        return value

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        is_suppressed: bool | None = await self._executor.run(
            self._run_in_context, self._inner.__exit__, kind, problem, trace
        )
        move_context(self._context)
        return is_suppressed

    def _run_in_context(self, function: Callable[..., object], *args: object) -> Any:
        caller_context = contextvars.copy_context()

        def run() -> Any:
            move_context(caller_context)
            return function(*args)

        return self._context.run(run)


def _resolve_provider(provide: Callable[..., Any]) -> tuple[Callable[..., Any], bool]:
    """Return the function to call, and True if it returns a context manager."""
    if is_async_generator(provide):
        return contextlib.asynccontextmanager(provide), True
    if is_sync_generator(provide):
        return contextlib.contextmanager(provide), True
    # A decorated context manager: the wrapper is a plain function, the wrapped function a generator.
    inner = inspect.unwrap(provide)
    return provide, inner is not provide and (is_sync_generator(inner) or is_async_generator(inner))


def _cache_key(provide: object) -> object:
    try:
        hash(provide)
    except TypeError:
        return id(provide)
    return provide


def _get_name(provide: object) -> str:
    return str(getattr(provide, "__qualname__", type(provide).__qualname__)).replace("<locals>.", "")
