"""Principals: authenticated callers and their permissions.

A principal is created when a credential is verified, and is immutable. The next verification creates a new one. Django
decides at any time which permissions the user has; the principal caches results for `PERMISSION_CACHE_SECONDS`.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from asgiref.sync import sync_to_async

from mcp_django.aio.clock import monotonic
from mcp_django.server import ports

LOCAL: Final = "local"
"""Kind and key of the local principal."""
PROJECT_ISSUER: Final = "django"
"""Issuer of this project's own credentials. Subjects are primary keys of users."""
PERSONAL_CLIENT_PREFIX: Final = "token:"
"""Prefix of the client identifiers of personal access tokens.

Each token is a separate client.
"""
KEY_PART_COUNT: Final = 3
"""Number of parts of a key: issuer, subject and client."""
PERMISSION_CACHE_SECONDS = 10.0
"""Seconds for which the result of a permission check is cached on a principal."""
Run = Callable[..., Awaitable[Any]]
"""Type of a function that calls a blocking function in a thread."""
_NO_CLAIMS: Final[Mapping[str, Any]] = MappingProxyType({})


async def run_in_thread(fn: Callable[..., Any], /, *args: Any) -> Any:
    """Call a blocking function in the thread of the current context."""
    return await sync_to_async(fn)(*args)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class DjangoPrincipal(ports.PrincipalType):
    """An authenticated caller: `subject` at `issuer`, through the client `client_id`.

    `mcp_django.Principal` is this class. Verifiers create it, and handlers receive it.
    """

    issuer: str
    """Authority that identifies the caller. The verifier sets it."""
    subject: str
    """Identifier of the caller, unique at the issuer."""
    client_id: str = ""
    """Identifier of the program that the caller uses."""
    user: Any = None
    """Django user that the principal acts as; None or AnonymousUser without one."""
    scopes: frozenset[str] = frozenset()
    """Scopes delegated to the client. The local principal holds every scope."""
    expires_at: float | None = None
    """Expiry of the credential in seconds since the epoch; None without one."""
    kind: str = "token"
    """Kind of the credential: "local", "token", or a name chosen by the verifier."""
    token_id: Any = None
    """Identifier of the credential, for look-ups. Never the credential itself."""
    grant_id: str | None = None
    """Identifier of the grant behind the credential, which outlives single tokens; None without one."""
    audience: str | None = None
    """Server that the credential was issued for; None for every server."""
    claims: Mapping[str, Any] = field(default_factory=lambda: _NO_CLAIMS)
    """Further claims of the issuer."""
    actor: Any = None
    """Django user who acts in the name of the principal; None without one.

    In the playground, the actor is the operator.
    """
    key: str = field(init=False)
    """`issuer|subject|client`: the owner of sessions, sealed states and limits."""
    _permissions: "_CachedPermissions" = field(init=False)

    def __post_init__(self) -> None:
        parts = (self.issuer, self.subject, self.client_id)
        key = LOCAL if self.kind == LOCAL else "|".join(_escape(part) for part in parts)
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "_permissions", _CachedPermissions(self.user))

    def __repr__(self) -> str:
        return f"<Principal {self.key} ({self.kind}), scopes: {' '.join(sorted(self.scopes)) or 'none'}>"

    @property
    def owner(self) -> str | None:
        """Return `issuer|subject`: the owner of lasting data, whichever client is used.

        The local principal owns the data of the user that it acts as. None, the owner of no data, results for a local
        principal without a user, and for an empty subject.
        """
        if self.kind == LOCAL:
            return owner_of(self.user)
        return f"{_escape(self.issuer)}|{_escape(self.subject)}" if self.subject else None

    @property
    def is_local(self) -> bool:
        """Return True if this is the local principal, which may do everything."""
        return self.kind == LOCAL

    def has_scopes(self, scopes: Iterable[str]) -> bool:
        """Return True if the principal holds all of `scopes`."""
        return self.kind == LOCAL or self.scopes.issuperset(scopes)

    def has_perm(self, permission: str, obj: Any = None) -> bool:
        """Return True if the user has this Django permission ("app.codename").

        May query the database, so call it in a thread. With `obj` the project's authentication backends are queried
        about that object each time. Django's own backend knows no permissions for single objects and returns False.
        """
        if self.kind == LOCAL:
            return True
        if obj is not None:
            return self._permissions.check_object(permission, obj)
        known = self._permissions.get_cached(permission)
        return self._permissions.check(permission) if known is None else known

    async def aperm(self, permission: str, obj: Any = None) -> bool:
        """Return the result of `has_perm` in async code."""
        known = self.cached_perm(permission) if obj is None or self.kind == LOCAL else None
        return await _has_perm_async(self, permission, obj) if known is None else known

    def check_cached(self, name: str, check: Callable[[], bool]) -> bool:
        """Return the cached result of a check of this caller, or call it.

        Call it in a thread if the check may query the database.
        """
        known = self._permissions.get_cached(name)
        return self._permissions.run(name, check) if known is None else known

    def get_current_user(self) -> Any:
        """Return the user, loaded again if cached permissions have expired; None without a user.

        May query the database, so call it in a thread.
        """
        return self._permissions.load_user()

    def in_group(self, *names: str) -> bool:
        """Return True if the user is in one of these groups.

        The local principal is in all groups. May query the database, so call it in a thread.
        """
        return self.kind == LOCAL or not self.groups().isdisjoint(names)

    async def ain_group(self, *names: str) -> bool:
        """Return the result of `in_group` in async code."""
        if self.kind == LOCAL:
            return True
        return not (await load_groups(self, run_in_thread)).isdisjoint(names)

    def groups(self) -> frozenset[str]:
        """Return the names of the user's groups.

        May query the database, so call it in a thread.
        """
        known = self.cached_groups()
        return self._permissions.load_groups() if known is None else known

    def cached_groups(self) -> frozenset[str] | None:
        """Return the cached result of `groups`, or None. No I/O."""
        return self._permissions.get_cached_groups()

    def cached_perm(self, permission: str) -> bool | None:
        """Return the cached result of `has_perm`, or None. No I/O."""
        return True if self.kind == LOCAL else self._permissions.get_cached(permission)


