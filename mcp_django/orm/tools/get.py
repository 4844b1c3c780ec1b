"""`get`: one row by its primary key."""

from typing import TYPE_CHECKING, Any

from mcp_django.orm.fields.exposed_fields import Purpose
from mcp_django.orm.queries.serialize import get_plan, read_rows, select_columns
from mcp_django.orm.schema import Schema, fields_schema, object_schema, value_schema
from mcp_django.orm.tools.base import ReadQuery, build_model_tool, get_verbose_name
from mcp_django.orm.writes.etags import build_version_expressions
from mcp_django.orm.writes.result import complete_row
from mcp_django.orm.writes.schema import full_row_schema
from mcp_django.protocol.errors import NotFound
from mcp_django.server.context.context import Context
from mcp_django.server.primitives.base import Tool

if TYPE_CHECKING:
    from mcp_django.orm.toolset import ModelToolset


def build(toolset: "ModelToolset") -> Tool:
    """Build the tool that gets one row."""
    return build_model_tool(
        toolset,
        "get",
        get_row,
        description=f"Get one {get_verbose_name(toolset.model)} by its primary key.",
        arguments=arguments_schema,
        result=result_schema,
    )


def arguments_schema(toolset: "ModelToolset") -> Schema:
    """Return the input schema of `get`."""
    return object_schema({"pk": pk_schema(toolset), "fields": fields_schema(toolset)}, ("pk",))


def pk_schema(toolset: "ModelToolset") -> Schema:
    """Return the schema of the primary key argument."""
    return {
        **value_schema(toolset.exposure.pk),
        "description": f"The primary key of the {get_verbose_name(toolset.model)}",
    }


def result_schema(toolset: "ModelToolset") -> Schema:
    """Return the output schema of `get`: row, inlines, and version if writable."""
    row, definitions = full_row_schema(toolset)
    return {**row, "$defs": definitions} if definitions else row


def get_row(toolset: "ModelToolset", ctx: Context, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the row.

    Raises:
        NotFound: the row is missing or hidden from the caller.
    """
    with ReadQuery(toolset, ctx) as query:
        scope = query.scope
        names = arguments.get("fields")
        if names is not None:
            names = {scope.resolve_field(name, Purpose.READ).name for name in names}

        key = parse_key(toolset, arguments["pk"])
        if toolset.is_overridden("has_view_permission"):
            obj = query.rows.filter(pk=key).first()
            if obj is None or not toolset.has_view_permission(ctx, obj):
                raise build_not_found(toolset, arguments["pk"])

        plan = get_plan(toolset, scope, names)
        columns = build_version_expressions(toolset)
        rows = select_columns(scope, query.rows, plan, columns).filter(pk=key)[:1]
        items, values = read_rows(scope, rows, plan, columns)
        if not items:
            raise build_not_found(toolset, arguments["pk"])

        version_values = values[0][len(plan.columns) :]
        return complete_row(
            toolset, ctx, items[0], values[0][0], version_values, using=query.database, with_inlines=names is None
        )


def parse_key(toolset: "ModelToolset", value: Any) -> Any:
    """Parse a primary key from JSON.

    Raises:
        NotFound: the value is not a valid key.
    """
    codec = toolset.exposure.pk.codec
    assert codec is not None  # a primary key is always a column
    try:
        return codec.decode(value)
    except ValueError:
        raise build_not_found(toolset, value) from None


def build_not_found(toolset: "ModelToolset", value: Any) -> NotFound:
    """Build the error for a missing or hidden row."""
    return NotFound(f"There is no {get_verbose_name(toolset.model)} with the primary key {str(value)[:100]!r}")
