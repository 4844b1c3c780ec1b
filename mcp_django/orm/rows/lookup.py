"""Rows by their primary keys, with their labels and the errors for missing ones."""

from collections.abc import Callable

from django.core.exceptions import ObjectDoesNotExist
from django.db import connections
from django.db.models import Model

from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.display_text import clean_line
from mcp_django.protocol.errors import NotFound, ToolError
from mcp_django.server.context.context import Context

_MAX_VALUE_CHARACTERS = 200
"""Maximum length in characters of a value in the question."""


def format_on_one_line(value: object) -> str:
    """Format a text or any JSON as one short line.

    A value can then not imitate other lines of a question.
    """
    return clean_line(value if isinstance(value, str) else jsonrpc.dumps(value).decode(), _MAX_VALUE_CHARACTERS)


def find_rows(
    toolset: BaseModelToolset,
    ctx: Context,
    pks: list[object],
    *,
    using: str,
    has_permission: Callable[..., bool],
    lock: bool = False,
) -> list[Model]:
    """Return the rows with these primary keys, in the same order.

    `has_permission` is a hook of the toolset, called for each row. With `lock` the rows are locked until the
    transaction ends, if the database supports it.

    Raises:
        NotFound: a row is missing or hidden; the message is the same for both.
        ToolError: the caller may see the row, but has no permission.
    """
    keys = [parse_key(toolset, pk) for pk in pks]
    if lock:
        lock_rows(toolset, keys, using=using)

    rows_by_key = {row.pk: row for row in toolset.get_queryset(ctx).using(using).filter(pk__in=keys)}
    rows: list[Model] = []
    for pk, value in zip(pks, keys, strict=True):
        row = rows_by_key.get(value)
        if row is None or not (has_permission(ctx, row) or toolset.has_view_permission(ctx, row)):
            raise build_not_found(toolset, pk)
        if not has_permission(ctx, row):
            raise ToolError(f"You may not do this to {get_label(toolset, ctx, row)}")
        rows.append(row)
    return rows


def parse_key(toolset: BaseModelToolset, pk: object) -> object:
    """Parse a primary key from JSON.

    Raises:
        NotFound: the value is not a valid key.
    """
    try:
        return toolset.exposure.pk.codec.decode(pk)
    except ValueError:
        raise build_not_found(toolset, pk) from None


def lock_rows(toolset: BaseModelToolset, pks: list[object], *, using: str) -> None:
    """Lock rows until the transaction ends, if the database supports it."""
    if connections[using].features.has_select_for_update:
        # Use a separate query: a project's queryset may contain joins and groups that cannot be locked.
        locked = toolset.model._base_manager.using(using).select_for_update().order_by("pk")
        list(locked.filter(pk__in=pks).values_list("pk"))


def build_not_found(toolset: BaseModelToolset, pk: object) -> NotFound:
    """Build the error for a missing or hidden row."""
    return NotFound(f"There is no {toolset.model._meta.verbose_name} with the primary key {str(pk)[:100]!r}")


def get_label(toolset: BaseModelToolset, ctx: Context, row: Model) -> str:
    """Return a row's label for people and models, made of shown values only."""
    path, value = toolset.label_path, None
    if path is not None and toolset.has_view_permission(ctx, row):
        try:
            value = getattr(row, path)
        except (AttributeError, ObjectDoesNotExist):
            value = None

    name, pk = str(toolset.model._meta.verbose_name), format_on_one_line(str(row.pk))
    return f"{name} {pk}" if value in (None, "", row.pk) else f"{name} {format_on_one_line(str(value))} ({pk})"
