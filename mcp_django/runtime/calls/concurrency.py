"""The in-flight limit: how many calls each owner may have running in this process at once."""

import threading


class InFlight:
    """How many calls each owner has running in this process: never more than `limit`, whoever is counting.

    Counted under a lock, because under WSGI every request has a loop of its own, in a thread of its own. Calls of the
    same owner in other processes are not seen here.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def enter(self, owner: str, calls: int = 1) -> bool:
        """Count so many calls more, all or none; False when the owner would have too many."""
        if not calls:
            return True
        with self._lock:
            counted = self._counts.get(owner, 0) + calls
            if counted > self.limit:
                return False
            self._counts[owner] = counted
            return True

    def leave(self, owner: str, calls: int = 1) -> None:
        """So many calls less, which had been counted."""
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
