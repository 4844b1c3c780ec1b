"""`delete`: deletion of one row with its cascades, if Django's rules permit it."""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import CASCADE, Model, ProtectedError, QuerySet, RestrictedError
from django.db.models.deletion import Collector

from mcp_django.orm import admin_log
from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.rows.lookup import get_label
from mcp_django.orm.writes.base import ROWS_CHANGED_MESSAGE, WriteOperation
from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.server.context.context import Context

HIDDEN_ROWS_NAME = "other rows"
"""Name for rows of models that the caller may not view."""


@dataclass(frozen=True, slots=True)
class DeletionEffects:
    """Rows of other models that a deletion affects, counted by model.

    Rows of automatic many-to-many tables are not counted.
    """

    deleted: Counter[type[Model]] = field(default_factory=Counter)
    """Rows that are deleted too."""
    changed: Counter[type[Model]] = field(default_factory=Counter)
    """Rows that lose their reference (SET_NULL, SET_DEFAULT, SET)."""
    protecting: Counter[type[Model]] = field(default_factory=Counter)
    """Rows that forbid the deletion (PROTECT, RESTRICT)."""
    protecting_rows: dict[type[Model], list[Model]] = field(default_factory=dict)
    changed_rows: dict[type[Model], list[Model]] = field(default_factory=dict)
    """Changed rows of the models that were requested as `load_models`."""
    loaded_rows: dict[type[Model], Collection[Model]] = field(default_factory=dict)
    """Deleted rows of the models that were requested as `load_models`."""


def collect_deletion_effects(obj: Model, *, using: str, load_models: Container[type[Model]] = ()) -> DeletionEffects:
    """Determine the effects of deleting `obj`.

    Rows of the models in `load_models` are loaded. Other rows are only counted where possible.
    """
    effects = DeletionEffects()
    collector = _CountingCollector(using, load_models)

    try:
        collector.collect([obj])
    except ProtectedError as problem:
        _add_protecting_rows(effects, problem.protected_objects)
    except RestrictedError as problem:
        _add_protecting_rows(effects, problem.restricted_objects)

    for model, rows in collector.data.items():
        others = [row for row in rows if row != obj and not _is_parent(row, obj)]
        if others and not model._meta.auto_created:
            effects.deleted[model] += len(others)
            if model in load_models:
                effects.loaded_rows[model] = others
    for queryset in collector.fast_deletes:
        if not queryset.model._meta.auto_created and (number := queryset.count()):
            effects.deleted[queryset.model] += number
    _add_changed_rows(effects, collector, load_models)
    return effects


def _add_changed_rows(effects: DeletionEffects, collector: Collector, load_models: Container[type[Model]]) -> None:
    field_updates: Any = collector.field_updates
    for (relation, _), updates in field_updates.items():
        # If constraints cannot be deferred, a cascade first sets references to NULL in rows that it deletes. These
        # updates do not count.
        if relation.remote_field is None or relation.remote_field.on_delete is CASCADE:
            continue
        number = _count_rows(updates)
        effects.changed.update({relation.model: number} if number else {})
        if number and relation.model in load_models:
            rows = effects.changed_rows.setdefault(relation.model, [])
            rows.extend(row for part in updates for row in part)


def _add_protecting_rows(effects: DeletionEffects, rows: Iterable[Model]) -> None:
    for row in rows:
        effects.protecting[type(row)] += 1
        effects.protecting_rows.setdefault(type(row), []).append(row)


def _count_rows(updates: Any) -> int:
    return sum(int(rows.count() if isinstance(rows, QuerySet) else len(rows)) for rows in updates)


def _is_parent(row: Model, obj: Model) -> bool:
    """Return True if the row is the part of `obj` in a table of a parent model."""
    return isinstance(obj, type(row)) and row.pk == obj.pk


class _CountingCollector(Collector):
    def __init__(self, using: str, load_models: Container[type[Model]]) -> None:
        super().__init__(using=using)
        # Since Django 6.1, collect rows that the database deletes itself (DB_CASCADE). Earlier versions ignore this
        # flag.
        self.force_collection = True
        self._load_models = load_models

    def can_fast_delete(self, objs: Any, from_field: Any = None) -> bool:
        model = objs if isinstance(objs, type) else getattr(objs, "model", None)
        return model not in self._load_models and bool(super().can_fast_delete(objs, from_field))


