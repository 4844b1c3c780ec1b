"""Work on the package's pool threads, which may outlast the event loop that submitted it."""

import threading
from collections.abc import Callable
from functools import partial

from mcp_django.runtime.threads.pool import PoolThread
from tests.support.waiting import wait_until


class UnfinishedFunctions:
    """Counter of the functions that pool threads have received and not finished."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def start(self) -> None:
        """Count from now on all functions that pool threads of this process receive."""
        put = PoolThread.put

        def counted_put(thread: PoolThread, function: Callable[[], None]) -> None:
            self._add(1)
            put(thread, partial(self._run, [function]))

        PoolThread.put = counted_put  # type: ignore[method-assign]

    def wait(self) -> None:
        """Wait until the pool threads have finished all functions."""
        wait_until(lambda: self.count == 0, lambda: f"pool threads have not finished {self.count} functions")

    def _run(self, only: list[Callable[[], None]]) -> None:
        # Not kept in this frame, to which the traceback of an exception of the function refers.
        try:
            only.pop()()
        finally:
            self._add(-1)

    def _add(self, number: int) -> None:
        with self._lock:
            self.count += number


UNFINISHED_FUNCTIONS = UnfinishedFunctions()
