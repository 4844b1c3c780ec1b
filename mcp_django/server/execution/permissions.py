"""Permission checks of calls: the decision, scopes of arguments, and rates."""

import copy
import inspect
import math
from collections.abc import Collection
from functools import partial
from typing import Any, NamedTuple

from mcp_django.protocol.errors import InsufficientScope, InternalError, MCPError
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.log_text import get_logger
from mcp_django.schema import ArgumentError
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.internal_errors import report_internal_error
from mcp_django.server.composition.mounting import resolve_innermost
from mcp_django.server.context.around import find_around, run_within
from mcp_django.server.context.context import Context
from mcp_django.server.ports import ALLOW, HIDDEN
from mcp_django.server.primitives.base import CallCheck, Primitive, ScopesFor, Tool

logger = get_logger("mcp_django.server")


async def check_permission(
    call: Call, primitive: Primitive, unknown: MCPError, arguments: JSONObject | None = None
) -> None:
    """Check that the caller may use the primitive, for a tool with its arguments.

    Raises `unknown` if the primitive is hidden, and InsufficientScope if a step-up would be enough.
    """
    if call.host_call is not None and call.mount is not None:
        host_copy = call.mount.copies.get(primitive)
        if isinstance(host_copy, Primitive):
            # Decide about the host's copy, which combines the requirements of both.
            return await check_permission(call.host_call, host_copy, unknown, arguments)

    authorizer = call.server.ports.authorizer
    if not authorizer.is_restricted(primitive):
        return None
    scopes: Collection[str] = ()
    decision = await authorizer.decide(call.principal, primitive)
    if decision != HIDDEN and arguments is not None and isinstance(primitive, Tool) and primitive.scopes_for:
        # Only for a visible tool: `scopes_for` must not run for other callers. One step-up must obtain all scopes.
        scopes = await _find_scopes(call, primitive, primitive.scopes_for, arguments)
        decision = await authorizer.decide(call.principal, primitive, scopes) if scopes else decision

    if decision == HIDDEN:
        raise unknown
    if decision != ALLOW:
        raise InsufficientScope(decision.scopes)


async def find_hidden_keys(call: Call, primitives: Collection[Primitive]) -> frozenset[str]:
    """Return the keys of the primitives that are hidden from the caller.

    The decision hides them, or a check of their own.
    """
    authorizer = call.server.ports.authorizer
    restricted = [item for item in primitives if authorizer.is_restricted(item)]
    hidden = await authorizer.find_hidden_keys(call.principal, restricted) if restricted else frozenset()
    checked = [item for item in primitives if item.has_hiding_checks and item.key not in hidden]
    if not checked:
        return hidden
    # Contexts belong to the event loop, so they are created before the checks run on a thread.
    for checks in _collect_hiding_checks(call, checked):
        run = partial(call.server.ports.executor.run, _find_refused_keys, checks)
        hidden |= await run_within(find_around(checks.call), checks.ctx, run)
    return hidden


class _HidingChecks(NamedTuple):
    """Checks that decide about lists, of the primitives of one server."""

    call: Call
    """Call in the view of that server."""
    ctx: Context
    checks: list[tuple[str, CallCheck]]
    """Keys of primitives, each with a check."""


def _collect_hiding_checks(call: Call, primitives: Collection[Primitive]) -> list[_HidingChecks]:
    """Return the checks by the server that declares the primitives; its context is that of the mount."""
    groups: dict[Any, _HidingChecks] = {}
    for primitive in primitives:
        inner_call, original = resolve_innermost(call, primitive)
        mount = None if primitive.mount_origin is None else primitive.mount_origin.mount
        group = groups.setdefault((mount, inner_call.server), _HidingChecks(inner_call, Context(inner_call), []))
        group.checks.extend((primitive.key, check) for check in original.call_checks if check.hides)
    return list(groups.values())


def _find_refused_keys(hiding: _HidingChecks) -> frozenset[str]:
    """Return the keys of the primitives whose checks refuse the caller.

    Many tools share a check, so each runs once. A check that raises is logged and refuses.
    """
    answers: dict[Any, bool] = {}
    for key, check in hiding.checks:
        if check.is_allowed not in answers:
            answers[check.is_allowed] = _is_allowed(check, hiding.ctx, key)
    return frozenset(key for key, check in hiding.checks if not answers[check.is_allowed])


def _is_allowed(check: CallCheck, ctx: Context, key: str) -> bool:
    """Return the answer of a check; one that raises refuses.

    The local principal may do everything. Its call gets the error, which names the remedy for a missing user.
    """
    try:
        return bool(check.is_allowed(ctx))
    except Exception:
        if getattr(ctx.principal, "is_local", False):
            return True
        logger.exception("Permission hook failed, hiding %r: %s", key, check.name)
        return False


async def _find_scopes(call: Call, tool: Tool, scopes_for: ScopesFor, arguments: JSONObject) -> frozenset[str]:
    """Return the scopes that the arguments require.

    Invalid arguments require none, because the call rejects them later.
    """
    try:
        tool.parameters.check(arguments)
    except ArgumentError:
        return frozenset()
    try:
        scopes = scopes_for(copy.deepcopy(arguments))
        scopes = await scopes if inspect.isawaitable(scopes) else scopes
        if isinstance(scopes, str) or not all(isinstance(scope, str) for scope in scopes):
            raise TypeError(f"scopes_for must return a list or set of scopes, not {scopes!r}")
        return frozenset(scopes)
    except Exception as problem:
        # A bug in `scopes_for` grants nothing.
        raise InternalError(
            report_internal_error(call.server, f"scopes_for of tool {tool.name!r}", problem, call.record)
        ) from None


async def count_use(call: Call, tool: Tool) -> str | None:
    """Count one use of a tool.

    Returns an error text for the model if its rate is exhausted.
    """
    if call.host_call is not None and call.mount is not None:
        host_copy = call.mount.copies.get(tool)
        if isinstance(host_copy, Tool):
            return await count_use(call.host_call, host_copy)
    authorizer = call.server.ports.authorizer
    if call.record.is_continued or not authorizer.is_restricted(tool):
        return None
    wait = await authorizer.count_use(call.principal, tool)
    if wait is None:
        return None
    return f"{tool.name} was called too often; wait {math.ceil(wait)} seconds before the next call"
