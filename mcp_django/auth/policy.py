"""The one permission decision, for list, call, read, get and complete alike.

A right is what the user may do (Django's permissions) and what was delegated to the client (scopes), both.
Without the permission a primitive is hidden: its name answers like one that does not exist. Without a scope it is
shown, and the client is told all the scopes that the operation takes.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, cast

from asgiref.sync import async_to_sync, sync_to_async

from ..server import ports
from ..server.execution import is_async
from ..server.ports import ALLOW, HIDDEN, Decision, Executor, Guarded, Overloaded, step_up
from .principal import Principal

logger = logging.getLogger("mcp_django.auth")

Permission = str | Callable[[Any], Any] | Sequence[str | Callable[[Any], Any]]
Run = Callable[..., Awaitable[Any]]


def is_guarded(primitive: Guarded) -> bool:
    """Does the decision depend on who asks?"""
    permission = primitive.permission
    return bool(primitive.scopes) or (permission is not None and permission != () and permission != [])


def decide_now(principal: Principal, primitive: Guarded) -> Decision | None:
    """The decision, if nobody has to be asked for it; else None. No I/O."""
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
    return _by_scopes(principal, primitive)


async def _in_thread(fn: Callable[..., Any], /, *args: Any) -> Any:
    return await sync_to_async(fn)(*args)


async def decide(principal: Principal, primitive: Guarded, *, run: Run = _in_thread) -> Decision:
    """May `principal` use `primitive`? `run` calls plain functions where they may block."""
    decision = decide_now(principal, primitive)
    if decision is not None:
        return decision
    names, functions = _parts(primitive.permission)
    if names and not all(await run(_ask, principal, names)):
        return HIDDEN
    for function in functions:
        if not await _consult(function, principal, primitive, run):
            return HIDDEN
    return _by_scopes(principal, primitive)


class Policy:
    """The engine's Authorizer (`server/ports.py`), asking on the executor's lanes."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def guards(self, primitive: Guarded) -> bool:
        """See is_guarded."""
        return is_guarded(primitive)

    async def decide(self, principal: ports.Principal, primitive: Guarded) -> Decision:
        """See decide."""
        who = cast(Principal, principal)
        decision = decide_now(who, primitive)
        if decision is not None:
            return decision
        lease = self._executor.enter()
        try:
            return await decide(who, primitive, run=self._executor.run)
        finally:
            lease.close()

    def allows(self, principal: ports.Principal, guarded: Guarded) -> bool:
        """See decide. For threads: whoever has to be asked is asked here."""
        who = cast(Principal, principal)
        if who.is_local:
            return True
        names, functions = _parts(guarded.permission)
        if not who.has_scopes(guarded.scopes) or not all(_ask(who, names)):
            return False
        return all(_consult_here(function, who, guarded) for function in functions)

    async def hidden(self, principal: ports.Principal, primitives: Iterable[Guarded]) -> frozenset[str]:
        """The keys of those of `primitives` that `principal` must not see.

        However many they are, their Django permissions are asked for in one visit to a thread.
        """
        who = cast(Principal, principal)
        hidden, open_ones = _sort(who, primitives)
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


def _sort(principal: Principal, primitives: Iterable[Guarded]) -> tuple[list[str], list[Guarded]]:
    """The keys of those that are known to be hidden, and those about which somebody has to be asked.

    Many primitives share few permissions, so that each is looked up once: lists of hundreds are on the hot path.
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
    """The Django permissions and the functions that it asks for, all of them."""
    if permission is None:
        return [], []
    parts = [permission] if isinstance(permission, str) or callable(permission) else permission
    return [part for part in parts if isinstance(part, str)], [part for part in parts if not isinstance(part, str)]


def _ask(principal: Principal, names: Iterable[str]) -> list[bool]:
    return [principal.has_perm(name) for name in names]


def _by_scopes(principal: Principal, primitive: Guarded) -> Decision:
    scopes = primitive.scopes
    return ALLOW if not scopes or principal.has_scopes(scopes) else step_up(scopes)


def _consult_here(permission: Callable[[Any], Any], principal: Principal, primitive: Guarded) -> bool:
    """As _consult, on this thread."""

    async def awaited() -> bool:
        return bool(await permission(principal))

    try:
        return async_to_sync(awaited)() if is_async(permission) else bool(permission(principal))
    except Overloaded:
        raise
    except Exception:
        logger.exception("The permission function of %r failed, so it is hidden from %r", primitive.key, principal)
        return False


async def _consult(permission: Callable[[Any], Any], principal: Principal, primitive: Guarded, run: Run) -> bool:
    """Ask a function of the project. One that fails is a bug, and permits nothing."""
    try:
        if is_async(permission):
            return bool(await permission(principal))
        answer = await run(permission, principal)
        return bool(await answer if inspect.isawaitable(answer) else answer)
    except Overloaded:
        raise
    except Exception:
        logger.exception("The permission function of %r failed, so it is hidden from %r", primitive.key, principal)
        return False
