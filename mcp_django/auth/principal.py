"""Who asks.

A principal is made when a credential is verified and does not change; the next verification makes a new one. What its
user may do is Django's to say at any time: answers are kept on the principal for a moment only.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from asgiref.sync import sync_to_async

from mcp_django.aio.clock import monotonic
from mcp_django.server import ports

LOCAL: Final = "local"
"""The kind, and the key, of the local principal."""
ISSUER: Final = "django"
"""The issuer of what this project vouches for by itself; its subjects are primary keys of users."""
FRESH = 10.0
"""Seconds for which a permission that was asked for is not asked for again."""
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Principal:
    """An authenticated caller: `subject` at `issuer`, through the client `client_id`."""

    issuer: str
    """Who vouches for the caller; what verifies it decides."""
    subject: str
    """The caller, unique at the issuer."""
    client_id: str = ""
    """The program that the caller uses."""
    user: Any = None
    """The Django user it acts as; None or AnonymousUser for nobody."""
    scopes: frozenset[str] = frozenset()
    """What was delegated to the client. The local principal holds every scope."""
    expires_at: float | None = None
    """When the credential expires, in seconds since the epoch; None when it does not."""
    kind: str = "token"
    """What sort of credential it was: "local", "token", or a verifier's own word."""
    token_id: Any = None
    """The credential's name, to look it up by. Never the credential."""
    audience: str | None = None
    """The server it was made for; None for every one."""
    claims: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    """What else the issuer said."""
    key: str = field(init=False)
    """`issuer|subject|client`: what sessions, sealed states and limits are bound to."""
    _rights: "_Rights" = field(init=False)

    def __post_init__(self) -> None:
        parts = (self.issuer, self.subject, self.client_id)
        key = LOCAL if self.kind == LOCAL else "|".join(_escaped(part) for part in parts)
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "_rights", _Rights(self.user))

    def __repr__(self) -> str:
        return f"<Principal {self.key} ({self.kind}), scopes: {' '.join(sorted(self.scopes)) or 'none'}>"

    @property
    def owner(self) -> str | None:
        """`issuer|subject`: whose lasting data it may see, whichever client is used.

        The local principal is the user that it acts as. None for nobody in particular, who owns nothing: the local
        principal without a user, or a subject without a name.
        """
        if self.kind == LOCAL:
            return owner_of(self.user)
        return f"{_escaped(self.issuer)}|{_escaped(self.subject)}" if self.subject else None

    @property
    def is_local(self) -> bool:
        """Is this the local principal, who may do everything?"""
        return self.kind == LOCAL

    def has_scopes(self, scopes: Iterable[str]) -> bool:
        """Does it hold all of these?"""
        return self.kind == LOCAL or self.scopes.issuperset(scopes)

    def has_perm(self, permission: str, obj: Any = None) -> bool:
        """Does the user have this Django permission ("app.codename")? May ask the database: for threads.

        With `obj` the project's backends are asked about that object, each time. Django's own knows of no permissions
        for single objects and says no.
        """
        if self.kind == LOCAL:
            return True
        if obj is not None:
            return self._rights.ask_about(permission, obj)
        known = self._rights.known(permission)
        return self._rights.ask(permission) if known is None else known

    async def aperm(self, permission: str, obj: Any = None) -> bool:
        """`has_perm` for async code."""
        known = self.known_perm(permission) if obj is None or self.kind == LOCAL else None
        return await _has_perm(self, permission, obj) if known is None else known

    def in_group(self, *names: str) -> bool:
        """Is the user in one of these groups? The local principal is in all. May ask the database: for threads."""
        return self.kind == LOCAL or not self.groups().isdisjoint(names)

    async def ain_group(self, *names: str) -> bool:
        """`in_group` for async code."""
        if self.kind == LOCAL:
            return True
        known = self.known_groups()
        return not (await _groups(self) if known is None else known).isdisjoint(names)

    def groups(self) -> frozenset[str]:
        """The names of the user's groups. May ask the database: for threads."""
        known = self.known_groups()
        return self._rights.ask_groups() if known is None else known

    def known_groups(self) -> frozenset[str] | None:
        """The answer of `groups` if it is known without asking anybody; else None."""
        return self._rights.known_groups()

    def known_perm(self, permission: str) -> bool | None:
        """The answer of `has_perm` if it is known without asking anybody; else None."""
        return True if self.kind == LOCAL else self._rights.known(permission)


