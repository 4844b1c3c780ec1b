"""Calls of project functions: async on the event loop, sync on a thread."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction

from mcp_django.server.ports import Executor


async def run_callable(fn: Callable[..., Any], executor: Executor, /, *args: Any, **kwargs: object) -> Any:
    """Call a function of the project: async on the event loop, sync on a thread."""
    if is_async(fn):
        return await fn(*args, **kwargs)
    value = await executor.run(fn, *args, **kwargs)
    return await value if inspect.isawaitable(value) else value


def is_async(fn: Callable[..., object]) -> bool:
    """Return True if `fn` is async, or marked as such; as a partial or through `__call__` as well."""
    fn = _unwrap_partial(fn)
    return iscoroutinefunction(fn) or iscoroutinefunction(vars(type(fn)).get("__call__"))


def accepts_keyword(fn: Callable[..., object], name: str) -> bool:
    """Return True if `fn` has a parameter of this name; `**kwargs` does not count."""
    try:
        parameter = inspect.signature(fn).parameters.get(name)
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)


def is_generator(fn: Callable[..., object]) -> bool:
    """Return True if `fn` is a generator function, sync or async.

    Calling such a function does not start its body. Partials and callable objects are supported.
    """
    return is_async_generator(fn) or is_sync_generator(fn)


def is_sync_generator(fn: Callable[..., object]) -> bool:
    """Return True if `fn` is a sync generator function."""
    fn = _unwrap_partial(fn)
    return inspect.isgeneratorfunction(fn) or inspect.isgeneratorfunction(vars(type(fn)).get("__call__"))


def is_async_generator(fn: Callable[..., object]) -> bool:
    """Return True if `fn` is an async generator function."""
    fn = _unwrap_partial(fn)
    return inspect.isasyncgenfunction(fn) or inspect.isasyncgenfunction(vars(type(fn)).get("__call__"))


def _unwrap_partial(fn: Callable[..., object]) -> Callable[..., object]:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn
