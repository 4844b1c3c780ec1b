"""`create`: a new row."""

from typing import TYPE_CHECKING, Any

from mcp_django.orm.tools.base import build_model_tool, get_verbose_name
from mcp_django.orm.writes.save import CreateOperation
from mcp_django.orm.writes.schema import create_schema, saved_schema
from mcp_django.protocol.types import ToolAnnotations
from mcp_django.server.context.context import Context
from mcp_django.server.primitives.base import Tool

if TYPE_CHECKING:
    from mcp_django.orm.toolset import ModelToolset


def build(toolset: "ModelToolset") -> Tool:
    """Build the tool that adds a row."""
    tool = build_model_tool(
        toolset,
        "create",
        create_row,
        description=f"Add one {get_verbose_name(toolset.model)}.",
        arguments=create_schema,
        result=lambda toolset: saved_schema(toolset, new=True),
        action="add",
        annotations=ToolAnnotations(read_only=False, destructive=False, idempotent=False, open_world=False),
        atomic=(),
    )
    tool.single_use_state = "create" in toolset.confirm
    return tool


def create_row(toolset: "ModelToolset", ctx: Context, arguments: dict[str, Any]) -> Any:
    """Add the row.

    Raises:
        ToolError: the row is invalid or the write is refused.
    """
    return CreateOperation(toolset, ctx, arguments).run()