_has_perm = sync_to_async(Principal.has_perm, thread_sensitive=True)
_groups = sync_to_async(Principal.groups, thread_sensitive=True)


class _EveryScope(frozenset[str]):
    """Holds any scope."""

    def issuperset(self, other: Iterable[object]) -> bool:
        return True


EVERY_SCOPE: Final = _EveryScope()
"""What a user holds who is no client's: nothing was delegated, so nothing is held back."""


def owner_of(user: Any) -> str | None:
    """The `Principal.owner` of a Django user who comes with a token of this project, or through one of its commands.
    None for nobody: None, AnonymousUser, a user without a row.

    With it views, tasks and tests find what handlers keep for the user.
    """
    pk = getattr(user, "pk", None)
    return None if pk is None else f"{ISSUER}|{_escaped(str(pk))}"


def groups_of(user: Any) -> frozenset[str]:
    """The names of the groups of a user; none of nobody, of who is not active, and of a user model without groups. Asks
    the database.
    """
    if user is None or getattr(user, "pk", None) is None or not getattr(user, "is_active", False):
        return frozenset()
    groups = getattr(user, "groups", None)
    return frozenset() if groups is None else frozenset(groups.values_list("name", flat=True))


def local_principal(user: Any = None) -> Principal:
    """The principal who comes from this machine and may do everything; handlers see it act as `user`."""
    return Principal(issuer=LOCAL, subject=LOCAL, user=user, kind=LOCAL)


def is_as_good(now: ports.Principal, before: ports.Principal) -> bool:
    """Is whom a credential was verified for again still the same, with all the scopes from before? What was opened with
    it, and goes on, asks for permission with those.
    """
    return now.key == before.key and now.scopes >= before.scopes


def forget_rights() -> None:
    """Ask anew what users may do, in this process: something was granted or taken away."""
    _Rights.changes += 1


class _Rights:
    """What one user may do, as far as it was asked in the last moments."""

    __slots__ = ("_answers", "_changes", "_groups", "_until", "_user")
    changes = 0
    """How often this process has heard that rights changed."""

    def __init__(self, user: Any) -> None:
        self._user = user
        self._answers: dict[str, bool] = {}
        self._groups: frozenset[str] | None = None
        self._until, self._changes = monotonic() + FRESH, self.changes

    def known(self, permission: str) -> bool | None:
        return self._answers.get(permission) if self._is_fresh() else None

    def _is_fresh(self) -> bool:
        return self._changes == self.changes and monotonic() < self._until

    def ask(self, permission: str) -> bool:
        if not self._is_fresh():
            self._renew()
        user = self._user
        answer = self._answers[permission] = user is not None and bool(user.has_perm(permission))
        return answer

    def ask_about(self, permission: str, obj: Any) -> bool:
        if not self._is_fresh():
            self._renew()
        return self._user is not None and bool(self._user.has_perm(permission, obj))

    def known_groups(self) -> frozenset[str] | None:
        return self._groups if self._is_fresh() else None

    def ask_groups(self) -> frozenset[str]:
        if not self._is_fresh():
            self._renew()
        found = self._groups = groups_of(self._user)
        return found

    def _renew(self) -> None:
        """A user object remembers its permissions for as long as it lives, so that another one has to be asked."""
        user, self._answers, self._groups = self._user, {}, None
        self._until, self._changes = monotonic() + FRESH, self.changes
        if getattr(user, "pk", None) is not None:
            # Not type(user): that of a lazy object is the wrapper.
            self._user = user.__class__._default_manager.filter(pk=user.pk).first()


def _escaped(part: str) -> str:
    """One part of a key, which must not be able to look like two."""
    return part.replace("%", "%25").replace("|", "%7C") if "|" in part or "%" in part else part
