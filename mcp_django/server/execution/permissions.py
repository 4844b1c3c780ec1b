"""May the caller use a primitive now: the decision as calls ask for it, with scopes of arguments, and rates."""

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
    """The permission decision, for a tool with its arguments. Raises `unknown` when the primitive is hidden,
    InsufficientScope when a step-up would do.
    """
    if call.outer is not None and call.part is not None:
        here = call.part.known.get(primitive)
        if isinstance(here, Primitive):
            # Decided as its copy is in the host, by what both ask for.
            return await permit(call.outer, here, unknown, arguments)
    authorizer = call.server.authorizer
    if not authorizer.guards(primitive):
        return None
    scopes: Collection[str] = ()
    decision = await authorizer.decide(call.principal, primitive)
    if decision != HIDDEN and arguments is not None and isinstance(primitive, Tool) and primitive.scopes_for:
        # Of whoever may see it: the function is not run for others. One step-up has to bring all scopes.
        scopes = await _scopes_of(call, primitive, primitive.scopes_for, arguments)
        decision = await authorizer.decide(call.principal, primitive, scopes) if scopes else decision
    if decision == HIDDEN:
        raise unknown
    if decision != ALLOW:
        raise InsufficientScope(decision.scopes)


async def _scopes_of(call: Call, tool: Tool, scopes_for: ScopesFor, arguments: dict[str, Any]) -> frozenset[str]:
    """What the arguments take. Arguments that do not fit take nothing: they will be refused for what they are."""
    try:
        tool.parameters.check(arguments)
    except ArgumentError:
        return frozenset()
    try:
        found = scopes_for(copy.deepcopy(arguments))
        found = await found if inspect.isawaitable(found) else found
        if isinstance(found, str) or not all(isinstance(scope, str) for scope in found):
            raise TypeError(f"scopes_for must return scopes, in a list or set, not {found!r}")
        return frozenset(found)
    except Exception as problem:
        # A bug, which permits nothing.
        raise InternalError(report(call.server, f"scopes_for of tool {tool.name!r}", problem, call.fate)) from None


async def ration(call: Call, tool: Tool) -> str | None:
    """Count one more use of a tool; what to tell the model when that is too often."""
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
