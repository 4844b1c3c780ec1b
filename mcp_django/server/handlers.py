"""The user's function, and how it is run: async on the loop, plain on a lane, with what it asks for injected."""

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from .context import Context
from .ports import Executor, Principal

DEFAULT_DATABASE = "default"
Atomic = Literal[True] | tuple[str, ...] | None
"""The databases, by alias, that a handler's transaction covers: these and no others (none for `()`); True for the
default one besides those of the server; None for those of the server.
"""


@dataclass(frozen=True, slots=True)
class Depends:
    """`Annotated[Shop, Depends(current_shop)]`: the parameter is filled by `provide`, which may be async and may take
    the Context.

    It is resolved for each call, before the handler runs, and never shows in a schema.
    """

    provide: Callable[..., Any]


def injection(annotation: Any) -> Any:
    """What the server fills a parameter of this type with: Context, Principal or a Depends; None when the client
    fills it.
    """
    if get_origin(annotation) is Annotated:
        inner, *extras = get_args(annotation)
        return next((extra for extra in extras if isinstance(extra, Depends)), None) or injection(inner)
    if get_origin(annotation) in (Union, types.UnionType):
        return next((found for part in get_args(annotation) if (found := injection(part)) is not None), None)
    if annotation is Principal:
        return Principal
    return Context if isinstance(annotation, type) and issubclass(annotation, Context) else None


def is_injected(annotation: Any) -> bool:
    """Is a parameter of this type filled by the server instead of the client?"""
    return injection(annotation) is not None


def injected_parameters(fn: Callable[..., Any]) -> dict[str, Any]:
    """The parameters of `fn` that the server fills, with their annotations."""
    return {
        name: hint
        for name, hint in get_type_hints(fn, include_extras=True).items()
        if name != "return" and is_injected(hint)
    }


class Handler:
    """A compiled function: what it is, whether it is async, what it wants injected, and what is one transaction."""

    __slots__ = ("_depends", "atomic", "contexts", "fn", "is_async", "principals")

    def __init__(
        self, fn: Callable[..., Any], injected: Mapping[str, Any] | None = None, *, atomic: Atomic = None
    ) -> None:
        self.fn = fn
        self.atomic = atomic
        self.is_async = is_async(fn)
        wanted = {name: injection(annotation) for name, annotation in (injected or {}).items()}
        self.contexts = tuple(name for name, what in wanted.items() if what is Context)
        self.principals = tuple(name for name, what in wanted.items() if what is Principal)
        self._depends = tuple(
            (name, what.provide, bool(inspect.signature(what.provide).parameters))
            for name, what in wanted.items()
            if isinstance(what, Depends)
        )

    async def resolve(self, values: dict[str, Any], context: Context) -> None:
        """Add to `values`, in place, what the handler's dependencies provide."""
        for name, provide, takes_context in self._depends:
            values[name] = await run(provide, context.server.executor, *((context,) if takes_context else ()))

    async def run(self, executor: Executor, values: dict[str, Any]) -> Any:
        """Call the function, async on the loop or plain on a lane."""
        if self.is_async:
            return await self.fn(**values)
        value = await executor.run(self.fn, **values)
        return await value if inspect.isawaitable(value) else value

    def databases(self, inherited: tuple[str, ...]) -> tuple[str, ...]:
        """Those its transaction covers, where the server's handlers cover `inherited`."""
        if self.atomic is None:
            return inherited
        if self.atomic is True:
            return (DEFAULT_DATABASE, *(name for name in inherited if name != DEFAULT_DATABASE))
        return self.atomic

    @property
    def has_dependencies(self) -> bool:
        return bool(self._depends)


async def run(fn: Callable[..., Any], executor: Executor, /, *args: Any, **kwargs: Any) -> Any:
    """Call a function of the user's, async on the loop or plain on a lane."""
    if is_async(fn):
        return await fn(*args, **kwargs)
    value = await executor.run(fn, *args, **kwargs)
    return await value if inspect.isawaitable(value) else value


def is_async(fn: Callable[..., Any]) -> bool:
    """Also for partials and objects with an async `__call__`."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(vars(type(fn)).get("__call__"))


def source_of(fn: Any) -> str:
    """`module.function (line)`, for messages about a declaration."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    fn = getattr(fn, "__func__", fn)
    code = getattr(fn, "__code__", None)
    name = f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', repr(fn))}"
    return name if code is None else f"{name} (line {code.co_firstlineno})"
