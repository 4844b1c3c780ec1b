"""`delete`: deletion of one row with its cascades, if Django's rules permit it."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django.db.models import Model

from mcp_django.orm.writes import admin_log
from mcp_django.orm.writes.base import CHANGED, Write
from mcp_django.orm.writes.cascades import Consequences, consequences
from mcp_django.orm.writes.etags import require_version
from mcp_django.orm.writes.lookup import find, label_of
from mcp_django.protocol.errors import ToolError
from mcp_django.server.context.context import Context

if TYPE_CHECKING:
    from mcp_django.orm.toolset import ModelToolset

OTHERS = "other rows"
"""Name for rows of models that the caller may not view."""


class Delete(Write):
    """Deletion of a row."""

    name = "delete"
    _foreseen: Consequences | None = None
    """Effects of the deletion that the user confirmed."""

    def question(self) -> tuple[str, Sequence[Model]]:
        """See WriteOperation."""
        row = self._row(lock=False)
        found = self._foreseen = self._consequences(row)
        text = f"Delete {label_of(self.toolset, self.ctx, row)}?"
        if also := _listed(self._names(found.deleted)):
            text += f"\nDeleted with it: {also}"
        if also := _listed(self._names(found.changed)):
            text += f"\nLosing their reference to it: {also}"
        return text, (row,)

    def work(self) -> dict[str, Any]:
        """See WriteOperation."""
        toolset, ctx = self.toolset, self.ctx
        row = self._row(lock=True)
        self.require_agreed((row,))
        found = self._consequences(row)
        told = self._foreseen
        if told is not None and (told.deleted, told.changed) != (found.deleted, found.changed):
            raise ToolError(CHANGED)

        codec = toolset.exposure.pk.codec
        result = {
            "pk": row.pk if codec is None else codec.shown(row.pk),
            "label": label_of(toolset, ctx, row),
            "deleted": dict(self._names(found.deleted)),
            "changed": dict(self._names(found.changed)),
            "dry_run": self.dry_run,
        }

        if not self.dry_run:
            toolset.log_write(ctx, [row], admin_log.DELETION, "")  # a deleted row has no primary key
        toolset.delete_model(ctx, row)
        return result

    def _row(self, *, lock: bool) -> Model:
        toolset, ctx = self.toolset, self.ctx
        may = toolset.has_delete_permission
        row: Model
        (row,) = find(toolset, ctx, [self.arguments["pk"]], using=self.using, may=may, lock=lock)
        require_version(toolset, row, self.arguments.get("if_match"))
        return row

    def _consequences(self, row: Model) -> Consequences:
        return permitted(self.toolset, self.ctx, row, using=self.using)

    def _names(self, counted: Mapping[type[Model], int]) -> Counter[str]:
        return _names(self.toolset, self.ctx, counted)


def permitted(toolset: "ModelToolset", ctx: Context, row: Model, *, using: str) -> Consequences:
    """Check that a row can be deleted, and return the effects.

    Raises:
        ToolError: other rows protect it, or the caller may not delete or see rows that are deleted with it.
    """
    found = consequences(row, using=using, wanted=_Exposed(toolset))

    label = label_of(toolset, ctx, row)
    if found.keeping:
        raise ToolError(
            f"{label} cannot be deleted, because rows that refer to it forbid it: "
            f"{_listed(_names(toolset, ctx, found.keeping))}. Delete or move them first"
        )

    for model, rows in found.loaded.items():
        for other in _toolsets(toolset, model):
            # The admin requires these permissions too.
            seen = _sees(other, ctx, rows, using)
            if not seen or not all(other.has_delete_permission(ctx, each) for each in rows):
                names = {"rows that you may not delete": len(rows)}
                if seen and other.lets_view(ctx):
                    names = {f"{model._meta.verbose_name_plural} that you may not delete": len(rows)}
                raise ToolError(f"{label} cannot be deleted, because more would be deleted with it: {_listed(names)}")

    return found


def _sees(toolset: "ModelToolset", ctx: Context, rows: Collection[Model], using: str) -> bool:
    """Return True if the toolset shows all these rows to the caller."""
    if not toolset.chooses_rows:
        return True
    return len(toolset.get_queryset(ctx).using(using).in_bulk([row.pk for row in rows])) == len(rows)


def _toolsets(toolset: "ModelToolset", model: type[Model]) -> "list[ModelToolset]":
    """Return the toolsets that control deletion of a model's rows.

    These are the model's own toolset and inlines.
    """
    own = toolset.beside(model)
    inlines = [inline for inline in toolset.inline_toolsets if inline.model is model]
    return [*([] if own is None else [own]), *inlines]


def _names(toolset: "ModelToolset", ctx: Context, counted: Mapping[type[Model], int]) -> Counter[str]:
    """Sum up counts by model name; models hidden from the caller share one name."""
    names = Counter[str]()
    for model, number in counted.items():
        seen = any(other.lets_view(ctx) for other in _toolsets(toolset, model))
        names[str(model._meta.verbose_name_plural) if seen else OTHERS] += number
    return names


class _Exposed:
    """Container of the models whose rows are subject to permission hooks."""

    def __init__(self, toolset: "ModelToolset") -> None:
        self._toolset = toolset
        self._inlines = {inline.model for inline in toolset.inline_toolsets}

    def __contains__(self, model: object) -> bool:
        return model in self._inlines or self._toolset.beside(model) is not None


def _listed(names: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({number})" for name, number in names.items())
