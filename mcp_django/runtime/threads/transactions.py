"""Transaction around all work of a call, for `def` and `async def` handlers.

It uses Django's own `atomic()` blocks, entered and left on the call's thread, where all its ORM work runs.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any

from django.db import transaction

from mcp_django.runtime.threads.lease import Lease, Stay

Run = Callable[..., Awaitable[Any]]


class _RolledBack(Exception):
    """Exception passed to the atomic blocks to roll them back."""


class CallTransaction:
    """Transaction of a handler: commit on return, roll back on any exception.

    `lease` is the call's lease; None on the caller's own thread. A cancellation does not wait: running SQL is
    interrupted and its connection closed, which rolls back. A commit that has started runs to its end, including the
    `on_commit` hooks.
    """

    def __init__(self, run: Run, lease: Lease | None, databases: Sequence[str]) -> None:
        self._run, self._lease, self._databases = run, lease, databases
        self._blocks: contextlib.ExitStack | None = None
        self._stay: Stay | None = None
        # The first to acquire it decides: the thread that starts the commit, or the loop where the call was cancelled.
        self._decision = threading.Lock()

    async def __aenter__(self) -> None:
        try:
            await self._run(self._begin)
        except BaseException:
            await self._roll_back()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            await self._roll_back()
            return

        lease = self._lease
        if lease is not None and lease.stay is not self._stay:
            raise RuntimeError("This transaction is lost: work inside it was cancelled together with its thread")

        try:
            await self._run(self._commit)
        except BaseException as problem:
            if self._decision.acquire(blocking=False):
                await self._roll_back()
            elif lease is not None and isinstance(problem, asyncio.CancelledError):
                lease.part(drop=False)
            raise

    async def _roll_back(self) -> None:
        lease = self._lease
        if lease is not None and lease.busy:
            lease.part(drop=True)
        elif self._blocks is not None and (lease is None or lease.stay is self._stay):
            await self._run(self._undo)

    def _begin(self) -> None:
        with contextlib.ExitStack() as entering:
            for alias in self._databases:
                entering.enter_context(transaction.atomic(using=alias))
            self._blocks = entering.pop_all()
        self._stay = None if self._lease is None else self._lease.stay

    def _commit(self) -> None:
        if self._decision.acquire(blocking=False):
            self._leave(None)

    def _undo(self) -> None:
        self._leave(_RolledBack())

    def _leave(self, problem: _RolledBack | None) -> None:
        blocks, self._blocks = self._blocks, None
        if blocks is not None:
            blocks.__exit__(None if problem is None else type(problem), problem, None)
