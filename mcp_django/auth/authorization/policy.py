"""Permission policy: the one decision for every operation on primitives.

List, call, read, get, complete, subscribe and listen share it. Three rules must agree: Django's permissions of the
user, scopes delegated to the client, and the administrator's rules (`RuleCache`). Without the permission a primitive is
hidden: its name gives the same error as an unknown name. It is also hidden where no step-up could help. Without a scope
it is visible, and the error lists all scopes that the operation requires.
"""

import inspect
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from asgiref.sync import async_to_sync

from mcp_django.auth.authorization.rule_cache import (
    NO_REQUIREMENTS,
    RULE_CACHE,
    RuleCache,
    RuleSnapshot,
    ToolRequirements,
    merge_requirements,
)
from mcp_django.auth.authorization.scopes import has_group_grants, is_scope_denied
from mcp_django.auth.principal import DjangoPrincipal, Run, load_groups, run_in_thread
from mcp_django.auth.throttling import get_counter
from mcp_django.protocol.log_text import get_logger
from mcp_django.server.callables import is_async
from mcp_django.server.ports import ALLOW, HIDDEN, Decision, Executor, Overloaded, PermissionTarget, step_up
from mcp_django.server.primitives.base import Rate

logger = get_logger("mcp_django.auth")

Permission = str | Callable[[Any], Any] | Sequence[str | Callable[[Any], Any]]
_NO_GROUPS: frozenset[str] = frozenset()


def is_restricted_by_code(primitive: PermissionTarget) -> bool:
    """Return True if code makes the decision, or the rate, depend on the caller."""
    permission = primitive.permission
    return (
        bool(primitive.scopes)
        or (permission is not None and permission != () and permission != [])
        or getattr(primitive, "scopes_for", None) is not None
        or getattr(primitive, "rate", None) is not None
    )


def decide_from_cache(principal: DjangoPrincipal, primitive: PermissionTarget) -> Decision | None:
    """Return the decision of code if cached data suffices for it, else None. No I/O."""
    if principal.is_local:
        return ALLOW
    permission = primitive.permission
    if permission is not None:
        names, functions = _split_permission(permission)
        answers = [principal.cached_perm(name) for name in names]
        if False in answers:
            return HIDDEN
        if functions or None in answers:
            return None
    return decide_by_scopes(principal, primitive.scopes)


async def decide(principal: DjangoPrincipal, primitive: PermissionTarget, *, run: Run = run_in_thread) -> Decision:
    """Return the decision of code. `run` calls blocking functions in a thread."""
    decision = decide_from_cache(principal, primitive)
    if decision is not None:
        return decision

    names, functions = _split_permission(primitive.permission)
    if names and not all(await run(_check_permissions, principal, names)):
        return HIDDEN
    for function in functions:
        if not await _call_permission(function, principal, primitive, run):
            return HIDDEN
    return decide_by_scopes(principal, primitive.scopes)


def decide_by_scopes(principal: DjangoPrincipal, scopes: Collection[str]) -> Decision:
    """Return ALLOW, or a step-up that requests all of `scopes`."""
    return ALLOW if not scopes or principal.has_scopes(scopes) else step_up(tuple(scopes))


class PermissionCheck(NamedTuple):
    """Condition of a decision."""

    name: str
    holds: bool


