"""The row that a write is about: found among those that the caller may see, on the database that is written to."""

from typing import TYPE_CHECKING, Any

from django.core.exceptions import ObjectDoesNotExist
from django.db import connections, router
from django.db.models import Model

from ...protocol.errors import NotFound, ToolError
from ...server.context import Context

if TYPE_CHECKING:
    from ..toolset import ModelToolset


def database_of(toolset: "ModelToolset") -> str:
    """The alias of the database that the model's rows are written to."""
    return router.db_for_write(toolset.model)


def find(toolset: "ModelToolset", ctx: Context, pks: list[Any], *, using: str, lock: bool = False) -> list[Any]:
    """The rows of these primary keys, in their order; locked until the transaction ends, where the database can.

    Raises NotFound, in the same words for rows that are not there and for those that the caller may not see.
    """
    codec = toolset.exposure.pk.codec
    wanted = []
    for pk in pks:
        try:
            wanted.append(pk if codec is None else codec.decode(pk))
        except ValueError:
            raise missing(toolset, pk) from None
    if lock and connections[using].features.has_select_for_update:
        # By themselves: a project's queryset may hold joins and groups that cannot be locked.
        held = toolset.model._base_manager.using(using).select_for_update().order_by("pk")
        list(held.filter(pk__in=wanted).values_list("pk"))
    found = {row.pk: row for row in toolset.get_queryset(ctx).using(using).filter(pk__in=wanted)}
    rows = []
    for pk, value in zip(pks, wanted, strict=True):
        row = found.get(value)
        if row is None or not (toolset.has_view_permission(ctx, row) or toolset.has_change_permission(ctx, row)):
            raise missing(toolset, pk)
        rows.append(row)
    return rows


def missing(toolset: "ModelToolset", pk: Any) -> NotFound:
    """What is said of a row that is not there, or not for this caller."""
    return NotFound(f"There is no {toolset.model._meta.verbose_name} with pk {str(pk)[:100]}")


def refuse(toolset: "ModelToolset", what: str) -> ToolError:
    """What is said when the caller may see a row, and not do this to it."""
    return ToolError(f"You may not {what} this {toolset.model._meta.verbose_name}")


def label_of(toolset: "ModelToolset", row: Model) -> str:
    """How a row is called for people and models: by what the toolset shows of it."""
    path = toolset.label_path
    value = None
    if path is not None:
        try:
            value = getattr(row, path)
        except (AttributeError, ObjectDoesNotExist):
            value = None
    name = str(toolset.model._meta.verbose_name)
    return f"{name} {row.pk}" if value in (None, "") else f"{name} {value!s} ({row.pk})"
