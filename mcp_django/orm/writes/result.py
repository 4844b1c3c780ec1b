"""Result of a write: the row as `get` returns it, if the caller may see it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.db.models import Model

from mcp_django.orm.queries.serialize import plan_of, read
from mcp_django.orm.queries.visibility import Scope
from mcp_django.orm.writes.etags import VERSION, is_versioned, version, version_columns
from mcp_django.server.context.context import Context

if TYPE_CHECKING:
    from mcp_django.orm.toolset import ModelToolset


def shown(toolset: "ModelToolset", ctx: Context, row: Model, *, using: str) -> dict[str, Any]:
    """Return `pk` and `item` of a written row.

    The item is None if the caller may not view rows, or if the write moved the row out of the caller's visible rows.
    """
    codec = toolset.exposure.pk.codec
    pk = row.pk if codec is None else codec.shown(row.pk)
    item = None

    rows = toolset.get_queryset(ctx).using(using).filter(pk=row.pk).order_by()
    if toolset.has_view_permission(ctx, row):
        scope = Scope(toolset, ctx, using)
        plan = plan_of(toolset, scope, None)
        items, values = read(scope, rows[:1], plan, version_columns(toolset))
        if items:
            item = completed(toolset, ctx, items[0], row.pk, values[0][len(plan.columns) :], using=using)
    return {"pk": pk, "item": item}


def completed(
    toolset: "ModelToolset",
    ctx: Context,
    item: dict[str, Any],
    pk: Any,
    values: Sequence[Any],
    *,
    using: str,
    whole: bool = True,
) -> dict[str, Any]:
    """Add the inline rows, if requested, and the version made of `values` to a row."""
    if whole:
        for inline in toolset.inline_toolsets:
            if inline.lets_view(ctx):
                item[inline.name] = inline.shown_below(ctx, pk, using)
    if is_versioned(toolset):
        item[VERSION] = version(toolset, pk, values)
    return item