class DeleteOperation(WriteOperation):
    """Deletion of a row."""

    _confirmed_effects: DeletionEffects | None = None
    """Effects of the deletion that the user confirmed."""

    def build_question(self) -> tuple[str, tuple[str, ...]]:
        """See WriteOperation."""
        row = self.find_row(self.toolset.has_delete_permission, lock=False)
        effects = self._confirmed_effects = check_deletion(self.toolset, self.ctx, row, using=self.using)
        text = f"Delete {get_label(self.toolset, self.ctx, row)}?"
        for title, counts in (("Deleted with it", effects.deleted), ("Losing their reference to it", effects.changed)):
            if counts_text := _format_counts(_count_by_name(self.toolset, self.ctx, counts)):
                text += f"\n{title}: {counts_text}"
        return text, self.get_versions((row,))

    def execute(self) -> JSONObject:
        """See WriteOperation."""
        toolset, ctx = self.toolset, self.ctx
        row = self.find_row(self.toolset.has_delete_permission, lock=True)
        self.check_agreed_versions((row,))
        effects = check_deletion(self.toolset, self.ctx, row, using=self.using)
        confirmed_effects = self._confirmed_effects
        if confirmed_effects is not None and (confirmed_effects.deleted, confirmed_effects.changed) != (
            effects.deleted,
            effects.changed,
        ):
            raise ToolError(ROWS_CHANGED_MESSAGE)

        result = {
            "pk": toolset.exposure.pk.codec.serialize(row.pk),
            "label": get_label(toolset, ctx, row),
            "deleted": dict(_count_by_name(self.toolset, self.ctx, effects.deleted)),
            "changed": dict(_count_by_name(self.toolset, self.ctx, effects.changed)),
            "dry_run": self.dry_run,
        }

        if not self.dry_run:
            toolset.log_write(ctx, [row], admin_log.DELETION, "")  # a deleted row has no primary key
        toolset.delete_model(ctx, row)
        return result


def check_deletion(toolset: BaseModelToolset, ctx: Context, row: Model, *, using: str) -> DeletionEffects:
    """Check that a row can be deleted, and return the effects.

    Raises:
        ToolError: other rows protect it, or the caller may not delete or see rows that are deleted with it.
    """
    effects = collect_deletion_effects(row, using=using, load_models=_ExposedModels(toolset))

    label = get_label(toolset, ctx, row)
    if effects.protecting:
        visible = {
            model: number
            for model, number in effects.protecting.items()
            if _can_see_all_rows(toolset, ctx, model, effects.protecting_rows[model], using)
        }
        counts = f": {_format_counts(_count_by_name(toolset, ctx, visible))}" if visible else ""
        raise ToolError(
            f"{label} cannot be deleted, because rows that refer to it forbid it{counts}. Delete or move them first"
        )

    for model, changed in effects.changed_rows.items():
        for other in _find_responsible_toolsets(toolset, model):
            if other.row_permissions.restricts_rows and not (
                _can_see_rows(other, ctx, changed, using)
                and all(other.has_change_permission(ctx, row) for row in changed)
            ):
                raise ToolError(f"{label} cannot be deleted, because rows refer to it that you may not change")

    for model, rows in effects.loaded_rows.items():
        for other in _find_responsible_toolsets(toolset, model):
            # The admin requires these permissions too.
            is_visible = _can_see_rows(other, ctx, rows, using)
            if not is_visible or not all(other.has_delete_permission(ctx, each) for each in rows):
                name = "rows that you may not delete"
                if is_visible and other.can_view(ctx):
                    name = f"{model._meta.verbose_name_plural} that you may not delete ({len(rows)})"
                raise ToolError(f"{label} cannot be deleted, because more would be deleted with it: {name}")

    return effects


def _can_see_rows(toolset: BaseModelToolset, ctx: Context, rows: Collection[Model], using: str) -> bool:
    """Return True if the toolset shows all these rows to the caller."""
    if not toolset.restricts_rows:
        return True
    return len(toolset.get_queryset(ctx).using(using).in_bulk([row.pk for row in rows])) == len(rows)


def _can_see_all_rows(
    toolset: BaseModelToolset, ctx: Context, model: type[Model], rows: Collection[Model], using: str
) -> bool:
    """Return True if no toolset of the model hides any of these rows from the caller."""
    return all(_can_see_rows(other, ctx, rows, using) for other in _find_responsible_toolsets(toolset, model))


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
