"""`delete`: deletion of one row with its cascades, if Django's rules permit it."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.db.models import Model

from mcp_django.orm import admin_log
from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.writes.base import ROWS_CHANGED_MESSAGE, WriteOperation
from mcp_django.orm.writes.cascades import DeletionEffects, collect_deletion_effects
from mcp_django.orm.writes.etags import check_version
from mcp_django.orm.writes.lookup import find_rows, get_label
from mcp_django.protocol.errors import ToolError
from mcp_django.server.context.context import Context

HIDDEN_ROWS_NAME = "other rows"
"""Name for rows of models that the caller may not view."""


class DeleteOperation(WriteOperation):
    """Deletion of a row."""

    name = "delete"
    _confirmed_effects: DeletionEffects | None = None
    """Effects of the deletion that the user confirmed."""

    def build_question(self) -> tuple[str, Sequence[Model]]:
        """See WriteOperation."""
        row = self._find_row(lock=False)
        effects = self._confirmed_effects = self._check_deletion(row)
        text = f"Delete {get_label(self.toolset, self.ctx, row)}?"
        if counts_text := _format_counts(self._count_by_name(effects.deleted)):
            text += f"\nDeleted with it: {counts_text}"
        if counts_text := _format_counts(self._count_by_name(effects.changed)):
            text += f"\nLosing their reference to it: {counts_text}"
        return text, (row,)

    def execute(self) -> dict[str, Any]:
        """See WriteOperation."""
        toolset, ctx = self.toolset, self.ctx
        row = self._find_row(lock=True)
        self.check_agreed_versions((row,))
        effects = self._check_deletion(row)
        confirmed_effects = self._confirmed_effects
        if confirmed_effects is not None and (confirmed_effects.deleted, confirmed_effects.changed) != (
            effects.deleted,
            effects.changed,
        ):
            raise ToolError(ROWS_CHANGED_MESSAGE)

        result = {
            "pk": toolset.exposure.pk.codec.serialize(row.pk),
            "label": get_label(toolset, ctx, row),
            "deleted": dict(self._count_by_name(effects.deleted)),
            "changed": dict(self._count_by_name(effects.changed)),
            "dry_run": self.dry_run,
        }

        if not self.dry_run:
            toolset.log_write(ctx, [row], admin_log.DELETION, "")  # a deleted row has no primary key
        toolset.delete_model(ctx, row)
        return result

    def _find_row(self, *, lock: bool) -> Model:
        toolset, ctx = self.toolset, self.ctx
        has_permission = toolset.has_delete_permission
        row: Model
        (row,) = find_rows(
            toolset, ctx, [self.arguments["pk"]], using=self.using, has_permission=has_permission, lock=lock
        )
        check_version(toolset, row, self.arguments.get("if_match"))
        return row

    def _check_deletion(self, row: Model) -> DeletionEffects:
        return check_deletion(self.toolset, self.ctx, row, using=self.using)

    def _count_by_name(self, counted: Mapping[type[Model], int]) -> Counter[str]:
        return _count_by_name(self.toolset, self.ctx, counted)


def check_deletion(toolset: BaseModelToolset, ctx: Context, row: Model, *, using: str) -> DeletionEffects:
    """Check that a row can be deleted, and return the effects.

    Raises:
        ToolError: other rows protect it, or the caller may not delete or see rows that are deleted with it.
    """
    effects = collect_deletion_effects(row, using=using, load_models=_ExposedModels(toolset))

    label = get_label(toolset, ctx, row)
    if effects.protecting:
        raise ToolError(
            f"{label} cannot be deleted, because rows that refer to it forbid it: "
            f"{_format_counts(_count_by_name(toolset, ctx, effects.protecting))}. Delete or move them first"
        )

    for model, rows in effects.loaded_rows.items():
        for other in _find_responsible_toolsets(toolset, model):
            # The admin requires these permissions too.
            is_visible = _can_see_rows(other, ctx, rows, using)
            if not is_visible or not all(other.has_delete_permission(ctx, each) for each in rows):
                names = {"rows that you may not delete": len(rows)}
                if is_visible and other.can_view(ctx):
                    names = {f"{model._meta.verbose_name_plural} that you may not delete": len(rows)}
                raise ToolError(
                    f"{label} cannot be deleted, because more would be deleted with it: {_format_counts(names)}"
                )

    return effects


def _can_see_rows(toolset: BaseModelToolset, ctx: Context, rows: Collection[Model], using: str) -> bool:
    """Return True if the toolset shows all these rows to the caller."""
    if not toolset.restricts_rows:
        return True
    return len(toolset.get_queryset(ctx).using(using).in_bulk([row.pk for row in rows])) == len(rows)


def _find_responsible_toolsets(toolset: BaseModelToolset, model: type[Model]) -> list[BaseModelToolset]:
    """Return the toolsets that control deletion of a model's rows.

    These are the model's own toolset and inlines.
    """
    own = toolset.find_toolset(model)
    inlines = [inline for inline in toolset.inline_toolsets if inline.model is model]
    return [*([] if own is None else [own]), *inlines]


def _count_by_name(toolset: BaseModelToolset, ctx: Context, counts_by_model: Mapping[type[Model], int]) -> Counter[str]:
    """Sum up counts by model name; models hidden from the caller share one name."""
    names = Counter[str]()
    for model, number in counts_by_model.items():
        is_visible = any(other.can_view(ctx) for other in _find_responsible_toolsets(toolset, model))
        names[str(model._meta.verbose_name_plural) if is_visible else HIDDEN_ROWS_NAME] += number
    return names


class _ExposedModels:
    """Container of the models whose rows are subject to permission hooks."""

    def __init__(self, toolset: BaseModelToolset) -> None:
        self._toolset = toolset
        self._inlines = {inline.model for inline in toolset.inline_toolsets}

    def __contains__(self, model: object) -> bool:
        return model in self._inlines or self._toolset.find_toolset(model) is not None


def _format_counts(names: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({number})" for name, number in names.items())
