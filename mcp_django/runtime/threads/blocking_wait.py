"""Blocking waits: plain functions that wait for a client on their own thread.

Before the wait the thread gives up its connections and its place in the pool. Afterwards it waits for a free place.
However many functions wait for users, the pool can run its full number of threads.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from mcp_django.runtime.threads.pool import PoolThread, ThreadPool, clean_thread, thread_state


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BlockingWait:
    """Blocking wait of one pool thread. Use it on that thread only."""

    pool: ThreadPool
    thread: PoolThread

    @contextlib.contextmanager
    def wait(self) -> Iterator[None]:
        """Wrap the wait.

        Raises:
            Overloaded: too many threads are waiting.
        """
        self.pool.begin_wait(self.thread)
        clean_thread(close_all=True)
        thread_state.blocking_wait = self
        try:
            yield
        finally:
            thread_state.blocking_wait = None
            self.pool.end_wait(self.thread)

    @contextlib.contextmanager
    def suspend(self) -> Iterator[None]:
        """Wrap work that must be done in the middle of the wait."""
        thread_state.blocking_wait = None
        self.pool.end_wait(self.thread)
        try:
            yield
        finally:
            clean_thread(close_all=True)
            self.pool.begin_wait(self.thread, is_reentry=True)
            thread_state.blocking_wait = self


def get_current_wait() -> BlockingWait | None:
    """Return the blocking wait that the current thread is in, or None."""
    return getattr(thread_state, "blocking_wait", None)
