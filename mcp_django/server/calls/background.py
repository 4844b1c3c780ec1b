"""Background jobs that run after the response is sent: `ctx.background`.

A job is held by the run of the handler until the handler succeeds and its transaction, if any, commits. Then the call
holds it until the process that serves the call has sent the response and runs it. Failures are logged; the client does
not receive them.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from mcp_django.aio.asgiref_internals import move_context
from mcp_django.protocol.log_text import get_logger
from mcp_django.server.callables import run_callable
from mcp_django.server.calls.log_sanitizer import get_target_label, sanitize_label

if TYPE_CHECKING:
    from mcp_django.server.calls.call import Call

logger = get_logger("mcp_django.server")


class BackgroundSlot(Protocol):
    """A place for one background job in this process."""

    def release(self) -> None:
        """Release the place. May be called more than once."""


class BackgroundSlots(Protocol):
    """Limit on waiting and running background jobs."""

    def acquire(self) -> BackgroundSlot:
        """Acquire a place. Raises Overloaded at the limit. Thread-safe."""


class UnlimitedBackgroundSlots:
    """Places of a server without a limit."""

    def acquire(self) -> "UnlimitedBackgroundSlots":
        return self

    def release(self) -> None:
        return None


class BackgroundJob:
    """A background job with the context variables of its creator.

    `run_around` awaits the job inside the context managers of the server.
    """

    __slots__ = ("_context", "_function", "_name", "_run_around", "_slot")

    def __init__(
        self,
        fn: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, Any],
        slot: BackgroundSlot,
        run_around: Callable[[Callable[[], Awaitable[Any]]], Awaitable[object]],
    ) -> None:
        self._function = partial(fn, *args, **kwargs)
        self._run_around = run_around
        self._name = getattr(fn, "__qualname__", type(fn).__qualname__)
        self._slot = slot
        self._context = contextvars.copy_context()

    def __del__(self) -> None:
        self._slot.release()

    async def run(self, call: "Call") -> None:
        """Run the job. Raises only the cancellation of the caller."""
        task = asyncio.get_running_loop().create_task(self._run(call), context=self._context)
        try:
            await task
        finally:
            self._slot.release()

    async def _run(self, call: "Call") -> None:
        executor = call.server.ports.executor
        move_context(self._context)  # the creator may have been on another thread
        with executor.context(unbounded=True):
            try:
                await self._run_around(lambda: run_callable(self._function, executor))
            except asyncio.CancelledError:
                logger.warning(
                    "Background job cancelled at process exit: %s, added by %s", self._name, _describe_call(call)
                )
                raise
            except (Exception, SystemExit):
                logger.exception("Background job failed: %s, added by %s", self._name, _describe_call(call))


async def run_background_jobs(calls: Iterable["Call"]) -> None:
    """Run the background jobs of answered calls, those of one call in sequence."""
    await asyncio.gather(*(_run_jobs_of_call(call) for call in calls))


async def _run_jobs_of_call(call: "Call") -> None:
    for job in call.record.take_jobs():
        await job.run(call)


def _describe_call(call: "Call") -> str:
    return f"{sanitize_label(call.method)} of {get_target_label(call)}"
