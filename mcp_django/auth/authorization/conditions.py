"""Conditions of a permission decision, in their order, and the folds over them.

A condition that does not hold hides the primitive, except for a missing scope, which a step-up can obtain. Conditions
that hide come first, functions of the project after stored data. The first condition that does not hold is the decision
and its reason.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Any, ClassVar, Final

from asgiref.sync import async_to_sync

from mcp_django.auth.authorization.rule_cache import NO_REQUIREMENTS, Grants, ToolRequirements
from mcp_django.auth.authorization.scopes import is_scope_denied
from mcp_django.auth.principal import DjangoPrincipal, Run
from mcp_django.protocol.log_text import get_logger
from mcp_django.server.callables import is_async
from mcp_django.server.ports import Overloaded, PermissionTarget
from mcp_django.server.primitives.base import Permission

logger = get_logger("mcp_django.auth")

MAX_CACHED_CONDITIONS = 4096
"""Maximum number of pairs of a permission and scopes whose conditions are cached."""
_NO_GROUPS: Final = frozenset[str]()
_FUNCTION_FAILURE: Final = "Permission function of %r failed; the primitive is hidden from %r"


class CallerRights:
    """Rights of one caller, each of them looked up once for a decision.

    The cache of the principal may expire between two look-ups of one decision; the results here do not.
    """

    __slots__ = ("_groups", "_permissions", "principal")

    def __init__(self, principal: DjangoPrincipal) -> None:
        self.principal = principal
        self._permissions: dict[str, bool | None] = {}
        self._groups: frozenset[str] | None = None

    def find_permission(self, name: str) -> bool | None:
        """Return True if the user has a Django permission; None if unknown. No I/O."""
        if name in self._permissions:
            return self._permissions[name]
        answer = self._permissions[name] = self.principal.cached_perm(name)
        return answer

    def load_permission(self, name: str) -> bool:
        """Return True if the user has a Django permission. Blocks."""
        answer = self.find_permission(name)
        if answer is None:
            answer = self._permissions[name] = self.principal.has_perm(name)
        return answer

    def find_groups(self) -> frozenset[str] | None:
        """Return the groups of the user; None if unknown. No I/O."""
        if self._groups is None:
            self._groups = self.principal.cached_groups()
        return self._groups

    def load_groups(self) -> frozenset[str]:
        """Return the groups of the user. Blocks."""
        groups = self.find_groups()
        if groups is None:
            groups = self._groups = self.principal.groups()
        return groups


class Condition(ABC):
    """A condition of a decision about a primitive."""

    __slots__ = ()
    hides: ClassVar[bool] = True
    """False if a step-up can fulfil the condition."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name for administrators."""

    @abstractmethod
    def find(self, rights: CallerRights) -> bool | None:
        """Return True if the condition holds; None if that is unknown. No I/O."""

    def check(self, rights: CallerRights) -> bool:
        """Return True if the condition holds. Blocks."""
        return bool(self.find(rights))

    def explain(self, failed: Iterable["Condition"]) -> str:
        """Return the reason of a refusal for administrators.

        `failed` are all conditions of this class that do not hold.
        """
        return f"this does not hold: {self.name}"


class ToolEnabled(Condition):
    """Condition that no tool policy disables the primitive, also for the local principal."""

    __slots__ = ("_holds",)
    name = "no tool policy disables it"

    def __init__(self, *, holds: bool) -> None:
        self._holds = holds

    def find(self, rights: CallerRights) -> bool:
        return self._holds

    def explain(self, failed: Iterable[Condition]) -> str:
        return "a tool policy disables it"


class LocalPrincipal(Condition):
    """The local principal. No other condition applies to it."""

    __slots__ = ()
    name = "the local principal may do everything"

    def find(self, rights: CallerRights) -> bool:
        return rights.principal.is_local


class DjangoPermission(Condition):
    """A Django permission of the user ("app.codename")."""

    __slots__ = ("permission",)

    def __init__(self, permission: str) -> None:
        self.permission = permission

    @property
    def name(self) -> str:
        return f"permission {self.permission}"

    def find(self, rights: CallerRights) -> bool | None:
        return rights.find_permission(self.permission)

    def check(self, rights: CallerRights) -> bool:
        return rights.load_permission(self.permission)

    def explain(self, failed: Iterable[Condition]) -> str:
        names = [one.permission for one in failed if isinstance(one, DjangoPermission)]
        return f"lacks the permission {', '.join(names)}"


