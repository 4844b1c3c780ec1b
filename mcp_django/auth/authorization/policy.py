"""Permission policy: the one decision for every operation on primitives.

List, call, read, get, complete, subscribe and listen share it. Three rules must agree: Django's permissions of the
user, scopes delegated to the client, and the administrator's rules (`RuleCache`). Without the permission a primitive is
hidden: its name gives the same error as an unknown name. It is also hidden where no step-up could help. Without a scope
it is visible, and the error lists all scopes that the operation requires.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from mcp_django.auth.authorization.conditions import (
    CallerRights,
    Condition,
    DelegatedScope,
    PermissionFunction,
    build_conditions,
    check_all,
    evaluate_all,
    find_failure,
    find_failure_async,
    find_known_failure,
)
from mcp_django.auth.authorization.rule_cache import (
    NO_REQUIREMENTS,
    RULE_CACHE,
    RuleCache,
    RuleSnapshot,
    ToolRequirements,
    merge_requirements,
)
from mcp_django.auth.principal import DjangoPrincipal, Run
from mcp_django.auth.throttling import get_counter
from mcp_django.server.ports import ALLOW, HIDDEN, Decision, Executor, PermissionTarget, step_up
from mcp_django.server.primitives.base import Rate


def is_restricted_by_code(primitive: PermissionTarget) -> bool:
    """Return True if code makes the decision, or the rate, depend on the caller."""
    permission = primitive.permission
    return (
        bool(primitive.scopes)
        or (permission is not None and permission != () and permission != [])
        or getattr(primitive, "scopes_for", None) is not None
        or getattr(primitive, "rate", None) is not None
    )


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
        rules = self._rule_cache.get_fresh()
        return None if rules is None else rules.version

    async def refresh(self) -> None:
        await self._get_rules()

    def is_restricted(self, primitive: PermissionTarget) -> bool:
        rules = self._rule_cache.get_fresh()
        if rules is None or is_restricted_by_code(primitive):
            return True
        return self._get_requirements(rules, primitive) is not NO_REQUIREMENTS

    async def decide(
        self, principal: DjangoPrincipal, primitive: PermissionTarget, scopes: Collection[str] = ()
    ) -> Decision:
        conditions = await self._build_conditions(principal, primitive, scopes)
        rights = CallerRights(principal)
        failure, unknown = find_known_failure(conditions, rights)
        if unknown:
            with self._executor.context():
                failure = await find_failure_async(unknown, rights, self._executor.run) or failure

        if failure is None:
            return ALLOW
        if failure.hides:
            return HIDDEN
        return step_up([one.scope for one in conditions if isinstance(one, DelegatedScope)])

    async def explain_hidden(self, principal: DjangoPrincipal, primitive: PermissionTarget) -> str:
        """Return the reason why a primitive is hidden from `principal`; "" if it is visible.

        The text is for administrators.
        """
        conditions = await self._build_conditions(principal, primitive)
        results = await evaluate_all(conditions, CallerRights(principal), self._executor.run)
        failed = [condition for condition, holds in results if not holds and condition.hides]
        return failed[0].explain([one for one in failed if type(one) is type(failed[0])]) if failed else ""

    async def list_checks(self, principal: DjangoPrincipal, primitive: PermissionTarget) -> list[PermissionCheck]:
        """Return all conditions of the decision about a primitive, in their order.

        The principal may use the primitive if all of them hold. The names are for administrators.
        """
        conditions = await self._build_conditions(principal, primitive)
        results = await evaluate_all(conditions, CallerRights(principal), self._executor.run)
        return [PermissionCheck(condition.name, holds) for condition, holds in results]

    async def get_requirements(self, primitive: PermissionTarget) -> ToolRequirements:
        """Return the requirements of tool policies for a primitive, in addition to its code."""
        return self._get_requirements(await self._get_rules(), primitive)

    def is_allowed(self, principal: DjangoPrincipal, target: PermissionTarget, *, after_step_up: bool = False) -> bool:
        rules = self._rule_cache.get()
        conditions = build_conditions(principal, target, self._get_requirements(rules, target), rules.grants)
        failure = find_failure(conditions, CallerRights(principal))
        return failure is None or (after_step_up and not failure.hides)

    async def find_hidden_keys(
        self, principal: DjangoPrincipal, primitives: Iterable[PermissionTarget]
    ) -> frozenset[str]:
        """Return the keys of those of `primitives` that are hidden from `principal`.

        All Django permissions and groups are loaded in a single thread call, however many primitives there are.
        """
        rules = await self._get_rules()
        rights = CallerRights(principal)
        hidden, undecided = self._split_by_cache(rules, rights, primitives)
        if not undecided:
            return frozenset(hidden)

        with self._executor.context():
            run = self._executor.run
            unknown = [condition for _, conditions in undecided for condition in conditions]
            stored = [one for one in unknown if not isinstance(one, PermissionFunction)]
            if stored:
                await run(check_all, stored, rights)
            for one, conditions in undecided:
                failure, functions = find_known_failure(conditions, rights)
                if failure is not None or await find_failure_async(functions, rights, run) is not None:
                    hidden.append(one.key)
        return frozenset(hidden)

    def _split_by_cache(
        self, rules: RuleSnapshot, rights: CallerRights, primitives: Iterable[PermissionTarget]
    ) -> tuple[list[str], list[tuple[PermissionTarget, list[Condition]]]]:
        """Return the keys of hidden primitives, and other primitives with their unknown conditions. No I/O.

        Many primitives share few permissions and scopes, so each combination is decided once: long lists are on the hot
        path. Without rules a scope hides no primitive.
        """
        hidden: list[str] = []
        undecided: list[tuple[PermissionTarget, list[Condition]]] = []
        shared: dict[Any, tuple[Condition | None, list[Condition]]] = {}
        for one in primitives:
            requirements = NO_REQUIREMENTS if rules.is_empty else self._get_requirements(rules, one)
            key: Any = None
            if type(one.permission) is str and requirements is NO_REQUIREMENTS:
                key = one.permission if rules.is_empty else (one.permission, *one.scopes)
            found = shared.get(key)
            if found is None:
                conditions = build_conditions(rights.principal, one, requirements, rules.grants)
                found = find_known_failure(conditions, rights)
                if key is not None:
                    shared[key] = found
            failure, unknown = found
            if unknown:
                undecided.append((one, unknown))
            elif failure is not None and failure.hides:
                hidden.append(one.key)
        return hidden, undecided

    async def count_use(self, principal: DjangoPrincipal, tool: PermissionTarget) -> float | None:
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

    async def _build_conditions(
        self, principal: DjangoPrincipal, primitive: PermissionTarget, scopes: Collection[str] = ()
    ) -> tuple[Condition, ...]:
        rules = await self._get_rules()
        return build_conditions(principal, primitive, self._get_requirements(rules, primitive), rules.grants, scopes)

    async def _get_rules(self) -> RuleSnapshot:
        return self._rule_cache.get_fresh() or await self._rule_cache.aget(self._run_outside_transaction)

    def _get_requirements(self, rules: RuleSnapshot, primitive: Any) -> ToolRequirements:
        """Return the requirements of the policies for a primitive.

        A tool is matched by its name; a primitive that represents a tool is matched as that tool.
        """
        if rules.is_empty:
            return NO_REQUIREMENTS
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