class Policy:
    """The `ports.Authorizer` of one server.

    Blocking checks run in the executor's threads.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        server: str = "default",
        rule_cache: RuleCache = RULE_CACHE,
        run_outside_transaction: Run | None = None,
    ) -> None:
        """Create the policy of a server.

        `run_outside_transaction` loads the rules outside the transaction of the current call.
        """
        self._executor = executor
        self._server = server
        self._rule_cache = rule_cache
        self._run_outside_transaction = executor.run if run_outside_transaction is None else run_outside_transaction

    @property
    def version(self) -> Hashable | None:
        """See `ports.Authorizer`."""
        rules = self._rule_cache.get_fresh()
        return None if rules is None else rules.version

    async def refresh(self) -> None:
        """See `ports.Authorizer`."""
        await self._get_rules()

    def is_restricted(self, primitive: PermissionTarget) -> bool:
        """See `ports.Authorizer`."""
        rules = self._rule_cache.get_fresh()
        if rules is None or is_restricted_by_code(primitive):
            return True
        return not rules.is_empty and self._get_requirements(rules, primitive) is not NO_REQUIREMENTS

    async def decide(
        self, principal: DjangoPrincipal, primitive: PermissionTarget, scopes: Collection[str] = ()
    ) -> Decision:
        """See `ports.Authorizer`."""
        rules = await self._get_rules()

        decision = decide_from_cache(principal, primitive)
        if rules.is_empty:
            requirements, groups = NO_REQUIREMENTS, _NO_GROUPS
        else:
            requirements = self._get_requirements(rules, primitive)
            if requirements.disabled:
                return HIDDEN
            groups = await self._get_groups(principal, rules, requirements, (*primitive.scopes, *scopes))

        if decision is None:
            with self._executor.context():
                decision = await decide(principal, primitive, run=self._executor.run)

        if not decision.visible or (requirements is NO_REQUIREMENTS and not scopes and not rules.grants):
            return decision
        return _apply_rules(principal, rules, requirements, groups, {*primitive.scopes, *scopes})

    async def explain_hidden(self, principal: DjangoPrincipal, primitive: PermissionTarget) -> str:
        """Return the reason why a primitive is hidden from `principal`; "" if it is visible.

        The text is for administrators.
        """
        if (await self.decide(principal, primitive)).visible:
            return ""
        requirements = await self.get_requirements(primitive)
        if requirements.disabled:
            return "a tool policy disables it"

        names, functions = _split_permission(primitive.permission)
        held = await self._executor.run(_check_permissions, principal, names)
        missing = [name for name, is_held in zip(names, held, strict=True) if not is_held]
        if missing:
            return f"lacks the permission {', '.join(missing)}"
        for function in functions:
            if not await _call_permission(function, principal, primitive, self._executor.run):
                return f"the permission function {getattr(function, '__name__', repr(function))} denies it"

        groups = await load_groups(principal, self._executor.run)
        if not requirements.allows_groups(groups):
            wanted = " and ".join("/".join(sorted(among)) for among in requirements.groups)
            return f"a tool policy requires the groups {wanted}"
        scopes = sorted({*primitive.scopes, *requirements.scopes})
        return f"a scope grant withholds one of the scopes {' '.join(scopes)}"

    async def list_checks(self, principal: DjangoPrincipal, primitive: PermissionTarget) -> list[PermissionCheck]:
        """Return all conditions of the decision about a primitive, in the order of `explain_hidden`.

        The principal may use the primitive if all of them hold. The names are for administrators.
        """
        rules = await self._get_rules()
        requirements = self._get_requirements(rules, primitive)
        checks = [PermissionCheck("no tool policy disables it", not requirements.disabled)]
        if principal.is_local:
            return [*checks, PermissionCheck("the local principal may do everything", True)]

        names, functions = _split_permission(primitive.permission)
        held = await self._executor.run(_check_permissions, principal, names)
        checks += [PermissionCheck(f"permission {name}", has) for name, has in zip(names, held, strict=True)]
        for function in functions:
            allows = await _call_permission(function, principal, primitive, self._executor.run)
            checks.append(PermissionCheck(f"function {getattr(function, '__name__', repr(function))}", allows))

        groups = await load_groups(principal, self._executor.run)
        for among in requirements.groups:
            checks.append(PermissionCheck(f"group {' or '.join(sorted(among))}", not among.isdisjoint(groups)))
        for scope in sorted({*primitive.scopes, *requirements.scopes}):
            if scope in rules.grants:
                is_denied = is_scope_denied(principal, [scope], rules.grants, groups)
                checks.append(PermissionCheck(f"scope grant of {scope}", not is_denied))
            checks.append(PermissionCheck(f"scope {scope}", principal.has_scopes([scope])))
        return checks

    async def get_requirements(self, primitive: PermissionTarget) -> ToolRequirements:
        """Return what tool policies require for a primitive, in addition to its code."""
        return self._get_requirements(await self._get_rules(), primitive)

    def is_allowed(self, principal: DjangoPrincipal, target: PermissionTarget, *, after_step_up: bool = False) -> bool:
        """See `ports.Authorizer`."""
        rules = self._rule_cache.get()
        requirements = NO_REQUIREMENTS if rules.is_empty else self._get_requirements(rules, target)
        if requirements.disabled:
            return False
        if principal.is_local:
            return True

        scopes = {*target.scopes, *requirements.scopes}
        groups = principal.groups() if requirements.groups or has_group_grants(scopes, rules.grants) else _NO_GROUPS
        decision = _apply_rules(principal, rules, requirements, groups, scopes)
        if not (decision.visible if after_step_up else decision.allowed):
            return False
        names, functions = _split_permission(target.permission)
        return all(_check_permissions(principal, names)) and all(
            _call_permission_sync(function, principal, target) for function in functions
        )

    async def find_hidden_keys(
        self, principal: DjangoPrincipal, primitives: Iterable[PermissionTarget]
    ) -> frozenset[str]:
        """Return the keys of those of `primitives` that are hidden from `principal`.

        All Django permissions are checked in a single thread call, however many primitives there are.
        """
        rules = await self._get_rules()

        hidden: list[str] = []
        if not rules.is_empty:
            primitives = list(primitives)
            hidden = await self._find_hidden_by_rules(principal, rules, primitives)
            hidden_keys = frozenset(hidden)
            primitives = [one for one in primitives if one.key not in hidden_keys]

        known, undecided = _split_by_cache(principal, primitives)
        hidden += known
        if undecided:
            with self._executor.context():
                names = {name for one in undecided for name in _split_permission(one.permission)[0]}
                if names:
                    await self._executor.run(_check_permissions, principal, names)
                hidden += [
                    one.key for one in undecided if not (await decide(principal, one, run=self._executor.run)).visible
                ]
        return frozenset(hidden)

    async def count_use(self, principal: DjangoPrincipal, tool: PermissionTarget) -> float | None:
        """See `ports.Authorizer`."""
        rules = await self._get_rules()
        declared_rate: Rate | None = getattr(tool, "rate", None)
        policy_names = list(self._iter_policy_names(tool))
        waits: list[float | None] = []
        for server, name in policy_names:
            requirements = NO_REQUIREMENTS if rules.is_empty else rules.get_requirements(server, name)
            # The declared rate belongs to the origin of the tool, whatever name it is called by.
            declared = () if declared_rate is None or (server, name) != policy_names[-1] else (declared_rate,)
            for rate in dict.fromkeys((*declared, *requirements.rates)):
                counter = get_counter()
                count = partial(counter.count, f"tool {server} {name}", principal.key, rate)
                waits.append(await counter.run(count, self._executor.run))
        return max((wait for wait in waits if wait is not None), default=None)

    async def _get_rules(self) -> RuleSnapshot:
        return self._rule_cache.get_fresh() or await self._rule_cache.aget(self._run_outside_transaction)

    def _get_requirements(self, rules: RuleSnapshot, primitive: Any) -> ToolRequirements:
        """Return the requirements of the policies for a primitive.

        A tool is matched by its name; a primitive that represents a tool is matched as that tool.
        """
        if getattr(primitive, "mount_origin", None) is None:
            tool = primitive if getattr(primitive, "kind", None) == "tool" else getattr(primitive, "stands_for", None)
            return NO_REQUIREMENTS if tool is None else rules.get_requirements(self._server, tool.key)
        all_requirements = [rules.get_requirements(server, name) for server, name in self._iter_policy_names(primitive)]
        nonempty = [one for one in all_requirements if one is not NO_REQUIREMENTS]
        return merge_requirements(nonempty) if nonempty else NO_REQUIREMENTS

    def _iter_policy_names(self, primitive: Any) -> Iterator[tuple[str, str]]:
        """Yield the servers whose policies may apply, and the tool's name on each.

        A mounted primitive is also matched under the name that it has on its own server.
        """
        server: str | None = self._server
        while primitive is not None:
            tool = primitive if getattr(primitive, "kind", None) == "tool" else getattr(primitive, "stands_for", None)
            if tool is not None and server is not None:
                yield server, tool.key
            mounted = getattr(primitive, "mount_origin", None)
            if mounted is None:
                return
            server, primitive = mounted.mount.rules_alias, mounted.primitive

    async def _get_groups(
        self, principal: DjangoPrincipal, rules: RuleSnapshot, requirements: ToolRequirements, scopes: Collection[str]
    ) -> frozenset[str]:
        """Return the groups of the user where the decision depends on them."""
        if principal.is_local or not (
            requirements.groups or has_group_grants((*requirements.scopes, *scopes), rules.grants)
        ):
            return _NO_GROUPS
        return await load_groups(principal, self._executor.run)

    async def _find_hidden_by_rules(
        self, principal: DjangoPrincipal, rules: RuleSnapshot, primitives: Iterable[PermissionTarget]
    ) -> list[str]:
        """Return the keys of the primitives that the rules hide."""
        pairs = [(one, self._get_requirements(rules, one)) for one in primitives]
        groups = _NO_GROUPS
        if any(asked.groups or has_group_grants({*one.scopes, *asked.scopes}, rules.grants) for one, asked in pairs):
            groups = _NO_GROUPS if principal.is_local else await load_groups(principal, self._executor.run)
        return [
            one.key
            for one, asked in pairs
            if asked.disabled or not _apply_rules(principal, rules, asked, groups, set(one.scopes)).visible
        ]


def _apply_rules(
    principal: DjangoPrincipal,
    rules: RuleSnapshot,
    requirements: ToolRequirements,
    groups: frozenset[str],
    scopes: set[str],
) -> Decision:
    """Apply the administrator's rules to a decision that code allows."""
    scopes = scopes | requirements.scopes
    if principal.is_local:
        return ALLOW
    if not requirements.allows_groups(groups) or is_scope_denied(principal, scopes, rules.grants, groups):
        return HIDDEN  # a step-up would not help
    return decide_by_scopes(principal, scopes)


