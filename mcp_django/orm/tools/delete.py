"""`delete`: deletion of one row."""

from typing import TYPE_CHECKING, Any

from mcp_django.orm.tools.base import build_model_tool, get_verbose_name
from mcp_django.orm.writes.delete import DeleteOperation
from mcp_django.orm.writes.schema import delete_schema, deleted_schema
from mcp_django.protocol.types import ToolAnnotations
from mcp_django.server.context.context import Context
from mcp_django.server.primitives.base import Tool

if TYPE_CHECKING:
    from mcp_django.orm.toolset import ModelToolset


def build(toolset: "ModelToolset") -> Tool:
    """Build the tool that deletes a row."""
    tool = build_model_tool(
        toolset,
        "delete",
        delete_row,
        description=f"Delete one {get_verbose_name(toolset.model)}. With dry_run it says what would be deleted "
        "with it.",
        arguments=delete_schema,
        result=deleted_schema,
        action="delete",
        annotations=ToolAnnotations(read_only=False, destructive=True, idempotent=True, open_world=False),
        atomic=(),
    )
    tool.single_use_state = "delete" in toolset.confirm
    return tool


def delete_row(toolset: "ModelToolset", ctx: Context, arguments: dict[str, Any]) -> Any:
    """Delete the row.

    Raises:
        ToolError: the deletion is refused.
    """
    return DeleteOperation(toolset, ctx, arguments).run()
