"""Transaction around all work of a call, for `def` and `async def` handlers.

It uses Django's own `atomic()` blocks, entered and left on the call's thread, where all its ORM work runs.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from django.db import transaction

from mcp_django.runtime.threads.lease import ThreadAssignment, ThreadLease

RunFunction = Callable[..., Awaitable[Any]]


class _RollbackRequested(Exception):
    """Exception passed to the atomic blocks to roll them back."""


@dataclass(eq=False, repr=False)
class CallTransaction:
    """Transaction of a handler: commit on return, roll back on any exception.

    `lease` is the call's lease; None on the caller's own thread. A cancellation does not wait: running SQL is
    interrupted and its connection closed, which rolls back. A commit that has started runs to its end, including the
    `on_commit` hooks.
    """

    run: RunFunction
    lease: ThreadLease | None
    databases: Sequence[str]
    _blocks: contextlib.ExitStack | None = None
    _assignment: ThreadAssignment | None = None
    # The first to acquire it decides: the thread that starts the commit, or the loop where the call was cancelled.
    _commit_lock: threading.Lock = field(default_factory=threading.Lock)

    async def __aenter__(self) -> None:
        try:
            await self.run(self._enter_blocks)
        except BaseException:
            await self._roll_back()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            await self._roll_back()
            return

        lease = self.lease
        if lease is not None and lease.assignment is not self._assignment:
            raise RuntimeError("This transaction is lost: work inside it was cancelled together with its thread")

        try:
            await self.run(self._commit)
        except BaseException as error:
            if self._commit_lock.acquire(blocking=False):
                await self._roll_back()
            elif lease is not None and isinstance(error, asyncio.CancelledError):
                lease.detach(cancel=False)
            raise

    async def _roll_back(self) -> None:
        lease = self.lease
        if lease is not None and lease.is_busy:
            lease.detach(cancel=True)
        elif self._blocks is not None and (lease is None or lease.assignment is self._assignment):
            await self.run(self._roll_back_blocks)

    def _enter_blocks(self) -> None:
        with contextlib.ExitStack() as entering:
            for alias in self.databases:
                entering.enter_context(transaction.atomic(using=alias))
            self._blocks = entering.pop_all()
        self._assignment = None if self.lease is None else self.lease.assignment

    def _commit(self) -> None:
        if self._commit_lock.acquire(blocking=False):
            self._exit_blocks(None)

    def _roll_back_blocks(self) -> None:
        self._exit_blocks(_RollbackRequested())

    def _exit_blocks(self, error: _RollbackRequested | None) -> None:
        blocks = self._blocks
        self._blocks = None
        if blocks is not None:
            blocks.__exit__(None if error is None else type(error), error, None)
