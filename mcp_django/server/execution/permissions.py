"""Permission checks of calls: the decision, scopes of arguments, and rates."""

import copy
import inspect
import math
from collections.abc import Collection
from typing import Any

from mcp_django.protocol.errors import InsufficientScope, InternalError, MCPError
from mcp_django.schema import ArgumentError
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.internal_errors import report
from mcp_django.server.ports import ALLOW, HIDDEN
from mcp_django.server.primitives.base import Primitive, ScopesFor, Tool


async def permit(call: Call, primitive: Primitive, unknown: MCPError, arguments: dict[str, Any] | None = None) -> None:
    """Check that the caller may use the primitive, for a tool with its arguments.

    Raises `unknown` if the primitive is hidden, and InsufficientScope if a step-up would be enough.
    """
    if call.outer is not None and call.part is not None:
        here = call.part.known.get(primitive)
        if isinstance(here, Primitive):
            # Decide about the host's copy, which combines the requirements of both.
            return await permit(call.outer, here, unknown, arguments)

    authorizer = call.server.authorizer
    if not authorizer.guards(primitive):
        return None
    scopes: Collection[str] = ()
    decision = await authorizer.decide(call.principal, primitive)
    if decision != HIDDEN and arguments is not None and isinstance(primitive, Tool) and primitive.scopes_for:
        # Only for a visible tool: `scopes_for` must not run for other callers. One step-up must obtain all scopes.
        scopes = await _scopes_of(call, primitive, primitive.scopes_for, arguments)
        decision = await authorizer.decide(call.principal, primitive, scopes) if scopes else decision

    if decision == HIDDEN:
        raise unknown
    if decision != ALLOW:
        raise InsufficientScope(decision.scopes)


async def _scopes_of(call: Call, tool: Tool, scopes_for: ScopesFor, arguments: dict[str, Any]) -> frozenset[str]:
    """Return the scopes that the arguments require.

    Invalid arguments require none, because the call rejects them later.
    """
    try:
        tool.parameters.check(arguments)
    except ArgumentError:
        return frozenset()
    try:
        found = scopes_for(copy.deepcopy(arguments))
        found = await found if inspect.isawaitable(found) else found
        if isinstance(found, str) or not all(isinstance(scope, str) for scope in found):
            raise TypeError(f"scopes_for must return a list or set of scopes, not {found!r}")
        return frozenset(found)
    except Exception as problem:
        # A bug in `scopes_for` grants nothing.
        raise InternalError(report(call.server, f"scopes_for of tool {tool.name!r}", problem, call.fate)) from None


async def ration(call: Call, tool: Tool) -> str | None:
    """Count one use of a tool.

    Returns an error text for the model if its rate is exhausted.
    """
    if call.outer is not None and call.part is not None:
        here = call.part.known.get(tool)
        if isinstance(here, Tool):
            return await ration(call.outer, here)
    authorizer = call.server.authorizer
    if not authorizer.guards(tool):
        return None
    wait = await authorizer.ration(call.principal, tool)
    if wait is None:
        return None
    return f"{tool.name} was called too often; wait {math.ceil(wait)} seconds before the next call"
