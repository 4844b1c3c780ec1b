"""Cache of verified principals in `MCP["TOKEN_CACHE"]`, shared by all processes.

An entry holds plain values under a digest, without the token, and the start time of its verification. A revocation
stores its time for the user concerned, or for all users; older entries are ignored. Failures are not cached. The user
is loaded by primary key on every read. While the cache is down each process verifies tokens itself.
"""

import logging
from collections.abc import Callable, Mapping
from hashlib import blake2b, sha256
from time import time
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.core.cache import caches
from django.db import Error as DatabaseFailure

from mcp_django.auth.principal import ALL_SCOPES, DjangoPrincipal
from mcp_django.logs.records import RateLimitedLogger

logger = logging.getLogger("mcp_django.auth")

CLOCK_SKEW_SECONDS: Final = 2.0
"""Maximum difference between the clocks of two machines, in seconds."""
ALL_USERS: Final = "*"
PLAIN_FIELDS: Final = ("issuer", "subject", "client_id", "expires_at", "kind", "token_id", "audience")


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
