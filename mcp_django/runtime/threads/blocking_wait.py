"""Blocking waits: plain functions that wait for a client on their own thread.

Before the wait the thread gives up its connections and its place in the pool. Afterwards it waits for a free place.
However many functions wait for users, the pool can run its full number of threads.
"""

import contextlib
from collections.abc import Iterator

from mcp_django.runtime.threads.pool import PoolThread, ThreadPool, clean_thread, thread_state


class BlockingWait:
    """Blocking wait of one pool thread. Use it on that thread only."""

    def __init__(self, pool: ThreadPool, thread: PoolThread) -> None:
        self._pool = pool
        self._thread = thread

    @contextlib.contextmanager
    def wait(self) -> Iterator[None]:
        """Wrap the wait.

        Raises:
            Overloaded: too many threads are waiting.
        """
        self._pool.begin_wait(self._thread)
        clean_thread(close_all=True)
        thread_state.blocking_wait = self
        try:
            yield
        finally:
            thread_state.blocking_wait = None
            self._pool.end_wait(self._thread)

    @contextlib.contextmanager
    def suspend(self) -> Iterator[None]:
        """Wrap work that must be done in the middle of the wait."""
        thread_state.blocking_wait = None
        self._pool.end_wait(self._thread)
        try:
            yield
        finally:
            clean_thread(close_all=True)
            self._pool.begin_wait(self._thread, is_reentry=True)
            thread_state.blocking_wait = self


def get_current_wait() -> BlockingWait | None:
    """Return the blocking wait of the current thread, or None."""
    return getattr(thread_state, "blocking_wait", None)