class PermissionFunction(Condition):
    """A permission function of the project.

    An exception in it is a bug and denies the permission.
    """

    __slots__ = ("_function", "_key")

    def __init__(self, function: Callable[[Any], Any], key: str) -> None:
        """Set the function; `key` names the primitive in the log."""
        self._function = function
        self._key = key

    @property
    def name(self) -> str:
        return f"function {self._function_name}"

    @property
    def _function_name(self) -> str:
        return getattr(self._function, "__name__", repr(self._function))

    def find(self, rights: CallerRights) -> None:
        return None

    def check(self, rights: CallerRights) -> bool:
        try:
            answer = self._function(rights.principal)
            return bool(async_to_sync(_wait_for)(answer) if inspect.isawaitable(answer) else answer)
        except Overloaded:
            raise
        except Exception:
            logger.exception(_FUNCTION_FAILURE, self._key, rights.principal)
            return False

    async def check_async(self, rights: CallerRights, run: Run) -> bool:
        """Return True if the condition holds. `run` calls a blocking function in a thread."""
        try:
            if is_async(self._function):
                return bool(await self._function(rights.principal))
            answer = await run(self._function, rights.principal)
            return bool(await answer if inspect.isawaitable(answer) else answer)
        except Overloaded:
            raise
        except Exception:
            logger.exception(_FUNCTION_FAILURE, self._key, rights.principal)
            return False

    def explain(self, failed: Iterable[Condition]) -> str:
        return f"the permission function {self._function_name} denies it"


async def _wait_for(answer: Any) -> Any:
    return await answer


class RequiredGroups(Condition):
    """Groups of a tool policy; the user must be in one of them."""

    __slots__ = ("_groups",)

    def __init__(self, groups: frozenset[str]) -> None:
        self._groups = groups

    @property
    def name(self) -> str:
        return f"group {' or '.join(sorted(self._groups))}"

    def find(self, rights: CallerRights) -> bool | None:
        groups = rights.find_groups()
        return None if groups is None else not self._groups.isdisjoint(groups)

    def check(self, rights: CallerRights) -> bool:
        return not self._groups.isdisjoint(rights.load_groups())

    def explain(self, failed: Iterable[Condition]) -> str:
        wanted = ["/".join(sorted(one._groups)) for one in failed if isinstance(one, RequiredGroups)]
        return f"a tool policy requires the groups {' and '.join(wanted)}"


class GrantedScope(Condition):
    """A scope grant that allows the caller, so that a step-up could obtain the scope."""

    __slots__ = ("_grants", "_scope")

    def __init__(self, scope: str, grants: Grants) -> None:
        self._scope = scope
        self._grants = grants

    @property
    def name(self) -> str:
        return f"scope grant of {self._scope}"

    def find(self, rights: CallerRights) -> bool | None:
        groups = rights.find_groups() if self._grants[self._scope].groups else _NO_GROUPS
        return None if groups is None else not is_scope_denied(rights.principal, (self._scope,), self._grants, groups)

    def check(self, rights: CallerRights) -> bool:
        return not is_scope_denied(rights.principal, (self._scope,), self._grants, rights.load_groups())

    def explain(self, failed: Iterable[Condition]) -> str:
        scopes = [one._scope for one in failed if isinstance(one, GrantedScope)]
        return f"a scope grant withholds {'the scope' if len(scopes) == 1 else 'the scopes'} {' '.join(scopes)}"


class DelegatedScope(Condition):
    """A scope that the client holds, or can obtain by a step-up."""

    __slots__ = ("scope",)
    hides = False

    def __init__(self, scope: str) -> None:
        self.scope = scope

    @property
    def name(self) -> str:
        return f"scope {self.scope}"

    def find(self, rights: CallerRights) -> bool:
        return rights.principal.has_scopes((self.scope,))


_ENABLED: Final = ToolEnabled(holds=True)
_DISABLED: Final = ToolEnabled(holds=False)
_LOCAL: Final = LocalPrincipal()


