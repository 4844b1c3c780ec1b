"""Permission policy: the one decision for every operation on primitives.

List, call, read, get, complete, subscribe and listen share it. Three rules must agree: Django's permissions of the
user, scopes delegated to the client, and the administrator's rules (`RuleCache`). Without the permission a primitive is
hidden: its name gives the same error as an unknown name. It is also hidden where no step-up could help. Without a scope
it is visible, and the error lists all scopes that the operation requires.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import Any, cast

from asgiref.sync import async_to_sync, sync_to_async

from mcp_django.auth.authorization.rule_cache import RULEBOOK, Rulebook, Rules
from mcp_django.auth.authorization.scopes import asks_for_groups, withheld
from mcp_django.auth.authorization.tool_policies import NOTHING, Asked, together
from mcp_django.auth.principal import Principal
from mcp_django.auth.throttling import throttle
from mcp_django.server import ports
from mcp_django.server.calls.callables import is_async
from mcp_django.server.ports import ALLOW, HIDDEN, Decision, Executor, Guarded, Overloaded, step_up
from mcp_django.server.rates import Rate

logger = logging.getLogger("mcp_django.auth")

Permission = str | Callable[[Any], Any] | Sequence[str | Callable[[Any], Any]]
Run = Callable[..., Awaitable[Any]]
_NOBODY: frozenset[str] = frozenset()


def is_guarded(primitive: Guarded) -> bool:
    """Return True if code makes the decision, or the rate, depend on the caller."""
    permission = primitive.permission
    return (
        bool(primitive.scopes)
        or (permission is not None and permission != () and permission != [])
        or getattr(primitive, "scopes_for", None) is not None
        or getattr(primitive, "rate", None) is not None
    )


def decide_now(principal: Principal, primitive: Guarded) -> Decision | None:
    """Return the decision of code if cached data suffices for it, else None. No I/O."""
    if principal.is_local:
        return ALLOW
    permission = primitive.permission
    if permission is not None:
        names, functions = _parts(permission)
        answers = [principal.known_perm(name) for name in names]
        if False in answers:
            return HIDDEN
        if functions or None in answers:
            return None
    return by_scopes(principal, primitive.scopes)


async def _in_thread(fn: Callable[..., Any], /, *args: Any) -> Any:
    return await sync_to_async(fn)(*args)


async def decide(principal: Principal, primitive: Guarded, *, run: Run = _in_thread) -> Decision:
    """Return the decision of code. `run` calls blocking functions in a thread."""
    decision = decide_now(principal, primitive)
    if decision is not None:
        return decision

    names, functions = _parts(primitive.permission)
    if names and not all(await run(_ask, principal, names)):
        return HIDDEN
    for function in functions:
        if not await _consult(function, principal, primitive, run):
            return HIDDEN
    return by_scopes(principal, primitive.scopes)


def by_scopes(principal: Principal, scopes: Collection[str]) -> Decision:
    """Return ALLOW, or a step-up that requests all of `scopes`."""
    return ALLOW if not scopes or principal.has_scopes(scopes) else step_up(tuple(scopes))


class Policy:
    """The `ports.Authorizer` of one server.

    Blocking checks run in the executor's threads.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        server: str = "default",
        rulebook: Rulebook = RULEBOOK,
        run_apart: Run | None = None,
    ) -> None:
        """Create the policy of a server.

        `run_outside_transaction` loads the rules outside the transaction of the current call.
        """
        self._executor, self._server, self._rulebook = executor, server, rulebook
        self._run_apart = executor.run if run_apart is None else run_apart

    @property
    def version(self) -> Hashable | None:
        """See `ports.Authorizer`."""
        rules = self._rulebook.now()
        return None if rules is None else rules.mark

    async def refresh(self) -> None:
        """See `ports.Authorizer`."""
        await self._rules()

    def guards(self, primitive: Guarded) -> bool:
        """See `ports.Authorizer`."""
        rules = self._rulebook.now()
        if rules is None or is_guarded(primitive):
            return True
        return not rules.is_empty and self._asked(rules, primitive) is not NOTHING

    async def decide(self, principal: ports.Principal, primitive: Guarded, scopes: Collection[str] = ()) -> Decision:
        """See `ports.Authorizer`."""
        who, rules = cast(Principal, principal), await self._rules()

        decision = decide_now(who, primitive)
        if rules.is_empty:
            asked, groups = NOTHING, _NOBODY
        else:
            asked = self._asked(rules, primitive)
            if asked.disabled:
                return HIDDEN
            groups = await self._groups(who, rules, asked, (*primitive.scopes, *scopes))

        if decision is None:
            lease = self._executor.enter()
            try:
                decision = await decide(who, primitive, run=self._executor.run)
            finally:
                lease.close()

        if not decision.visible or (asked is NOTHING and not scopes and not rules.grants):
            return decision
        return _narrowed(who, rules, asked, groups, {*primitive.scopes, *scopes})

    def allows(self, principal: ports.Principal, guarded: Guarded, *, later: bool = False) -> bool:
        """See `ports.Authorizer`."""
        who, rules = cast(Principal, principal), self._rulebook.known()
        asked = NOTHING if rules.is_empty else self._asked(rules, guarded)
        if asked.disabled:
            return False
        if who.is_local:
            return True

        scopes = {*guarded.scopes, *asked.scopes}
        groups = who.groups() if asked.groups or asks_for_groups(scopes, rules.grants) else _NOBODY
        decision = _narrowed(who, rules, asked, groups, scopes)
        if not (decision.visible if later else decision.allowed):
            return False
        names, functions = _parts(guarded.permission)
        return all(_ask(who, names)) and all(_consult_here(function, who, guarded) for function in functions)

    async def hidden(self, principal: ports.Principal, primitives: Iterable[Guarded]) -> frozenset[str]:
        """Return the keys of those of `primitives` that are hidden from `principal`.

        All Django permissions are checked in a single thread call, however many primitives there are.
        """
        who, rules = cast(Principal, principal), await self._rules()

        hidden: list[str] = []
        if not rules.is_empty:
            primitives = list(primitives)
            hidden = await self._ruled_out(who, rules, primitives)
            gone = frozenset(hidden)
            primitives = [one for one in primitives if one.key not in gone]

        known, open_ones = _sort(who, primitives)
        hidden += known
        if open_ones:
            lease = self._executor.enter()
            try:
                names = {name for one in open_ones for name in _parts(one.permission)[0]}
                if names:
                    await self._executor.run(_ask, who, names)
                hidden += [one.key for one in open_ones if not (await decide(who, one, run=self._executor.run)).visible]
            finally:
                lease.close()
        return frozenset(hidden)

    async def ration(self, principal: ports.Principal, tool: Guarded) -> float | None:
        """See `ports.Authorizer`."""
        rules = await self._rules()
        own: Rate | None = getattr(tool, "rate", None)
        known_as = list(self._known_as(tool))
        waits: list[float | None] = []
        for server, name in known_as:
            asked = NOTHING if rules.is_empty else rules.of_tool(server, name)
            # The declared rate belongs to the origin of the tool, whatever name it is called by.
            declared = () if own is None or (server, name) != known_as[-1] else (own,)
            for rate in dict.fromkeys((*declared, *asked.rates)):
                what = f"tool {server} {name}"
                waits.append(await throttle.counter().atake(what, principal.key, rate, run=self._executor.run))
        return max((wait for wait in waits if wait is not None), default=None)

    async def _rules(self) -> Rules:
        return self._rulebook.now() or await self._rulebook.current(self._run_apart)

    def _asked(self, rules: Rules, primitive: Any) -> Asked:
        """Return the requirements of the policies for a primitive.

        A tool is matched by its name; a primitive that represents a tool is matched as that tool.
        """
        if getattr(primitive, "mounted", None) is None:
            tool = primitive if getattr(primitive, "kind", None) == "tool" else getattr(primitive, "stands_for", None)
            return NOTHING if tool is None else rules.of_tool(self._server, tool.key)
        found = [rules.of_tool(server, name) for server, name in self._known_as(primitive)]
        asked = [one for one in found if one is not NOTHING]
        return together(asked) if asked else NOTHING

    def _known_as(self, primitive: Any) -> Iterator[tuple[str, str]]:
        """Yield the servers whose policies may apply, and the tool's name on each.

        A mounted primitive is also matched under the name that it has on its own server.
        """
        server: str | None = self._server
        while primitive is not None:
            tool = primitive if getattr(primitive, "kind", None) == "tool" else getattr(primitive, "stands_for", None)
            if tool is not None and server is not None:
                yield server, tool.key
            mounted = getattr(primitive, "mounted", None)
            if mounted is None:
                return
            server, primitive = mounted.part.rules, mounted.primitive

    async def _groups(self, who: Principal, rules: Rules, asked: Asked, scopes: Collection[str]) -> frozenset[str]:
        """Return the groups of the user where the decision depends on them."""
        if who.is_local or not (asked.groups or asks_for_groups((*asked.scopes, *scopes), rules.grants)):
            return _NOBODY
        known = who.known_groups()
        found: frozenset[str] = await self._executor.run(who.groups) if known is None else known
        return found

    async def _ruled_out(self, who: Principal, rules: Rules, primitives: Iterable[Guarded]) -> list[str]:
        """Return the keys of the primitives that the rules hide."""
        found = [(one, self._asked(rules, one)) for one in primitives]
        groups = _NOBODY
        if any(asked.groups or asks_for_groups({*one.scopes, *asked.scopes}, rules.grants) for one, asked in found):
            groups = _NOBODY if who.is_local else await self._executor.run(who.groups)
        return [
            one.key
            for one, asked in found
            if asked.disabled or not _narrowed(who, rules, asked, groups, set(one.scopes)).visible
        ]


