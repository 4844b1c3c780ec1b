"""Common parts of all tools: `build_model_tool` makes a Tool of a function."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.declaration.exposed_fields import RowDeclaration
from mcp_django.orm.queries.visibility import VisibilityScope, limit_statement_time
from mcp_django.orm.row_permissions import Rows
from mcp_django.orm.schema import ModelToolOutput, ModelToolParameters, Schema
from mcp_django.protocol.errors import InvalidParams
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.types import ToolAnnotations
from mcp_django.server.context.context import Context
from mcp_django.server.injection.handler import Handler
from mcp_django.server.primitives.base import CallCheck, Tool

READ_ANNOTATIONS = ToolAnnotations(read_only=True, open_world=False)
"""Annotations of a reading tool; the hints about writes have no meaning for it."""
ToolFunction = Callable[[BaseModelToolset, Context, JSONObject], Any]


@dataclass(frozen=True, slots=True)
class ToolTemplate:
    """Tool that each toolset can have."""

    run: ToolFunction
    description: str
    """Description with the model's name as {name}, and its plural as {names}."""
    generic_description: str
    """Description of the generic tool, which serves all models."""
    arguments: Callable[[BaseModelToolset], Schema]
    result: Callable[[BaseModelToolset], Schema]
    annotations: ToolAnnotations = READ_ANNOTATIONS


def build_model_tool(
    toolset: BaseModelToolset,
    name: str,
    run: ToolFunction,
    *,
    description: str,
    arguments: Callable[[BaseModelToolset], Schema],
    result: Callable[[BaseModelToolset], Schema],
    action: str = "view",
    annotations: ToolAnnotations = READ_ANNOTATIONS,
    atomic: tuple[str, ...] | None = None,
) -> Tool:
    """Build a Tool of a function.

    `run` receives toolset, context and arguments, on a worker thread. `arguments` and `result` build the schemas on
    first use.

    `action` names the required Django permission: "view", "add", "change" or "delete". Callers without it do not see
    the tool. If the project overrides `has_<action>_permission`, that hook replaces the permission. It runs for lists
    and for each call, and denied calls are treated like calls of an unknown tool.
    """
    where = f"{toolset.source}, {name}"
    hook = f"has_{action}_permission"
    is_hook_overridden = toolset.is_overridden(hook)
    checks = (CallCheck(hook, getattr(toolset, hook), hides=True),) if is_hook_overridden else ()

    def handle(ctx: Context, arguments: JSONObject) -> Any:
        if not all(check.is_allowed(ctx) for check in checks):
            raise InvalidParams(f"Unknown tool: {toolset.prefix}{name}")
        return run(toolset, ctx, arguments)

    return Tool(
        name=name,
        title=None,
        description=description,
        permission=None if is_hook_overridden else toolset.get_tool_permission(action),
        call_checks=checks,
        handler=Handler(handle, {"ctx": Context}, atomic=atomic),
        source=where,
        parameters=ModelToolParameters(arguments, toolset, where),
        output=ModelToolOutput(result, toolset, where),
        annotations=annotations,
        metadata={"model": toolset.model._meta.label, "verb": name, "action": action},
    )


def find_served_tool(toolset: RowDeclaration, name: str) -> Tool | None:
    """Return a tool of a toolset; None if it is not served because it cannot be built, which is reported."""
    registry = toolset.registry
    tool = registry.try_build(lambda: toolset.get_tool(name), toolset.source, toolset.tool_name(name))
    return tool if tool is not None and registry.can_list(tool) else None


def can_use_tool(toolset: RowDeclaration, verb: str, ctx: Context) -> bool:
    """Return True if the caller may use a tool.

    Results must not name hidden tools, nor tools that are not served because they cannot be built.
    """
    tool, authorizer = find_served_tool(toolset, verb), ctx.server.ports.authorizer
    if tool is None or not getattr(toolset, f"has_{tool.metadata['action']}_permission")(ctx):
        return False
    return not authorizer.is_restricted(tool) or authorizer.is_allowed(ctx.principal, tool, after_step_up=True)


class ReadQuery:
    """Rows and scope of one reading call, with a time limit for its statements.

    Use it as a context manager around the statements.
    """

    def __init__(self, toolset: BaseModelToolset, ctx: Context) -> None:
        self.rows: Rows = toolset.get_queryset(ctx)
        self.database = self.rows.db
        self.scope = VisibilityScope(toolset, ctx, self.database)
        self._time_limit = limit_statement_time(ctx, self.database, toolset.query_timeout)

    def __enter__(self) -> "ReadQuery":
        self._time_limit.__enter__()
        return self

    def __exit__(self, *problem: Any) -> Any:
        return self._time_limit.__exit__(*problem)