def _split_by_cache(
    principal: DjangoPrincipal, primitives: Iterable[PermissionTarget]
) -> tuple[list[str], list[PermissionTarget]]:
    """Return the keys of hidden primitives, and the primitives that need a check.

    Many primitives share few permissions, so each permission is looked up once: long lists are on the hot path.
    """
    hidden: list[str] = []
    undecided: list[PermissionTarget] = []
    if principal.is_local:
        return hidden, undecided
    answers: dict[str, bool | None] = {}

    for one in primitives:
        permission = one.permission
        if permission is None:
            continue
        if isinstance(permission, str):
            if permission not in answers:
                answers[permission] = principal.cached_perm(permission)
            visible = answers[permission]
        else:
            decision = decide_from_cache(principal, one)
            visible = None if decision is None else decision.visible
        if visible is None:
            undecided.append(one)
        elif not visible:
            hidden.append(one.key)
    return hidden, undecided


def _split_permission(permission: Permission | None) -> tuple[list[str], list[Callable[[Any], Any]]]:
    """Return the Django permissions and the functions of a permission.

    All of them are required.
    """
    if permission is None:
        return [], []
    parts = [permission] if isinstance(permission, str) or callable(permission) else permission
    return [part for part in parts if isinstance(part, str)], [part for part in parts if not isinstance(part, str)]


