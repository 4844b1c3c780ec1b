"""Caches of verified principals, and their invalidation.

The key is a digest of the credential and its target, never the credential. Code that changes the rights of a credential
calls `invalidate`: this process discards entries at once and again after the commit, and other processes are notified.
Even without a notification an entry lives at most TOKEN_CACHE_SECONDS.

`SharedPrincipalCache` is the cache in `MCP["TOKEN_CACHE"]`, shared by all processes. An entry holds plain values under
a digest, without the token, and the start time of its verification. A revocation stores its time for the user
concerned, or for all users; older entries are ignored. Failures are not cached. The user is loaded by primary key on
every read. While the cache is down each process verifies tokens itself.
"""

import logging
import threading
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import blake2b, sha256
from time import time
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.core.cache import caches
from django.db import Error as DatabaseFailure

from mcp_django.aio.clock import monotonic
from mcp_django.auth.principal import ALL_SCOPES, DjangoPrincipal
from mcp_django.logs.records import RateLimitedLogger
from mcp_django.models.commit_hooks import call_on_commit
from mcp_django.protocol.log_text import get_logger

logger = get_logger("mcp_django.auth")

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
CLOCK_SKEW_SECONDS: Final = 2.0
"""Maximum difference between the clocks of two machines, in seconds."""
ALL_USERS: Final = "*"
PLAIN_FIELDS: Final = ("issuer", "subject", "client_id", "expires_at", "kind", "token_id", "grant_id", "audience")


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
    # Until the commit the old row can be read again.
    discard = partial(invalidate_in_process, predicate)
    call_on_commit(
        discard, using=using or "default", logger=logger, failure="Failed to discard principals after a commit"
    )


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


class SharedPrincipalCache:
    """Verified principals of all processes. Methods block, so call them in a thread."""

    def __init__(self, alias: str, seconds: float, *, secret: str = "", clock: Callable[[], float] = time) -> None:
        """`alias` is one of CACHES. Entries live `seconds`.

        `secret` is the project's own. It separates projects that share a cache, because their primary keys differ.
        """
        self._alias = alias
        self._seconds = seconds
        self._clock = clock
        self._secret = sha256(secret.encode("utf-8", "surrogatepass")).digest()
        self._failure_logger = RateLimitedLogger(logger)

    def find(self, digest: bytes) -> DjangoPrincipal | None:
        """Return a principal that a process has verified, with the current user, or None."""
        try:
            entry = caches[self._alias].get(self._entry_key(digest))
            if not isinstance(entry, Mapping):
                return None
            invalidations = caches[self._alias].get_many(
                [_invalidation_key(ALL_USERS), _invalidation_key(str(entry["user"]))]
            )
        except Exception:
            self._log_failure()
            return None
        if any(entry["begun"] <= moment + CLOCK_SKEW_SECONDS for moment in invalidations.values()):
            return None
        if entry["expires_at"] is not None and entry["expires_at"] <= self._clock():
            return None
        return _restore_principal(entry)

    def add(self, digest: bytes, principal: DjangoPrincipal, started_at: float) -> None:
        """Share a verified principal.

        `started_at` is the start of its verification in epoch seconds.
        """
        user, seconds = principal.user, self._seconds

        if principal.expires_at is not None:
            seconds = min(seconds, principal.expires_at - self._clock())
        pk = getattr(user, "pk", None)
        if seconds <= 0 or principal.scopes is ALL_SCOPES or (user is not None and pk is None):
            return

        entry = {name: getattr(principal, name) for name in PLAIN_FIELDS}
        entry |= {
            "begun": started_at,
            "user": pk,
            "scopes": sorted(principal.scopes),
            "claims": _to_plain(principal.claims),
        }
        try:
            caches[self._alias].set(self._entry_key(digest), entry, seconds)
        except Exception:
            self._log_failure()

    def invalidate(self, user_pk: str | None) -> None:
        """Invalidate the entries of a user by primary key; None for all users."""
        name = ALL_USERS if user_pk is None else user_pk
        try:
            caches[self._alias].set(_invalidation_key(name), self._clock(), self._seconds + 10 * CLOCK_SKEW_SECONDS)
        except Exception:
            self._log_failure()

    def _entry_key(self, digest: bytes) -> str:
        return f"mcp:known:{blake2b(digest, key=self._secret, digest_size=32).hexdigest()}"

    def _log_failure(self) -> None:
        self._failure_logger.log(
            logging.ERROR,
            "Shared principal cache %r failed; tokens are verified without it",
            self._alias,
            exc_info=True,
        )


def _restore_principal(entry: Mapping[str, Any]) -> DjangoPrincipal | None:
    user: Any = None
    if entry["user"] is not None:
        try:
            user = get_user_model()._default_manager.filter(pk=entry["user"]).first()
        except DatabaseFailure:
            return None
        if user is None or not user.is_active:
            return None
    values = {name: entry[name] for name in PLAIN_FIELDS}
    return DjangoPrincipal(**values, user=user, scopes=frozenset(entry["scopes"]), claims=entry["claims"])


def _to_plain(value: Any) -> Any:
    """Convert claims to dicts and lists, which every cache can store."""
    if isinstance(value, Mapping):
        return {key: _to_plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(inner) for inner in value]
    return value


def _invalidation_key(user_pk: str) -> str:
    return f"mcp:forgotten:{user_pk.encode('utf-8', 'surrogatepass').hex()}"
