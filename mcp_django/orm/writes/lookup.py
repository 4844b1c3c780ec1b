"""The row that a write is about: found among those that the caller may see, on the database that is written to."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ObjectDoesNotExist
from django.db import connections
from django.db.models import Model

from mcp_django.orm.writes.confirmation import in_line
from mcp_django.protocol.errors import NotFound, ToolError
from mcp_django.server.context.context import Context

if TYPE_CHECKING:
    from mcp_django.orm.toolset import ModelToolset


def find(
    toolset: "ModelToolset", ctx: Context, pks: list[Any], *, using: str, may: Callable[..., bool], lock: bool = False
) -> list[Any]:
    """The rows of these primary keys, in their order; locked until the transaction ends, where the database can. `may`
    is a hook of the toolset, asked for each row.

    Raises NotFound, in the same words for rows that are not there and for those that the caller may not see; ToolError
    where they may be seen, and no more.
    """
    codec = toolset.exposure.pk.codec
    wanted = []
    for pk in pks:
        try:
            wanted.append(pk if codec is None else codec.decode(pk))
        except ValueError:
            raise absent(toolset, pk) from None
    if lock:
        hold(toolset, wanted, using=using)
    found = {row.pk: row for row in toolset.get_queryset(ctx).using(using).filter(pk__in=wanted)}
    rows = []
    for pk, value in zip(pks, wanted, strict=True):
        row = found.get(value)
        if row is None or not (may(ctx, row) or toolset.has_view_permission(ctx, row)):
            raise absent(toolset, pk)
        if not may(ctx, row):
            raise ToolError(f"You may not do this to {label_of(toolset, ctx, row)}")
        rows.append(row)
    return rows


def hold(toolset: "ModelToolset", pks: list[Any], *, using: str) -> None:
    """Lock the rows of these primary keys until the transaction ends, where the database can."""
    if connections[using].features.has_select_for_update:
        # By themselves: a project's queryset may hold joins and groups that cannot be locked.
        held = toolset.model._base_manager.using(using).select_for_update().order_by("pk")
        list(held.filter(pk__in=pks).values_list("pk"))


def absent(toolset: "ModelToolset", pk: Any) -> NotFound:
    """What is said of a row that is not there, or not for this caller."""
    return NotFound(f"There is no {toolset.model._meta.verbose_name} with the primary key {str(pk)[:100]!r}")


def label_of(toolset: "ModelToolset", ctx: Context, row: Model) -> str:
    """How a row is called for people and models: by what the toolset shows of it."""
    path, value = toolset.label_path, None
    if path is not None and toolset.has_view_permission(ctx, row):
        try:
            value = getattr(row, path)
        except (AttributeError, ObjectDoesNotExist):
            value = None
    name = str(toolset.model._meta.verbose_name)
    return f"{name} {row.pk}" if value in (None, "", row.pk) else f"{name} {in_line(str(value))} ({row.pk})"