def _narrowed(who: Principal, rules: Rules, asked: Asked, groups: frozenset[str], scopes: set[str]) -> Decision:
    """Apply the administrator's rules to a decision that code allows."""
    scopes = scopes | asked.scopes
    if who.is_local:
        return ALLOW
    if not asked.lets_in(groups) or withheld(who, scopes, rules.grants, groups):
        return HIDDEN  # a step-up would not help
    return by_scopes(who, scopes)


def _sort(principal: Principal, primitives: Iterable[Guarded]) -> tuple[list[str], list[Guarded]]:
    """Return the keys of hidden primitives, and the primitives that need a check.

    Many primitives share few permissions, so each permission is looked up once: long lists are on the hot path.
    """
    hidden: list[str] = []
    open_ones: list[Guarded] = []
    if principal.is_local:
        return hidden, open_ones
    answers: dict[str, bool | None] = {}

    for one in primitives:
        permission = one.permission
        if permission is None:
            continue
        if isinstance(permission, str):
            if permission not in answers:
                answers[permission] = principal.known_perm(permission)
            visible = answers[permission]
        else:
            decision = decide_now(principal, one)
            visible = None if decision is None else decision.visible
        if visible is None:
            open_ones.append(one)
        elif not visible:
            hidden.append(one.key)
    return hidden, open_ones


def _parts(permission: Permission | None) -> tuple[list[str], list[Callable[[Any], Any]]]:
    """Return the Django permissions and the functions of a permission.

    All of them are required.
    """
    if permission is None:
        return [], []
    parts = [permission] if isinstance(permission, str) or callable(permission) else permission
    return [part for part in parts if isinstance(part, str)], [part for part in parts if not isinstance(part, str)]


def _ask(principal: Principal, names: Iterable[str]) -> list[bool]:
    return [principal.has_perm(name) for name in names]


def _consult_here(permission: Callable[[Any], Any], principal: Principal, primitive: Guarded) -> bool:
    """Run `_call_permission` on the current thread."""

    async def awaited() -> bool:
        return bool(await permission(principal))

    try:
        return async_to_sync(awaited)() if is_async(permission) else bool(permission(principal))
    except Overloaded:
        raise
    except Exception:
        logger.exception("Permission function of %r failed; the primitive is hidden from %r", primitive.key, principal)
        return False


async def _consult(permission: Callable[[Any], Any], principal: Principal, primitive: Guarded, run: Run) -> bool:
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
