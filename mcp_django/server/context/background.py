"""Background jobs that run after the response is sent: `ctx.background`.

A job is held by the run of the handler until the handler succeeds and its transaction, if any, commits. Then the call
holds it until the process that serves the call has sent the response and runs it. Failures are logged; the client does
not receive them.
"""

import asyncio
import contextvars
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from mcp_django.server.calls.callables import run
from mcp_django.server.calls.log_sanitizer import label, target_of

if TYPE_CHECKING:
    from mcp_django.server.calls.call import Call

logger = logging.getLogger("mcp_django.server")


class Place(Protocol):
    """A place for one background job in this process."""

    def leave(self) -> None:
        """Release the place. May be called more than once."""


class Places(Protocol):
    """Limit on waiting and running background jobs."""

    def take(self) -> Place:
        """Acquire a place. Raises Overloaded at the limit. Thread-safe."""


class Unlimited:
    """Places of a server without a limit."""

    def take(self) -> "Unlimited":
        return self

    def leave(self) -> None:
        return None


class Job:
    """A background job with the context variables of its creator."""

    __slots__ = ("_context", "_name", "_place", "_work")

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], place: Place) -> None:
        self._work = partial(fn, *args, **kwargs)
        self._name = getattr(fn, "__qualname__", type(fn).__qualname__)
        self._place, self._context = place, contextvars.copy_context()

    def __del__(self) -> None:
        self._place.leave()

    async def run(self, call: "Call") -> None:
        """Run the job. Raises only the cancellation of the caller."""
        task = asyncio.get_running_loop().create_task(self._run(call), context=self._context)
        try:
            await task
        finally:
            self._place.leave()

    async def _run(self, call: "Call") -> None:
        executor = call.server.executor
        lease = executor.enter(patient=True)
        try:
            await run(self._work, executor)
        except asyncio.CancelledError:
            logger.warning("Background job cancelled at process exit: %s, added by %s", self._name, _left_by(call))
            raise
        except (Exception, SystemExit):
            logger.exception("Background job failed: %s, added by %s", self._name, _left_by(call))
        finally:
            lease.close()


async def run_jobs(calls: Iterable["Call"]) -> None:
    """Run the background jobs of answered calls, those of one call in sequence."""
    await asyncio.gather(*(_run_all(call) for call in calls))


async def _run_all(call: "Call") -> None:
    for job in call.fate.take_jobs():
        await job.run(call)


def _left_by(call: "Call") -> str:
    return f"{label(call.method)} of {target_of(call)}"
