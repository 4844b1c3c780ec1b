"""Inspection of a server for one caller: all primitives, with requirements, access and size.

The primitives are collected as for the lists of clients, and the decisions are those of lists and calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync

from mcp_django.auth.authorization.policy import PermissionCheck, Policy
from mcp_django.auth.authorization.rule_cache import ToolRequirements
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.orm.list_size import count_model_tools
from mcp_django.protocol import jsonrpc
from mcp_django.schema.host_rules import HostFinding, find_host_findings
from mcp_django.server.calls.call import Call
from mcp_django.server.composition.mounting import resolve_innermost
from mcp_django.server.context.around import find_around, run_within
from mcp_django.server.context.context import Context
from mcp_django.server.execution.lists import KINDS, TOOLS, ListKind
from mcp_django.server.primitives.base import Permission, Primitive, Tool
from mcp_django.server.server import Server
from mcp_django.transports.inprocess.client import InProcessClient

ALLOWED = "allowed"
LIST_METHODS = {"tools": "tools/list", "resources": "resources/list", "prompts": "prompts/list"}


@dataclass(frozen=True, slots=True)
class InspectedPrimitive:
    """A primitive with its requirements, and its access for one caller."""

    collection: str
    kind: str
    key: str
    requirements: str
    source: str
    verdict: str
    """ALLOWED, or the reason why the caller cannot use it."""
    is_listed: bool
    """True if the caller's lists contain it."""
    checks: tuple[PermissionCheck, ...]
    """All conditions, of which the first that does not hold is the reason."""
    size_bytes: int
    """Bytes of its list entry in the latest revision."""
    host_findings: tuple[HostFinding, ...]
    """Places in its list entry that a host refuses or limits."""
    is_model_tool: bool
    """True for a tool of a single model that a generic tool could replace."""


def inspect_server(server: Server, principal: DjangoPrincipal) -> list[InspectedPrimitive]:
    """Return all primitives of a server, registered and provided, kind by kind."""

    async def inspect(call: Call) -> list[InspectedPrimitive]:
        return [
            await _inspect_primitive(call, kind, primitive)
            for kind in KINDS
            for primitive in await server.listings.collect(call, kind)
            if server.registry.can_list(primitive)
        ]

    return async_to_sync(InProcessClient(server, principal).run_in_call)("tools/list", inspect)


def explain_denied_tool(server: Server, principal: DjangoPrincipal, name: str) -> str | None:
    """Return the reason why a caller cannot use a tool; None if there is no tool of this name."""

    async def explain(call: Call) -> str | None:
        tools = await server.listings.collect(call, TOOLS)
        tool = next((one for one in tools if one.key == name), None)
        return None if tool is None else (await _decide(call, tool))[0]

    return async_to_sync(InProcessClient(server, principal).run_in_call)("tools/call", explain)


async def _inspect_primitive(call: Call, kind: ListKind, primitive: Primitive) -> InspectedPrimitive:
    verdict, is_listed = await _decide(call, primitive)
    principal: Any = call.principal
    entry = primitive.to_list_entry(call.revision)
    return InspectedPrimitive(
        collection=kind.collection,
        kind=primitive.kind,
        key=primitive.key,
        requirements=_describe_requirements(primitive, await _get_policy(call).get_requirements(primitive)),
        source=primitive.source,
        verdict=verdict,
        is_listed=is_listed,
        checks=tuple(await _get_policy(call).list_checks(principal, primitive)),
        size_bytes=len(jsonrpc.dumps(entry)),
        host_findings=tuple(find_host_findings([entry])) if isinstance(primitive, Tool) else (),
        is_model_tool=bool(count_model_tools([primitive])),
    )


async def _decide(call: Call, primitive: Primitive) -> tuple[str, bool]:
    """Return the verdict about a primitive, and True if the caller's lists contain it."""
    policy = _get_policy(call)
    principal: Any = call.principal
    decision = await policy.decide(principal, primitive)
    if not decision.visible:
        return f"hidden: {await policy.explain_hidden(principal, primitive)}", False

    inner_call, original = resolve_innermost(call, primitive)
    around, context = find_around(inner_call), Context(inner_call)
    for check in original.call_checks:
        run_check = partial(call.server.ports.executor.run, check.is_allowed, context)
        if not await run_within(around, context, run_check):
            if check.hides:
                return f"hidden: {check.name} refuses", False
            return f"listed, but each call is refused by {check.name}", True
    return ALLOWED if decision.allowed else f"needs the scopes {' '.join(decision.scopes)}", True


def _get_policy(call: Call) -> Policy:
    policy = call.server.ports.authorizer
    assert isinstance(policy, Policy)  # `wiring` creates the servers of the commands.
    return policy


def _describe_requirements(primitive: Primitive, policy: ToolRequirements) -> str:
    parts = []
    if names := _list_permissions(primitive.permission):
        parts.append(f"permission {', '.join(names)}")
    if primitive.scopes:
        parts.append(f"scopes {' '.join(primitive.scopes)}")
    if isinstance(primitive, Tool) and primitive.scopes_for is not None:
        parts.append("scopes of the arguments")
    parts += [check.name if check.hides else f"at each call {check.name}" for check in primitive.call_checks]
    if described := _describe_policy(policy):
        parts.append(f"by tool policy {described}")
    return " and ".join(parts) or "open to every authenticated caller"


def _list_permissions(permission: Permission | None) -> Sequence[str]:
    if permission is None:
        return []
    parts = permission if isinstance(permission, tuple | list) else (permission,)
    return [str(getattr(part, "__name__", part)) for part in parts]


def _describe_policy(policy: ToolRequirements) -> str:
    parts = ["disabled"] if policy.disabled else []
    if policy.scopes:
        parts.append(f"scopes {' '.join(sorted(policy.scopes))}")
    parts += [f"one of the groups {', '.join(sorted(among))}" for among in policy.groups]
    return ", ".join(parts)
