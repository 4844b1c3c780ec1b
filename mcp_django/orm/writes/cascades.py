"""Effects of a deletion, determined without deleting.

Django's own collector finds them, as in the admin.
"""

from collections import Counter
from collections.abc import Collection, Container
from dataclasses import dataclass, field
from typing import Any

from django.db.models import CASCADE, Model, ProtectedError, QuerySet, RestrictedError
from django.db.models.deletion import Collector


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
        effects.protecting.update(type(row) for row in problem.protected_objects)
    except RestrictedError as problem:
        effects.protecting.update(type(row) for row in problem.restricted_objects)

    for model, rows in collector.data.items():
        others = [row for row in rows if row != obj and not _is_parent(row, obj)]
        if others and not model._meta.auto_created:
            effects.deleted[model] += len(others)
            if model in load_models:
                effects.loaded_rows[model] = others
    for queryset in collector.fast_deletes:
        if not queryset.model._meta.auto_created and (number := queryset.count()):
            effects.deleted[queryset.model] += number
    for (relation, _), updates in collector.field_updates.items():
        # If constraints cannot be deferred, a cascade first sets references to NULL in rows that it deletes. These
        # updates do not count.
        if relation.remote_field is not None and relation.remote_field.on_delete is not CASCADE:
            number = _count_rows(updates)
            effects.changed.update({relation.model: number} if number else {})

    return effects


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
