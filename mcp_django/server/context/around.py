"""Context managers around handlers: the functions of a server's `AROUND`.

    @contextmanager
    def change_log(ctx):
        with set_actor(ctx.user):
            yield

Each function takes the Context and returns a context manager. A plain function runs on the thread of the call, an async
one on the event loop. Their managers surround each run of a handler: in the stateless era each round of it.
"""

import contextlib
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from mcp_django.server.callables import is_async, is_async_generator, is_sync_generator

if TYPE_CHECKING:
    from mcp_django.server.calls.call import Call
    from mcp_django.server.context.context import Context

T = TypeVar("T")


class RolledBack(Exception):
    """End of a handler that has a result, but has rolled its work back.

    Context managers see it as any exception, so that they neither record the work nor publish it.
    """

    def __init__(self, value: object) -> None:
        super().__init__("The work was rolled back: it was a dry run")
        self.value = value


class Around:
    """A function of `AROUND`. A generator function counts as its context manager."""

    __slots__ = ("_function", "_name", "is_async")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = getattr(function, "__qualname__", type(function).__qualname__)
        self._function = function
        if is_async_generator(function):
            self._function = contextlib.asynccontextmanager(function)
        elif is_sync_generator(function):
            self._function = contextlib.contextmanager(function)
        self.is_async = _returns_async_manager(function)
        """True if the function is called on the event loop."""

    def create(self, context: "Context") -> AbstractContextManager[Any]:
        """Return the manager of a plain function. Call it on the thread of the call."""
        manager = self._function(context)
        if not isinstance(manager, AbstractContextManager):
            raise self._build_type_error(manager)
        return manager

    async def create_async(self, context: "Context") -> AbstractAsyncContextManager[Any] | AbstractContextManager[Any]:
        """Return the manager of an async function."""
        manager = self._function(context)
        if inspect.isawaitable(manager):
            manager = await manager
        if not isinstance(manager, AbstractAsyncContextManager | AbstractContextManager):
            raise self._build_type_error(manager)
        return manager

    def _build_type_error(self, manager: object) -> TypeError:
        return TypeError(
            f"AROUND: {self._name} returned {type(manager).__name__}; decorate it with contextlib.contextmanager, or "
            "with asynccontextmanager if it is async"
        )


def find_around(call: "Call") -> tuple[Around, ...]:
    """Return the functions around the handlers of a call, those of the server's host first."""
    own = call.server.around
    return own if call.host_call is None else (*find_around(call.host_call), *own)


async def run_within(around: Sequence[Around], context: "Context", run: Callable[[], Awaitable[T]]) -> T:
    """Await `run` inside the context managers of `around`, the first outermost.

    Raises:
        RuntimeError: a manager suppressed an exception, so that there is no result.
    """
    if not around:
        return await run()
    executor = context.server.ports.executor

    if not around[0].is_async:
        plain = tuple(takewhile(lambda one: not one.is_async, around))
        factories = [partial(one.create, context) for one in plain]
        return await executor.run_within(factories, lambda: run_within(around[len(plain) :], context, run))

    manager = await around[0].create_async(context)
    if not isinstance(manager, AbstractAsyncContextManager):
        entered = manager
        return await executor.run_within([lambda: entered], lambda: run_within(around[1:], context, run))
    async with manager:
        return await run_within(around[1:], context, run)
    raise RuntimeError("A context manager suppressed the exception of a handler; raise it again after cleanup")


def _returns_async_manager(function: Callable[..., object]) -> bool:
    if isinstance(function, type):
        return issubclass(function, AbstractAsyncContextManager) and not issubclass(function, AbstractContextManager)
    return is_async(function) or is_async_generator(inspect.unwrap(function))
