"""Context managers on the thread of a call, around its handler.

They are entered on the thread that runs the plain functions of the call, so that values of `threading.local` reach
these functions, and they are left on it. The block runs in a task with a context of its own. The managers are entered
and left in the same context, because `ContextVar.reset` accepts a token there only.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from mcp_django.aio.asgiref_internals import move_context
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.threads.lease import ThreadAssignment, ThreadLease
from mcp_django.runtime.threads.pool import exit_callbacks

T = TypeVar("T")
RunFunction = Callable[..., Awaitable[Any]]
ManagerFactory = Callable[[], AbstractContextManager[Any]]

logger = get_logger("mcp_django.threads")


async def run_within(
    run_function: RunFunction,
    lease: ThreadLease | None,
    factories: Sequence[ManagerFactory],
    run: Callable[[], Awaitable[T]],
) -> T:
    """Await `run` inside the managers that `factories` create, the first outermost.

    `lease` is the lease of the call; None on the caller's own thread.

    Raises:
        RuntimeError: a manager suppressed an exception, so that there is no result.
    """
    context = copy_context()
    async with ThreadManagers(run_function, lease, factories, context):
        return await asyncio.get_running_loop().create_task(_run_in_moved_context(context, run), context=context)
    raise RuntimeError("A context manager suppressed the exception of a handler; raise it again after cleanup")


async def _run_in_moved_context(context: Context, run: Callable[[], Awaitable[T]]) -> T:
    move_context(context)
    return await run()


@dataclass(eq=False, repr=False)
class ThreadManagers:
    """Context managers of one handler, for an `async with` block.

    A cancelled block does not wait for a function that the thread still runs. The thread leaves the managers after it.
    """

    run_function: RunFunction
    lease: ThreadLease | None
    factories: Sequence[ManagerFactory]
    context: Context
    _stack: ExitStack | None = None
    _assignment: ThreadAssignment | None = None

    async def __aenter__(self) -> None:
        if self.lease is not None:
            self.lease.keep_threads()
        try:
            await self.run_function(self._run_in_context, self._enter)
        except BaseException as error:
            # The thread may have entered the managers, although the caller was cancelled.
            await self.__aexit__(type(error), error, None)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        leave = partial(self._run_in_context, self._exit, kind, error, trace)
        lease = self.lease
        if lease is None:
            return bool(await self.run_function(leave))
        try:
            assignment = self._assignment or lease.assignment
            is_abandoned = isinstance(error, asyncio.CancelledError) and assignment is not None and assignment.is_busy
            future = None if assignment is None else assignment.try_submit(leave)
            if future is None:
                return False  # the thread leaves the managers before it returns to its pool
            if is_abandoned:
                future.add_done_callback(_log_failure)
                return False
            return bool(await asyncio.wrap_future(future))
        finally:
            lease.stop_keeping_threads()

    def _run_in_context(self, function: Callable[..., T], *args: Any) -> T:
        def run() -> T:
            move_context(self.context)
            return function(*args)

        return self.context.run(run)

    def _enter(self) -> None:
        if self.lease is not None:
            self._assignment = self.lease.find_calling_assignment()
        with ExitStack() as entering:
            for create in self.factories:
                entering.enter_context(create())
            self._stack = entering.pop_all()
        exit_callbacks().append(self._abandon)

    def _exit(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        stack = self._stack
        self._stack = None
        if stack is None:
            return False
        exit_callbacks().remove(self._abandon)
        return stack.__exit__(kind, error, trace)

    def _abandon(self) -> None:
        """Leave the managers because the call has ended without them."""
        error = asyncio.CancelledError()
        try:
            self._run_in_context(self._exit, type(error), error, None)
        except asyncio.CancelledError:
            pass
        except Exception:
            logger.exception("Context manager around a cancelled handler failed")


def _log_failure(future: Any) -> None:
    if not future.cancelled() and future.exception() is not None:
        logger.error("Context manager around a cancelled handler failed", exc_info=future.exception())