def _check_permissions(principal: DjangoPrincipal, names: Iterable[str]) -> list[bool]:
    return [principal.has_perm(name) for name in names]


def _call_permission_sync(
    permission: Callable[[Any], Any], principal: DjangoPrincipal, primitive: PermissionTarget
) -> bool:
    """Run `_call_permission` on the current thread."""
    try:
        answer = permission(principal)
        return bool(async_to_sync(_wait_for)(answer) if inspect.isawaitable(answer) else answer)
    except Overloaded:
        raise
    except Exception:
        logger.exception("Permission function of %r failed; the primitive is hidden from %r", primitive.key, principal)
        return False


async def _wait_for(answer: Awaitable[Any]) -> Any:
    return await answer


async def _call_permission(
    permission: Callable[[Any], Any], principal: DjangoPrincipal, primitive: PermissionTarget, run: Run
) -> bool:
    """Call a permission function of the project.

    An exception is a bug and denies the permission.
    """
    try:
        if is_async(permission):
            return bool(await permission(principal))
        answer = await run(permission, principal)
        return bool(await answer if inspect.isawaitable(answer) else answer)
    except Overloaded:
        raise
    except Exception:
        logger.exception("Permission function of %r failed; the primitive is hidden from %r", primitive.key, principal)
        return False
