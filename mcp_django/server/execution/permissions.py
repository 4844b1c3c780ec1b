"""Permission checks of calls: the decision, scopes of arguments, and rates."""

import copy
import inspect
import math
from collections.abc import Collection
from typing import Any

from mcp_django.protocol.errors import InsufficientScope, InternalError, MCPError
from mcp_django.schema import ArgumentError
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.internal_errors import report_internal_error
from mcp_django.server.ports import ALLOW, HIDDEN
from mcp_django.server.primitives.base import Primitive, ScopesFor, Tool


async def check_permission(
    call: Call, primitive: Primitive, unknown: MCPError, arguments: dict[str, Any] | None = None
) -> None:
    """Check that the caller may use the primitive, for a tool with its arguments.

    Raises `unknown` if the primitive is hidden, and InsufficientScope if a step-up would be enough.
    """
    if call.host_call is not None and call.mount is not None:
        host_copy = call.mount.copies.get(primitive)
        if isinstance(host_copy, Primitive):
            # Decide about the host's copy, which combines the requirements of both.
            return await check_permission(call.host_call, host_copy, unknown, arguments)

    authorizer = call.server.authorizer
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


async def _find_scopes(call: Call, tool: Tool, scopes_for: ScopesFor, arguments: dict[str, Any]) -> frozenset[str]:
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
    authorizer = call.server.authorizer
    if call.record.is_continued or not authorizer.is_restricted(tool):
        return None
    wait = await authorizer.count_use(call.principal, tool)
    if wait is None:
        return None
    return f"{tool.name} was called too often; wait {math.ceil(wait)} seconds before the next call"