_has_perm_async = sync_to_async(DjangoPrincipal.has_perm, thread_sensitive=True)


async def load_groups(principal: DjangoPrincipal, run: Run) -> frozenset[str]:
    """Return the groups of a principal in async code; `run` calls blocking functions."""
    known = principal.cached_groups()
    groups: frozenset[str] = await run(principal.groups) if known is None else known
    return groups


class _AllScopes(frozenset[str]):
    """A set that contains any scope."""

    def issuperset(self, other: Iterable[object]) -> bool:
        return True


ALL_SCOPES: Final = _AllScopes()
"""Scopes of a user who acts without a client.

Nothing was delegated, so no scope is withheld.
"""


def owner_of(user: Any) -> str | None:
    """Return the `Principal.owner` of a Django user.

    This project's tokens and commands use the same owner. With it views, tasks and tests find data that handlers store
    for the user. None without a row: None, AnonymousUser, or an unsaved user.
    """
    pk = getattr(user, "pk", None)
    return None if pk is None else f"{PROJECT_ISSUER}|{_escape(str(pk))}"


def get_user_key(user: Any) -> str:
    """Return the primary key of a user as text. Empty for None, for unsaved and for inactive users."""
    key = getattr(user, "pk", None)
    return "" if key is None or not getattr(user, "is_active", False) else str(key)


def get_group_names(user: Any) -> frozenset[str]:
    """Return the names of the groups of a user. Queries the database.

    Empty for None, for unsaved and inactive users, and for a user model without groups.
    """
    if user is None or getattr(user, "pk", None) is None or not getattr(user, "is_active", False):
        return frozenset()
    groups = getattr(user, "groups", None)
    return frozenset() if groups is None else frozenset(groups.values_list("name", flat=True))


def local_principal(user: Any = None) -> DjangoPrincipal:
    """Build the principal of callers on this machine, which may do everything.

    Handlers see it act as `user`.
    """
    return DjangoPrincipal(issuer=LOCAL, subject=LOCAL, user=user, kind=LOCAL)


def is_still_authorized(current: ports.Principal, previous: ports.Principal) -> bool:
    """Return True if `current` is the principal `previous`, with at least its scopes.

    A stream or connection that was opened with the credential keeps using those scopes for its permission checks.
    """
    return current.key == previous.key and current.scopes >= previous.scopes


def invalidate_permissions() -> None:
    """Invalidate the cached permissions of all principals in this process.

    Call it when a permission was granted or revoked.
    """
    _CachedPermissions.generation += 1


class _CachedPermissions:
    """Cached permissions and groups of one user."""

    __slots__ = ("_expires_at", "_generation", "_groups", "_results", "_user")
    generation = 0
    """Number of invalidations in this process."""

    def __init__(self, user: Any) -> None:
        self._user = user
        self._results: dict[str, bool] = {}
        self._groups: frozenset[str] | None = None
        self._expires_at = monotonic() + PERMISSION_CACHE_SECONDS
        self._generation = self.generation

    def get_cached(self, permission: str) -> bool | None:
        return self._results.get(permission) if self._is_fresh() else None

    def _is_fresh(self) -> bool:
        return self._generation == self.generation and monotonic() < self._expires_at

    def check(self, permission: str) -> bool:
        self._refresh()
        user = self._user
        result = self._results[permission] = user is not None and bool(user.has_perm(permission))
        return result

    def run(self, name: str, check: Callable[[], bool]) -> bool:
        self._refresh()
        result = self._results[name] = bool(check())
        return result

    def load_user(self) -> Any:
        self._refresh()
        return self._user

    def check_object(self, permission: str, obj: Any) -> bool:
        self._refresh()
        return self._user is not None and bool(self._user.has_perm(permission, obj))

    def get_cached_groups(self) -> frozenset[str] | None:
        return self._groups if self._is_fresh() else None

    def load_groups(self) -> frozenset[str]:
        self._refresh()
        groups = self._groups = get_group_names(self._user)
        return groups

    def _refresh(self) -> None:
        """Clear an old cache and reload the user.

        A user object caches its permissions for its lifetime.
        """
        if self._is_fresh():
            return
        user = self._user
        self._results = {}
        self._groups = None
        self._expires_at = monotonic() + PERMISSION_CACHE_SECONDS
        self._generation = self.generation
        if getattr(user, "pk", None) is not None:
            # Not type(user): the type of a lazy object is the wrapper.
            self._user = user.__class__._default_manager.filter(pk=user.pk).first()


def split_key(key: str) -> tuple[str, str, str]:
    """Return issuer, subject and client of the key of a principal; empty texts for a key of another form."""
    parts = key.split("|")
    if len(parts) != KEY_PART_COUNT:
        return "", "", ""
    issuer, subject, client_id = (part.replace("%7C", "|").replace("%25", "%") for part in parts)
    return issuer, subject, client_id


def _escape(part: str) -> str:
    """Escape one part of a key, so that it cannot contain a separator."""
    return part.replace("%", "%25").replace("|", "%7C") if "|" in part or "%" in part else part
