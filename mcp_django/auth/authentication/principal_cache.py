"""Process-local cache of verified principals, and its invalidation.

The key is a digest of the credential and its target, never the credential. Code that changes the rights of a credential
calls `invalidate`: this process discards entries at once and again after the commit, and other processes are notified.
Even without a notification an entry lives at most TOKEN_CACHE_SECONDS.
"""

import logging
import threading
import weakref
from collections.abc import Callable
from time import time
from typing import Any, Final

from django.db import transaction

from mcp_django.aio.clock import monotonic
from mcp_django.auth.principal import Principal

logger = logging.getLogger("mcp_django.auth")

MOST: Final = 4096
"""Maximum number of principals in one cache."""

Concerned = Callable[[Principal], bool]
Tell = Callable[[str | None, str], None]
"""Callback that notifies other processes.

It takes the primary key of a user, or None for all principals, and the alias of a database. The notification follows
the commit on that database.
"""

_stores: "weakref.WeakSet[Known]" = weakref.WeakSet()
_tellers: list[Tell] = []
_hearers: list[Callable[[], object]] = []
_changes = 0


class Known:
    """Verified principals of one authenticator. Thread-safe."""

    def __init__(self, seconds: float) -> None:
        """Entries live `seconds`, but not beyond the expiry of the principal."""
        self._seconds = seconds
        self._found: dict[bytes, tuple[Principal, float]] = {}
        self._keeping = threading.Lock()
        _stores.add(self)

    def __len__(self) -> int:
        return len(self._found)

    def get(self, digest: bytes) -> Principal | None:
        """Return the cached principal of a credential, or None."""
        found = self._found.get(digest)
        return found[0] if found is not None and monotonic() < found[1] else None

    def keep(self, digest: bytes, principal: Principal, begun: int) -> None:
        """Add a verified principal, unless an invalidation came after `generation`.

        See `get_generation`.
        """
        seconds = self._seconds
        if principal.expires_at is not None:
            seconds = min(seconds, principal.expires_at - time())
        if seconds <= 0:
            return
        found = self._found
        with self._keeping:
            if begun != _changes:
                return
            found.pop(digest, None)
            while len(found) >= MOST:
                del found[next(iter(found))]
            found[digest] = principal, monotonic() + seconds

    def forget(self, concerned: Concerned) -> None:
        """Discard the entries that match."""
        # Called on the thread that saves a row. Under WSGI each request has its own thread.
        with self._keeping:
            for digest in [digest for digest, (principal, _) in self._found.items() if concerned(principal)]:
                del self._found[digest]

    def is_fresh(self) -> bool:
        """Return True if there are unexpired entries."""
        now = monotonic()
        return any(until > now for _, until in list(self._found.values()))


def mark() -> int:
    """Return the invalidation counter, for `PrincipalCache.add`.

    Call it before a verification.
    """
    return _changes


def anybody(principal: Principal) -> bool:
    """Match every principal."""
    return True


def of_user(pk: Any) -> Concerned:
    """Build a predicate that matches the principals of a user, by primary key."""
    name = str(pk)
    return lambda principal: str(getattr(principal.user, "pk", None)) == name


def forget(concerned: Concerned, *, using: str | None, owner: Any = None) -> None:
    """Invalidate matching principals in every process.

    Call it when rights changed, or will change with the transaction on the database `using`. None is the database of
    this package's tables. `user_pk` is the primary key of the only user concerned. Without it other processes discard
    all principals.
    """
    name = None if owner is None else str(owner)
    forget_here(concerned)
    for tell in _tellers:
        try:
            tell(name, using or "default")
        except Exception:
            logger.exception("Invalidation of principals could not be sent to other processes")
    try:
        # Until the commit the old row can be read again.
        transaction.on_commit(lambda: forget_here(concerned), using=using, robust=True)
    except transaction.TransactionManagementError:
        pass  # manual transactions have no such hook


def forget_here(concerned: Concerned) -> None:
    """Invalidate matching principals in this process."""
    global _changes
    _changes += 1
    for store in list(_stores):
        store.forget(concerned)
    for hear in _hearers:
        hear()


def is_fresh() -> bool:
    """Return True if this process has unexpired principals in a cache."""
    return any(store.is_fresh() for store in list(_stores))


def tell_with(tell: Tell) -> None:
    """Register a callback that notifies other processes of each `invalidate`."""
    if tell not in _tellers:
        _tellers.append(tell)


def when_forgotten(hear: Callable[[], object]) -> None:
    """Register a callback for invalidations in this process. It runs on any thread."""
    if hear not in _hearers:
        _hearers.append(hear)
