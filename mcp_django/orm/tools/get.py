"""`get`: one row by its primary key."""

from typing import Any

from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.queries.serialize import get_plan, read_rows, select_columns
from mcp_django.orm.schema import Schema, fields_schema, object_schema, value_schema
from mcp_django.orm.tools.base import ReadQuery
from mcp_django.orm.writes.etags import build_version_expressions
from mcp_django.orm.writes.lookup import build_not_found, parse_key
from mcp_django.orm.writes.result import complete_row
from mcp_django.orm.writes.schema import full_row_schema
from mcp_django.server.context.context import Context


def arguments_schema(toolset: BaseModelToolset) -> Schema:
    """Return the input schema of `get`."""
    text = f"The primary key of the {toolset.model._meta.verbose_name}"
    pk = {**value_schema(toolset.exposure.pk), "description": text}
    return object_schema({"pk": pk, "fields": fields_schema(toolset)}, ("pk",))


def result_schema(toolset: BaseModelToolset) -> Schema:
    """Return the output schema of `get`: row, inlines, and version if writable."""
    row, definitions = full_row_schema(toolset)
    return {**row, "$defs": definitions} if definitions else row


def get_row(toolset: BaseModelToolset, ctx: Context, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the row.

    Raises:
        NotFound: the row is missing or hidden from the caller.
    """
    with ReadQuery(toolset, ctx) as query:
        scope = query.scope
        plan = get_plan(scope, arguments.get("fields"))
        key = parse_key(toolset, arguments["pk"])
        if toolset.is_overridden("has_view_permission"):
            obj = query.rows.filter(pk=key).first()
            if obj is None or not toolset.has_view_permission(ctx, obj):
                raise build_not_found(toolset, arguments["pk"])

        columns = build_version_expressions(toolset)
        rows = select_columns(scope, query.rows, plan, columns).filter(pk=key)[:1]
        items, values = read_rows(scope, rows, plan, columns)
        if not items:
            raise build_not_found(toolset, arguments["pk"])

        pk, version_values = values[0][0], values[0][len(plan.columns) :]
        with_inlines = arguments.get("fields") is None
        return complete_row(toolset, ctx, items[0], pk, version_values, using=query.database, with_inlines=with_inlines)
