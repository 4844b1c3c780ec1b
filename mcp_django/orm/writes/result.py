"""Result of a write: the row as `get` returns it, if the caller may see it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.db.models import Model

from mcp_django.orm.queries.serialize import get_plan, read_rows
from mcp_django.orm.queries.visibility import VisibilityScope
from mcp_django.orm.writes.etags import VERSION_KEY, build_version_expressions, compute_version, is_versioned
from mcp_django.server.context.context import Context

if TYPE_CHECKING:
    from mcp_django.orm.toolset import ModelToolset


def serialize_written_row(toolset: "ModelToolset", ctx: Context, row: Model, *, using: str) -> dict[str, Any]:
    """Return `pk` and `item` of a written row.

    The item is None if the caller may not view rows, or if the write moved the row out of the caller's visible rows.
    """
    codec = toolset.exposure.pk.codec
    pk = row.pk if codec is None else codec.serialize(row.pk)
    item = None

    rows = toolset.get_queryset(ctx).using(using).filter(pk=row.pk).order_by()
    if toolset.has_view_permission(ctx, row):
        scope = VisibilityScope(toolset, ctx, using)
        plan = get_plan(toolset, scope, None)
        items, values = read_rows(scope, rows[:1], plan, build_version_expressions(toolset))
        if items:
            item = complete_row(toolset, ctx, items[0], row.pk, values[0][len(plan.columns) :], using=using)
    return {"pk": pk, "item": item}


def complete_row(
    toolset: "ModelToolset",
    ctx: Context,
    item: dict[str, Any],
    pk: Any,
    values: Sequence[Any],
    *,
    using: str,
    with_inlines: bool = True,
) -> dict[str, Any]:
    """Add the inline rows, if requested, and the version made of `values` to a row."""
    if with_inlines:
        for inline in toolset.inline_toolsets:
            if inline.can_view(ctx):
                item[inline.name] = inline.serialize_rows_below(ctx, pk, using)
    if is_versioned(toolset):
        item[VERSION_KEY] = compute_version(toolset, pk, values)
    return item
