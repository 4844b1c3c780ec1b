"""Rows as `get` returns them, with their inline rows and versions."""

from collections.abc import Sequence

from django.db.models import Model

from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.declaration.inlines import ModelInline
from mcp_django.orm.queries.serialize import get_plan, read_rows
from mcp_django.orm.queries.visibility import VisibilityScope
from mcp_django.orm.rows.versions import VERSION_KEY, build_version_expressions, compute_version, is_versioned
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.server.context.context import Context


def serialize_written_row(toolset: BaseModelToolset, ctx: Context, row: Model, *, using: str) -> JSONObject:
    """Return `pk` and `item` of a written row.

    The item is None if the caller may not view rows, or if the write moved the row out of the caller's visible rows.
    """
    pk = toolset.exposure.pk.codec.serialize(row.pk)
    item = None

    rows = toolset.get_queryset(ctx).using(using).filter(pk=row.pk).order_by()
    if toolset.has_view_permission(ctx, row):
        scope = VisibilityScope(toolset, ctx, using)
        plan = get_plan(scope)
        items, values = read_rows(scope, rows[:1], plan, build_version_expressions(scope))
        if items:
            item = complete_row(toolset, ctx, items[0], row.pk, values[0][len(plan.columns) :], using=using)
    return {"pk": pk, "item": item}


def complete_row(
    toolset: BaseModelToolset,
    ctx: Context,
    item: JSONObject,
    pk: object,
    values: Sequence[object],
    *,
    using: str,
    with_inlines: bool = True,
) -> JSONObject:
    """Add the inline rows, if requested, and the version made of `values` to a row."""
    if with_inlines:
        for inline in toolset.inline_toolsets:
            if inline.can_view(ctx):
                item[inline.name] = _serialize_inline_rows(inline, ctx, pk, using)
    if is_versioned(toolset):
        item[VERSION_KEY] = compute_version(toolset, pk, values)
    return item


def _serialize_inline_rows(inline: ModelInline, ctx: Context, parent_pk: object, using: str) -> JSONObject:
    rows = inline.get_queryset(ctx).using(using).filter(**{inline.foreign_key.name: parent_pk})
    rows = rows.order_by(*(inline.ordering or ("pk",)))
    scope = VisibilityScope(inline, ctx, using)
    items, _ = read_rows(scope, rows[: inline.max_num + 1], get_plan(scope))
    return {"items": items[: inline.max_num], "more": len(items) > inline.max_num}
