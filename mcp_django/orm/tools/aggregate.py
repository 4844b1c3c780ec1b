"""`aggregate`: count, sum, average, minimum and maximum by groups."""

from mcp_django.orm.arguments import describe_argument
from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.queries.aggregation import AGGREGATE_FUNCTIONS, Aggregation
from mcp_django.orm.queries.filters import RowConditions
from mcp_django.orm.queries.visibility import MAX_GROUP_FIELDS, MAX_METRICS, MAX_ORDER_FIELDS
from mcp_django.orm.row_permissions import Rows
from mcp_django.orm.schema import (
    NAME_SCHEMA,
    Schema,
    filters_schema,
    format_field_names,
    object_schema,
    result_object_schema,
    search_schema,
)
from mcp_django.orm.tools.base import ReadQuery
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.server.context.context import Context

COUNT_METRICS = ({"function": "count"},)


def arguments_schema(toolset: BaseModelToolset) -> Schema:
    """Return the input schema of `aggregate`."""
    names = format_field_names(toolset, toolset.exposure.ordering)
    group_text = describe_argument(toolset, "group_by")["description"]
    metric = object_schema(
        {
            "function": {"type": "string", "enum": list(AGGREGATE_FUNCTIONS)},
            "field": NAME_SCHEMA,
            "distinct": {"type": "boolean"},
            "name": {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_]{0,59}$"},
        },
        ("function",),
    )

    properties: Schema = {
        "group_by": {
            "type": "array",
            "items": NAME_SCHEMA,
            "maxItems": MAX_GROUP_FIELDS,
            "description": f"{group_text}{names}",
        },
        "metrics": {
            "type": "array",
            "items": metric,
            "minItems": 1,
            "maxItems": MAX_METRICS,
            **describe_argument(toolset, "metrics"),
        },
        "filters": filters_schema(toolset),
        **search_schema(toolset),
        "having": {"type": "object", "maxProperties": MAX_METRICS, **describe_argument(toolset, "having")},
        "order_by": {
            "type": "array",
            "items": NAME_SCHEMA,
            "maxItems": MAX_ORDER_FIELDS,
            "description": "Metrics or groups; descending with a leading -",
        },
        "limit": {"type": "integer", "minimum": 1, "maximum": toolset.max_limit, "default": toolset.max_limit},
    }
    return object_schema(properties)


def result_schema(toolset: BaseModelToolset) -> Schema:
    """Return the output schema of `aggregate`."""
    properties: Schema = {
        "groups": {
            "type": "array",
            "items": {"type": "object"},
            "description": "Fields of group_by and metrics, by name",
        },
        "truncated": {"type": "boolean", "description": "True if there are more groups"},
    }
    return result_object_schema(properties, ("groups", "truncated"))


def aggregate_rows(toolset: BaseModelToolset, ctx: Context, arguments: JSONObject) -> JSONObject:
    """Return the groups of the rows that the caller may see."""
    given = arguments.get
    limit = int(given("limit", toolset.max_limit))
    with ReadQuery(toolset, ctx) as query:
        aggregation = Aggregation(query.scope, given("group_by") or (), given("metrics") or COUNT_METRICS)
        rows = RowConditions.from_arguments(arguments).apply(query.scope, query.rows)
        group_rows = list(aggregation.apply(_make_groupable(rows), given("having"), given("order_by"))[: limit + 1])
    return {
        "groups": [aggregation.serialize_row(row) for row in group_rows[:limit]],
        "truncated": len(group_rows) > limit,
    }


def _make_groupable(rows: Rows) -> Rows:
    """Return the same rows as a queryset that can be grouped.

    DISTINCT and annotations of a queryset would change its groups.
    """
    query = rows.query
    if not (query.distinct or query.combinator or query.annotation_select or query.group_by is not None):
        return rows
    base: Rows = rows.model._base_manager.using(rows.db).all()
    return base.filter(pk__in=rows.order_by().values("pk"))
