"""Concurrency limit: running calls per owner in this process."""

import threading


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
        if not calls:
            return True
        with self._lock:
            new_count = self._counts.get(owner, 0) + calls
            if new_count > self.max_calls_per_owner:
                return False
            self._counts[owner] = new_count
            return True

    def release(self, owner: str, calls: int = 1) -> None:
        """Uncount calls that were counted by `acquire`."""
        if not calls:
            return
        with self._lock:
            remaining = self._counts[owner] - calls
            if remaining:
                self._counts[owner] = remaining
            else:
                del self._counts[owner]

    def __len__(self) -> int:
        with self._lock:
            return sum(self._counts.values())
