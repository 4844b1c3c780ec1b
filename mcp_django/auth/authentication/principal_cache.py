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
from mcp_django.auth.principal import DjangoPrincipal

logger = logging.getLogger("mcp_django.auth")

MAX_CACHED_PRINCIPALS: Final = 4096
"""Maximum number of principals in one cache."""

PrincipalPredicate = Callable[[DjangoPrincipal], bool]
PublishInvalidation = Callable[[str | None, str], None]
"""Callback that notifies other processes.

It takes the primary key of a user, or None for all principals, and the alias of a database. The notification follows
the commit on that database.
"""

_caches: "weakref.WeakSet[PrincipalCache]" = weakref.WeakSet()
_publishers: list[PublishInvalidation] = []
_callbacks: list[Callable[[], object]] = []
_generation = 0


class PrincipalCache:
    """Verified principals of one authenticator. Thread-safe."""

    def __init__(self, seconds: float) -> None:
        """Entries live `seconds`, but not beyond the expiry of the principal."""
        self._seconds = seconds
        self._entries: dict[bytes, tuple[DjangoPrincipal, float]] = {}
        self._lock = threading.Lock()
        _caches.add(self)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, digest: bytes) -> DjangoPrincipal | None:
        """Return the cached principal of a credential, or None."""
        entry = self._entries.get(digest)
        return entry[0] if entry is not None and monotonic() < entry[1] else None

    def add(self, digest: bytes, principal: DjangoPrincipal, generation: int) -> None:
        """Add a verified principal, unless an invalidation came after `generation`.

        See `get_generation`.
        """
        seconds = self._seconds
        if principal.expires_at is not None:
            seconds = min(seconds, principal.expires_at - time())
        if seconds <= 0:
            return
        entries = self._entries
        with self._lock:
            if generation != _generation:
                return
            entries.pop(digest, None)
            while len(entries) >= MAX_CACHED_PRINCIPALS:
                del entries[next(iter(entries))]
            entries[digest] = principal, monotonic() + seconds

    def discard(self, predicate: PrincipalPredicate) -> None:
        """Discard the entries that match."""
        # Called on the thread that saves a row. Under WSGI each request has its own thread.
        with self._lock:
            for digest in [digest for digest, (principal, _) in self._entries.items() if predicate(principal)]:
                del self._entries[digest]

    def has_entries(self) -> bool:
        """Return True if there are unexpired entries."""
        now = monotonic()
        return any(until > now for _, until in list(self._entries.values()))


def get_generation() -> int:
    """Return the invalidation counter, for `PrincipalCache.add`.

    Call it before a verification.
    """
    return _generation


def match_all(principal: DjangoPrincipal) -> bool:
    """Match every principal."""
    return True


def match_user(pk: Any) -> PrincipalPredicate:
    """Build a predicate that matches the principals of a user, by primary key."""
    name = str(pk)
    return lambda principal: str(getattr(principal.user, "pk", None)) == name


def invalidate(predicate: PrincipalPredicate, *, using: str | None, user_pk: Any = None) -> None:
    """Invalidate matching principals in every process.

    Call it when rights changed, or will change with the transaction on the database `using`. None is the database of
    this package's tables. `user_pk` is the primary key of the only user concerned. Without it other processes discard
    all principals.
    """
    name = None if user_pk is None else str(user_pk)
    invalidate_in_process(predicate)
    for publish in _publishers:
        try:
            publish(name, using or "default")
        except Exception:
            logger.exception("Invalidation of principals could not be sent to other processes")
    try:
        # Until the commit the old row can be read again.
        transaction.on_commit(lambda: invalidate_in_process(predicate), using=using, robust=True)
    except transaction.TransactionManagementError:
        pass  # manual transactions have no such hook


def invalidate_in_process(predicate: PrincipalPredicate) -> None:
    """Invalidate matching principals in this process."""
    global _generation
    _generation += 1
    for store in list(_caches):
        store.discard(predicate)
    for callback in _callbacks:
        callback()


def has_cached_principals() -> bool:
    """Return True if this process has unexpired principals in a cache."""
    return any(store.has_entries() for store in list(_caches))


def add_publisher(publish: PublishInvalidation) -> None:
    """Register a callback that notifies other processes of each `invalidate`."""
    if publish not in _publishers:
        _publishers.append(publish)


def add_invalidation_callback(callback: Callable[[], object]) -> None:
    """Register a callback for invalidations in this process. It runs on any thread."""
    if callback not in _callbacks:
        _callbacks.append(callback)
