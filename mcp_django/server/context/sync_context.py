"""Blocking Context for sync handlers, used in their own thread."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async

from mcp_django.server.context.conversation import gather
from mcp_django.server.context.sampling import SamplingLoop, SamplingResult, prepare_sampling

if TYPE_CHECKING:
    from mcp_django.server.context.context import Context

CLIENT_REQUEST_METHODS = frozenset({"elicit", "elicit_url", "list_roots"})
"""Context methods that only wait for the client, for their whole duration."""


class SyncContext:
    """`ctx.sync`: blocking versions of the awaitable methods of a Context."""

    __slots__ = ("_context",)

    def __init__(self, context: "Context") -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._context, name)
        if not iscoroutinefunction(value):
            return value

        def wait(*args: object, **kwargs: object) -> Any:
            if name not in CLIENT_REQUEST_METHODS:
                return async_to_sync(value)(*args, **kwargs)
            self._context.check_no_transaction()
            # Both eras may wait for a page.
            with self._context.blocking_wait(always=name == "elicit_url"):
                return async_to_sync(value)(*args, **kwargs)

        return wait

    def sample(self, messages: Any, **given: Any) -> SamplingResult[Any]:
        """Sample like `Context.sample`.

        The thread is blocked only while the model answers. Tools that are sync functions run on it.
        """
        context = self._context

        sampling: SamplingLoop = async_to_sync(prepare_sampling)(context, messages, **given)
        while True:
            context.check_no_transaction()
            with context.blocking_wait():
                async_to_sync(sampling.request_message)()
            sample = async_to_sync(sampling.process_message)()
            if sample is not None:
                return sample

    def run_once(self, key: str, fn: Callable[[], object], *, durable: bool = False) -> Any:
        """Run a step once, like `Context.run_once`; a sync `fn` runs on this thread."""
        context = self._context

        async def run() -> Any:
            value = await sync_to_async(lambda: fn())()  # call it on that thread, whatever its kind
            return await context.run_on_call_loop(value) if asyncio.iscoroutine(value) else value

        if durable:
            context.check_no_transaction(durable=True)
        return async_to_sync(context.run_step)(key, run, durable)

    def gather(self, *branches: Callable[["Context"], Awaitable[object]]) -> list[Any]:
        """Run functions of the async Context concurrently.

        ctx.sync.gather(lambda c: c.elicit("A?"), lambda c: c.elicit("B?"))
        """

        async def run() -> list[Any]:
            return await gather(*(branch(self._context) for branch in branches))

        with self._context.blocking_wait():
            return async_to_sync(run)()
