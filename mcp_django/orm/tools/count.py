"""`count`: the number of matching rows."""

from typing import TYPE_CHECKING, Any

from mcp_django.orm.queries.filters import filtered, searched
from mcp_django.orm.schema import Schema, filters_schema, object_schema, search_schema
from mcp_django.orm.tools.base import Reading, build_verb, named
from mcp_django.server.context.context import Context
from mcp_django.server.primitives.base import Tool

if TYPE_CHECKING:
    from mcp_django.orm.toolset import ModelToolset


def build(toolset: "ModelToolset") -> Tool:
    """Build the tool that counts rows."""
    return build_verb(
        toolset,
        "count",
        count_rows,
        description=f"Count {named(toolset.model, plural=True)}, filtered and searched as for list.",
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
    with Reading(toolset, ctx) as reading:
        rows = filtered(reading.scope, reading.rows, arguments.get("filters"))
        return {"count": searched(reading.scope, rows, arguments.get("search")).order_by().count()}
