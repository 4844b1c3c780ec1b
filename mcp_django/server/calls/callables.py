"""How a function of the user's is called: async on the loop, plain on a lane."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from mcp_django.server.ports import Executor


async def run(fn: Callable[..., Any], executor: Executor, /, *args: Any, **kwargs: Any) -> Any:
    """Call a function of the user's, async on the loop or plain on a lane."""
    if is_async(fn):
        return await fn(*args, **kwargs)
    value = await executor.run(fn, *args, **kwargs)
    return await value if inspect.isawaitable(value) else value


def is_async(fn: Callable[..., Any]) -> bool:
    """Also for partials and objects with an async `__call__`."""
    fn = _bare(fn)
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(vars(type(fn)).get("__call__"))


def is_generator(fn: Callable[..., Any]) -> bool:
    """Does calling it begin nothing yet, because it yields? Also for partials and objects that are called."""
    return yields_async(fn) or yields(fn)


def yields(fn: Callable[..., Any]) -> bool:
    """Is it a plain generator function?"""
    fn = _bare(fn)
    return inspect.isgeneratorfunction(fn) or inspect.isgeneratorfunction(vars(type(fn)).get("__call__"))


def yields_async(fn: Callable[..., Any]) -> bool:
    """Is it an async generator function?"""
    fn = _bare(fn)
    return inspect.isasyncgenfunction(fn) or inspect.isasyncgenfunction(vars(type(fn)).get("__call__"))


def _bare(fn: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn
