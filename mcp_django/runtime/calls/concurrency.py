"""Concurrency limit: running calls per owner in this process."""

import threading


class InFlight:
    """Counter of running calls per owner, with a limit for each.

    Protected by a lock, because each request under WSGI runs on a loop and a thread of its own. Calls of the same owner
    in other processes are not counted.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def enter(self, owner: str, calls: int = 1) -> bool:
        """Count all of these calls, or none and return False above the owner's limit."""
        if not calls:
            return True
        with self._lock:
            counted = self._counts.get(owner, 0) + calls
            if counted > self.limit:
                return False
            self._counts[owner] = counted
            return True

    def leave(self, owner: str, calls: int = 1) -> None:
        """Uncount calls that were counted by `acquire`."""
        if not calls:
            return
        with self._lock:
            left = self._counts[owner] - calls
            if left:
                self._counts[owner] = left
            else:
                del self._counts[owner]

    def __len__(self) -> int:
        with self._lock:
            return sum(self._counts.values())
