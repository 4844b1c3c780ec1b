"""`count`: the number of matching rows."""

from typing import TYPE_CHECKING, Any

from mcp_django.orm.queries.filters import apply_filters, apply_search
from mcp_django.orm.schema import Schema, filters_schema, object_schema, search_schema
from mcp_django.orm.tools.base import ReadQuery, build_model_tool, get_verbose_name
from mcp_django.server.context.context import Context
from mcp_django.server.primitives.base import Tool

if TYPE_CHECKING:
    from mcp_django.orm.toolset import ModelToolset


def build(toolset: "ModelToolset") -> Tool:
    """Build the tool that counts rows."""
    return build_model_tool(
        toolset,
        "count",
        count_rows,
        description=f"Count {get_verbose_name(toolset.model, plural=True)}, filtered and searched as for list.",
        arguments=arguments_schema,
        result=result_schema,
    )


def arguments_schema(toolset: "ModelToolset") -> Schema:
    """Return the input schema of `count`."""
    return object_schema({"filters": filters_schema(toolset), **search_schema(toolset)})


def result_schema(toolset: "ModelToolset") -> Schema:
    """Return the output schema of `count`."""
    return object_schema({"count": {"type": "integer"}}, ("count",))


def count_rows(toolset: "ModelToolset", ctx: Context, arguments: dict[str, Any]) -> dict[str, Any]:
    """Count the matching rows that the caller may see."""
    with ReadQuery(toolset, ctx) as query:
        rows = apply_filters(query.scope, query.rows, arguments.get("filters"))
        return {"count": apply_search(query.scope, rows, arguments.get("search")).order_by().count()}
