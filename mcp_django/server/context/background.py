"""Work that a handler leaves for when its answer has been sent: `ctx.background`.

It is kept with the handler's run until that succeeds (and its transaction, if it is one, has committed), then with the
call until whoever serves the call has answered and runs it. What fails is logged; nobody is told.
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
    """One of those that background work may take in a process."""

    def leave(self) -> None:
        """It is somebody else's. May be said more than once."""


class Places(Protocol):
    """How much background work may wait or run."""

    def take(self) -> Place:
        """One more. Raises Overloaded when there are too many. From any thread."""


class Unlimited:
    """The places of a server that counts none."""

    def take(self) -> "Unlimited":
        return self

    def leave(self) -> None:
        return None


class Job:
    """One piece of work, in the context variables of the code that left it (language, current call)."""

    __slots__ = ("_context", "_name", "_place", "_work")

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], place: Place) -> None:
        self._work = partial(fn, *args, **kwargs)
        self._name = getattr(fn, "__qualname__", type(fn).__qualname__)
        self._place, self._context = place, contextvars.copy_context()

    def __del__(self) -> None:
        self._place.leave()

    async def run(self, call: "Call") -> None:
        """Do it. Raises nothing but the cancellation of the caller."""
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
            logger.warning("Background work was ended with its process: %s, left by %s", self._name, _left_by(call))
            raise
        except (Exception, SystemExit):
            logger.exception("Background work failed: %s, left by %s", self._name, _left_by(call))
        finally:
            lease.close()


async def run_jobs(calls: Iterable["Call"]) -> None:
    """Do what calls have left, one after the other for each. To be said once they are answered."""
    await asyncio.gather(*(_run_all(call) for call in calls))


async def _run_all(call: "Call") -> None:
    for job in call.fate.take_jobs():
        await job.run(call)


def _left_by(call: "Call") -> str:
    return f"{label(call.method)} of {target_of(call)}"
