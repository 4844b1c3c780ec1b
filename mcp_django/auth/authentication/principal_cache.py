"""Principals that were verified a moment ago, and what makes a process forget them.

They are remembered by a digest of the credential and of what it was shown to, never by the credential. Whoever changes
what a credential is good for says so with `forget`: this process forgets at once and again after the commit, and the
others are told. However long a message takes, nothing is remembered for longer than TOKEN_CACHE_SECONDS.
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
"""Principals that one store remembers."""

Concerned = Callable[[Principal], bool]
Tell = Callable[[str | None, str], None]
"""Tells other processes, after the commit on the database of that alias, to forget the principals of a user; of all
when it is None."""

_stores: "weakref.WeakSet[Known]" = weakref.WeakSet()
_tellers: list[Tell] = []
_hearers: list[Callable[[], object]] = []
_changes = 0


class Known:
    """The principals that one authenticator has verified."""

    def __init__(self, seconds: float) -> None:
        """Each is remembered for `seconds`, and never after it has expired."""
        self._seconds = seconds
        self._found: dict[bytes, tuple[Principal, float]] = {}
        self._keeping = threading.Lock()
        _stores.add(self)

    def __len__(self) -> int:
        return len(self._found)

    def get(self, digest: bytes) -> Principal | None:
        """Whom a credential stands for; None when that has to be found out."""
        found = self._found.get(digest)
        return found[0] if found is not None and monotonic() < found[1] else None

    def keep(self, digest: bytes, principal: Principal, begun: int) -> None:
        """Remember who was verified, unless anything was forgotten since `begun`, which `mark` gave before."""
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
        """Verify these anew."""
        # This runs in the thread of whoever saves; and under WSGI each request has one of its own.
        with self._keeping:
            for digest in [digest for digest, (principal, _) in self._found.items() if concerned(principal)]:
                del self._found[digest]

    def is_fresh(self) -> bool:
        """Does it know anybody now?"""
        now = monotonic()
        return any(until > now for _, until in list(self._found.values()))


def mark() -> int:
    """For `Known.keep`, taken before a verification begins."""
    return _changes


def anybody(principal: Principal) -> bool:
    """Concerns everybody."""
    return True


def of_user(pk: Any) -> Concerned:
    """Concerns the principals of a user, by its primary key."""
    name = str(pk)
    return lambda principal: str(getattr(principal.user, "pk", None)) == name


def forget(concerned: Concerned, *, using: str | None, owner: Any = None) -> None:
    """Have every process verify these anew: what they may do has changed, or is going to when the transaction on the
    database `using` commits. None is the database that the rows of this package are in.

    `owner` is the primary key of the one user whose principals are concerned; others are told of nobody else. Without
    it they forget everybody.
    """
    name = None if owner is None else str(owner)
    forget_here(concerned)
    for tell in _tellers:
        try:
            tell(name, using or "default")
        except Exception:
            logger.exception("Other processes could not be told to forget a principal")
    try:
        # Until the commit the old row can be read again.
        transaction.on_commit(lambda: forget_here(concerned), using=using, robust=True)
    except transaction.TransactionManagementError:
        pass  # manual transactions have no such hook


def forget_here(concerned: Concerned) -> None:
    """Verify these anew in this process."""
    global _changes
    _changes += 1
    for store in list(_stores):
        store.forget(concerned)
    for hear in _hearers:
        hear()


def is_fresh() -> bool:
    """Does this process remember anybody?"""
    return any(store.is_fresh() for store in list(_stores))


def tell_with(tell: Tell) -> None:
    """Have `tell` called by each `forget`."""
    if tell not in _tellers:
        _tellers.append(tell)


def when_forgotten(hear: Callable[[], object]) -> None:
    """Have `hear` called whenever this process has forgotten somebody, on whatever thread that was."""
    if hear not in _hearers:
        _hearers.append(hear)
