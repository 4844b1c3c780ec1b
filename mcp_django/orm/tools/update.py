"""`update`: changes of some values of a row."""

from typing import TYPE_CHECKING, Any

from mcp_django.orm.tools.base import build_model_tool, get_verbose_name
from mcp_django.orm.writes.save import UpdateOperation
from mcp_django.orm.writes.schema import saved_schema, update_schema
from mcp_django.protocol.types import ToolAnnotations
from mcp_django.server.context.context import Context
from mcp_django.server.primitives.base import Tool

if TYPE_CHECKING:
    from mcp_django.orm.toolset import ModelToolset


def build(toolset: "ModelToolset") -> Tool:
    """Build the tool that changes a row."""
    tool = build_model_tool(
        toolset,
        "update",
        update_row,
        description=f"Change values of one {get_verbose_name(toolset.model)}; what is not named stays as it is.",
        arguments=update_schema,
        result=lambda toolset: saved_schema(toolset, new=False),
        action="change",
        annotations=ToolAnnotations(read_only=False, destructive=True, idempotent=False, open_world=False),
        atomic=(),
    )
    tool.single_use_state = "update" in toolset.confirm
    return tool


def update_row(toolset: "ModelToolset", ctx: Context, arguments: dict[str, Any]) -> Any:
    """Change the row.

    Raises:
        ToolError: the new values are invalid or the write is refused.
    """
    return UpdateOperation(toolset, ctx, arguments).run()
