"""Lookup of the rows to write: visible rows, on the database for writes."""

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
    """Return the rows with these primary keys, in the same order.

    `has_permission` is a hook of the toolset, called for each row. With `lock` the rows are locked until the
    transaction ends, if the database supports it.

    Raises:
        NotFound: a row is missing or hidden; the message is the same for both.
        ToolError: the caller may see the row, but has no permission.
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
    """Lock rows until the transaction ends, if the database supports it."""
    if connections[using].features.has_select_for_update:
        # Use a separate query: a project's queryset may contain joins and groups that cannot be locked.
        held = toolset.model._base_manager.using(using).select_for_update().order_by("pk")
        list(held.filter(pk__in=pks).values_list("pk"))


def absent(toolset: "ModelToolset", pk: Any) -> NotFound:
    """Build the error for a missing or hidden row."""
    return NotFound(f"There is no {toolset.model._meta.verbose_name} with the primary key {str(pk)[:100]!r}")


def label_of(toolset: "ModelToolset", ctx: Context, row: Model) -> str:
    """Return a row's label for people and models, made of shown values only."""
    path, value = toolset.label_path, None
    if path is not None and toolset.has_view_permission(ctx, row):
        try:
            value = getattr(row, path)
        except (AttributeError, ObjectDoesNotExist):
            value = None

    name = str(toolset.model._meta.verbose_name)
    return f"{name} {row.pk}" if value in (None, "", row.pk) else f"{name} {in_line(str(value))} ({row.pk})"
