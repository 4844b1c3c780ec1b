"""Concurrency limits of this process: running calls per owner, and open streams."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mcp_django.runtime.sessions.store import LOCAL_OWNER
from mcp_django.server.ports import Overloaded

RETRY_AFTER_SECONDS = 10.0
"""Seconds after which a client should retry when the stream limit is reached."""


class ConcurrencyLimiter:
    """Counter of running calls per owner, with a limit for each.

    Protected by a lock, because each request under WSGI runs on a loop and a thread of its own. Calls of the same owner
    in other processes are not counted.
    """

    def __init__(self, max_calls_per_owner: int) -> None:
        self.max_calls_per_owner = max_calls_per_owner
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def acquire(self, owner: str, calls: int = 1) -> bool:
        """Count all of these calls, or none and return False above the owner's limit."""
        with self._lock:
            return self._count(owner, calls)

    def _count(self, owner: str, calls: int) -> bool:
        """Count calls, or return False. The caller holds the lock."""
        new_count = self._counts.get(owner, 0) + calls
        if new_count > self.max_calls_per_owner:
            return False
        self._counts[owner] = new_count
        return True

    def release(self, owner: str, calls: int = 1) -> None:
        """Uncount calls that were counted by `acquire`."""
        with self._lock:
            self._uncount(owner, calls)

    def _uncount(self, owner: str, calls: int) -> None:
        """Uncount calls. The caller holds the lock."""
        remaining = self._counts[owner] - calls
        if remaining:
            self._counts[owner] = remaining
        else:
            del self._counts[owner]

    def __len__(self) -> int:
        with self._lock:
            return sum(self._counts.values())


class WaitLimiter:
    """Limit on requests that hold a thread of the server while they wait, in total and per owner.

    The local principal may represent many clients, so only the total limit applies to it.
    """

    def __init__(self, max_waits: int, max_per_owner: int) -> None:
        self._per_owner = ConcurrencyLimiter(max_per_owner)
        self._total = ConcurrencyLimiter(max_waits)

    @contextmanager
    def claim(self, owner: str) -> Iterator[bool]:
        """Count a wait for the time of a `with` block; its value is False at a limit."""
        is_local = owner == LOCAL_OWNER
        if not is_local and not self._per_owner.acquire(owner):
            yield False
            return
        try:
            if not self._total.acquire(LOCAL_OWNER):
                yield False
                return
            try:
                yield True
            finally:
                self._total.release(LOCAL_OWNER)
        finally:
            if not is_local:
                self._per_owner.release(owner)

    def __len__(self) -> int:
        return len(self._total)


@contextmanager
def refuse_wait(owner: str) -> Iterator[bool]:
    """Refuse each wait: the process serves one request at a time."""
    yield False


class StreamLimiter:
    """Limit on long-lived streams in this process, in total and per owner.

    The local principal may represent many clients, so only the total limit applies to it.
    """

    def __init__(self, max_streams: int, max_per_owner: int) -> None:
        self._per_owner = ConcurrencyLimiter(max_per_owner)
        self._total = ConcurrencyLimiter(max_streams)

    def acquire(self, owner: str) -> None:
        """Count another open stream.

        Raises:
            Overloaded: a limit is reached.
        """
        is_local = owner == LOCAL_OWNER
        if not is_local and not self._per_owner.acquire(owner):
            message = f"{self._per_owner.max_calls_per_owner} streams of yours are open already; close one first"
            raise Overloaded(message, status=429, retry_after=RETRY_AFTER_SECONDS)

        if not self._total.acquire(LOCAL_OWNER):
            if not is_local:
                self._per_owner.release(owner)
            raise Overloaded("Too many streams are open; try again later", retry_after=RETRY_AFTER_SECONDS)

    def release(self, owner: str) -> None:
        """Uncount a stream that was counted by `acquire`."""
        self._total.release(LOCAL_OWNER)
        if owner != LOCAL_OWNER:
            self._per_owner.release(owner)

    def __len__(self) -> int:
        return len(self._total)
