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

from mcp_django.aio.clock import monotonic
from mcp_django.auth.principal import EVERY_SCOPE, Principal

logger = logging.getLogger("mcp_django.auth")

SKEW: Final = 2.0
"""Maximum difference between the clocks of two machines, in seconds."""
COMPLAIN_EVERY: Final = 60.0
"""Seconds between two log records about a cache that is down."""
EVERYBODY: Final = "*"
PLAIN: Final = ("issuer", "subject", "client_id", "expires_at", "kind", "token_id", "audience")


class Shared:
    """Verified principals of all processes. Methods block, so call them in a thread."""

    def __init__(self, alias: str, seconds: float, *, secret: str = "", clock: Callable[[], float] = time) -> None:
        """`alias` is one of CACHES. Entries live `seconds`.

        `secret` is the project's own. It separates projects that share a cache, because their primary keys differ.
        """
        self._alias, self._seconds, self._clock = alias, seconds, clock
        self._secret = sha256(secret.encode("utf-8", "surrogatepass")).digest()
        self._quiet_until = 0.0

    def find(self, digest: bytes) -> Principal | None:
        """Return a principal that a process has verified, with the current user, or None."""
        try:
            entry = caches[self._alias].get(self._entry(digest))
            if not isinstance(entry, Mapping):
                return None
            moments = caches[self._alias].get_many([_moment(EVERYBODY), _moment(str(entry["user"]))])
        except Exception:
            self._complain()
            return None
        if any(entry["begun"] <= moment + SKEW for moment in moments.values()):
            return None
        if entry["expires_at"] is not None and entry["expires_at"] <= self._clock():
            return None
        return _restored(entry)

    def keep(self, digest: bytes, principal: Principal, begun: float) -> None:
        """Share a verified principal.

        `started_at` is the start of its verification in epoch seconds.
        """
        user, seconds = principal.user, self._seconds

        if principal.expires_at is not None:
            seconds = min(seconds, principal.expires_at - self._clock())
        pk = getattr(user, "pk", None)
        if seconds <= 0 or principal.scopes is EVERY_SCOPE or (user is not None and pk is None):
            return

        entry = {name: getattr(principal, name) for name in PLAIN}
        entry |= {"begun": begun, "user": pk, "scopes": sorted(principal.scopes), "claims": _plain(principal.claims)}
        try:
            caches[self._alias].set(self._entry(digest), entry, seconds)
        except Exception:
            self._complain()

    def forget(self, owner: str | None) -> None:
        """Invalidate the entries of a user by primary key; None for all users."""
        name = EVERYBODY if owner is None else owner
        try:
            caches[self._alias].set(_moment(name), self._clock(), self._seconds + 10 * SKEW)
        except Exception:
            self._complain()

    def _entry(self, digest: bytes) -> str:
        return f"mcp:known:{blake2b(digest, key=self._secret, digest_size=32).hexdigest()}"

    def _complain(self) -> None:
        now = monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + COMPLAIN_EVERY
            logger.exception("Shared principal cache %r failed; tokens are verified without it", self._alias)


def _restored(entry: Mapping[str, Any]) -> Principal | None:
    user: Any = None
    if entry["user"] is not None:
        try:
            user = get_user_model()._default_manager.filter(pk=entry["user"]).first()
        except DatabaseFailure:
            return None
        if user is None or not user.is_active:
            return None
    values = {name: entry[name] for name in PLAIN}
    return Principal(**values, user=user, scopes=frozenset(entry["scopes"]), claims=entry["claims"])


def _plain(value: Any) -> Any:
    """Convert claims to dicts and lists, which every cache can store."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def _moment(owner: str) -> str:
    return f"mcp:forgotten:{owner.encode('utf-8', 'surrogatepass').hex()}"
