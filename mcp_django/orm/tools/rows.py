"""`list`, `count` and `get`: rows in pages, their number, and one row."""

from mcp_django.orm.arguments import describe_argument
from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.queries.filters import RowConditions
from mcp_django.orm.queries.pagination import RowOrder, digest_query
from mcp_django.orm.queries.serialize import get_plan, read_rows, select_columns
from mcp_django.orm.rows.items import complete_row
from mcp_django.orm.rows.lookup import build_not_found, parse_key
from mcp_django.orm.rows.schema import brief_row_schema, full_row_schema
from mcp_django.orm.rows.versions import build_version_expressions
from mcp_django.orm.schema import (
    Schema,
    fields_schema,
    filters_schema,
    object_schema,
    order_schema,
    result_object_schema,
    search_schema,
    value_schema,
)
from mcp_django.orm.tools.base import ReadQuery
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.schema import any_of_types
from mcp_django.server.context.context import Context


def list_arguments_schema(toolset: BaseModelToolset) -> Schema:
    """Return the input schema of `list`."""
    properties: Schema = {
        "filters": filters_schema(toolset),
        **search_schema(toolset),
        "order_by": order_schema(toolset),
        "fields": fields_schema(toolset),
        "limit": {"type": "integer", "minimum": 1, "maximum": toolset.max_limit, "default": toolset.page_size},
        "cursor": {"type": "string", **describe_argument(toolset, "cursor")},
        "with_total": {"type": "boolean", **describe_argument(toolset, "with_total")},
    }
    return object_schema(properties)


def list_result_schema(toolset: BaseModelToolset) -> Schema:
    """Return the output schema of `list`."""
    row, definitions = brief_row_schema(toolset)
    properties: Schema = {
        "items": {"type": "array", "items": row},
        "next_cursor": any_of_types("string", "null"),
        "total": any_of_types("integer", "null"),
    }
    return result_object_schema(properties, ("items", "next_cursor"), definitions)


def list_rows(toolset: BaseModelToolset, ctx: Context, arguments: JSONObject) -> JSONObject:
    """Return one page of rows."""
    given = arguments.get
    limit = int(given("limit", toolset.page_size))
    with ReadQuery(toolset, ctx) as query:
        scope = query.scope
        plan = get_plan(scope, given("fields"))
        order = RowOrder(scope, given("order_by"))
        conditions = RowConditions.from_arguments(arguments)
        query_digest = digest_query(conditions._asdict())
        cursor = given("cursor")
        cursor_values = None if cursor is None else order.read_cursor(query_digest, cursor)

        total = conditions.apply(scope, query.rows).order_by().count() if given("with_total") else None
        columns = order.columns
        if conditions.search and toolset.is_overridden("get_search_results"):
            # The hook of the project expects model instances, so select columns afterwards.
            rows = order.apply(conditions.apply(scope, query.rows))
        else:
            rows = conditions.apply(scope, select_columns(scope, query.rows, plan, columns, order=order))

        if cursor_values is not None:
            rows = rows.filter(order.build_after_condition(cursor_values))

        items, values = read_rows(scope, rows[: limit + 1], plan, columns, limit=limit)
        has_more = len(values) > limit
        key = values[limit - 1][len(plan.columns) :] if has_more else ()
        return {
            "items": items,
            "next_cursor": order.sign_cursor(query_digest, key) if has_more else None,
            "total": total,
        }


def count_arguments_schema(toolset: BaseModelToolset) -> Schema:
    """Return the input schema of `count`."""
    return object_schema({"filters": filters_schema(toolset), **search_schema(toolset)})


def count_result_schema(toolset: BaseModelToolset) -> Schema:
    """Return the output schema of `count`."""
    return result_object_schema({"count": {"type": "integer"}}, ("count",))


def count_rows(toolset: BaseModelToolset, ctx: Context, arguments: JSONObject) -> JSONObject:
    """Count the matching rows that the caller may see."""
    with ReadQuery(toolset, ctx) as query:
        rows = RowConditions.from_arguments(arguments).apply(query.scope, query.rows)
        return {"count": rows.order_by().count()}


def get_arguments_schema(toolset: BaseModelToolset) -> Schema:
    """Return the input schema of `get`."""
    return object_schema({"pk": value_schema(toolset.exposure.pk), "fields": fields_schema(toolset)}, ("pk",))


def get_result_schema(toolset: BaseModelToolset) -> Schema:
    """Return the output schema of `get`: row, inlines, and version if writable."""
    row, definitions = full_row_schema(toolset)
    return {**row, "$defs": definitions} if definitions else row


def get_row(toolset: BaseModelToolset, ctx: Context, arguments: JSONObject) -> JSONObject:
    """Return the row.

    Raises:
        NotFound: the row is missing or hidden from the caller.
    """
    with ReadQuery(toolset, ctx) as query:
        scope = query.scope
        plan = get_plan(scope, arguments.get("fields"))
        key = parse_key(toolset, arguments["pk"])
        if toolset.decides_by_row:
            obj = query.rows.filter(pk=key).first()
            if obj is None or not toolset.has_view_permission(ctx, obj):
                raise build_not_found(toolset, arguments["pk"])

        columns = build_version_expressions(scope)
        rows = select_columns(scope, query.rows, plan, columns).filter(pk=key)[:1]
        items, values = read_rows(scope, rows, plan, columns)
        if not items:
            raise build_not_found(toolset, arguments["pk"])

        pk, version_values = values[0][0], values[0][len(plan.columns) :]
        with_inlines = arguments.get("fields") is None
        return complete_row(toolset, ctx, items[0], pk, version_values, using=query.database, with_inlines=with_inlines)