def build_conditions(
    principal: DjangoPrincipal,
    primitive: PermissionTarget,
    requirements: ToolRequirements,
    grants: Grants,
    scopes: Collection[str] = (),
) -> tuple[Condition, ...]:
    """Return all conditions of the decision about a primitive, in their order.

    `requirements` and `grants` are the rules of the administrator, `scopes` those that the arguments require.
    """
    permission = primitive.permission
    enabled = _DISABLED if requirements.disabled else _ENABLED
    if principal.is_local:
        return enabled, _LOCAL
    if (
        requirements is NO_REQUIREMENTS
        and not grants
        and not scopes
        and (permission is None or type(permission) is str)
    ):
        return _build_code_conditions(permission, tuple(primitive.scopes))

    names, functions = split_permission(permission)
    required = sorted({*primitive.scopes, *scopes, *requirements.scopes})
    return (
        enabled,
        *map(DjangoPermission, names),
        *map(RequiredGroups, requirements.groups),
        *(GrantedScope(scope, grants) for scope in required if scope in grants),
        *(PermissionFunction(function, primitive.key) for function in functions),
        *map(DelegatedScope, required),
    )


@lru_cache(MAX_CACHED_CONDITIONS)
def _build_code_conditions(permission: str | None, scopes: tuple[str, ...]) -> tuple[Condition, ...]:
    """Return the conditions of a primitive without rules and functions.

    They are cached: many primitives share few permissions, and such decisions are on the hot path.
    """
    names = () if permission is None else (permission,)
    return _ENABLED, *map(DjangoPermission, names), *map(DelegatedScope, sorted(set(scopes)))


def split_permission(permission: Permission | None) -> tuple[list[str], list[Callable[[Any], Any]]]:
    """Return the Django permissions and the functions of a permission.

    All of them are required.
    """
    if permission is None:
        return [], []
    if isinstance(permission, str):
        return [permission], []
    parts = [permission] if callable(permission) else permission
    return [part for part in parts if isinstance(part, str)], [part for part in parts if not isinstance(part, str)]


def find_known_failure(
    conditions: Iterable[Condition], rights: CallerRights
) -> tuple[Condition | None, list[Condition]]:
    """Return the first condition that is known not to hold, and the unknown conditions. No I/O.

    A known condition that hides decides by itself, whatever the unknown ones are; then none of those is returned.
    """
    failure: Condition | None = None
    unknown: list[Condition] = []
    for condition in conditions:
        holds = condition.find(rights)
        if holds is None:
            unknown.append(condition)
        elif not holds:
            if condition.hides:
                return condition, []
            failure = failure or condition
    return failure, unknown


def find_failure(conditions: Iterable[Condition], rights: CallerRights) -> Condition | None:
    """Return the condition that decides against a caller; None if all hold. Blocks."""
    failure, unknown = find_known_failure(conditions, rights)
    return next((one for one in unknown if not one.check(rights)), failure)


async def find_failure_async(unknown: Iterable[Condition], rights: CallerRights, run: Run) -> Condition | None:
    """Return the first of the unknown conditions that does not hold; None if all hold.

    All conditions before the functions of the project are checked in a single call of `run`.
    """
    stored = [one for one in unknown if not isinstance(one, PermissionFunction)]
    if stored:
        answers: list[bool] = await run(check_all, stored, rights)
        if not all(answers):
            return stored[answers.index(False)]
    for one in unknown:
        if isinstance(one, PermissionFunction) and not await one.check_async(rights, run):
            return one
    return None


async def evaluate_all(conditions: Iterable[Condition], rights: CallerRights, run: Run) -> list[tuple[Condition, bool]]:
    """Return every condition, each with True if it holds."""
    conditions = list(conditions)
    stored = [one for one in conditions if not isinstance(one, PermissionFunction)]
    answers = dict(zip(stored, await run(check_all, stored, rights), strict=True))
    return [
        (one, await one.check_async(rights, run) if isinstance(one, PermissionFunction) else answers[one])
        for one in conditions
    ]


def check_all(conditions: Iterable[Condition], rights: CallerRights) -> list[bool]:
    """Return True for each condition that holds. Blocks."""
    return [one.check(rights) for one in conditions]
