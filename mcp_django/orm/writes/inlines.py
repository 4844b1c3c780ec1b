"""Writes of inline rows together with their parent row, in the same transaction.

Rows are deleted, then changed, then added. Errors are collected under the position of the value, such as
"runways.add[0].length".
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.db.models import Model

from mcp_django.exceptions import invalid
from mcp_django.orm.writes import admin_log
from mcp_django.orm.writes.delete import permitted
from mcp_django.orm.writes.forms.binding import Errors, Filled
from mcp_django.orm.writes.lookup import hold
from mcp_django.protocol.errors import ToolError
from mcp_django.server.context.context import Context

if TYPE_CHECKING:
    from mcp_django.orm.inlines import ModelInline
    from mcp_django.orm.toolset import ModelToolset

Counts = dict[str, dict[str, int]]


def save_related(
    toolset: "ModelToolset", ctx: Context, parent: Model, given: Mapping[str, Any] | None, *, using: str
) -> tuple[Counts, admin_log.Message]:
    """Write the inline rows given by a client.

    Returns:
        The numbers of added, changed and deleted rows by inline, and the message for the admin's log.

    Raises:
        ToolError: an inline row is invalid or the write is not permitted.
    """
    counts: Counts = {}
    told: admin_log.Message = []
    errors: Errors = {}

    for inline in toolset.inline_toolsets:
        wanted = (given or {}).get(inline.name)
        if wanted:
            writing = _Writing(inline, ctx, parent, using)
            writing.run(wanted)
            told += writing.told
            errors |= writing.errors
            counts[inline.name] = {
                "added": len(wanted.get("add", ())),
                "changed": len(wanted.get("change", ())),
                "deleted": len(wanted.get("delete", ())),
            }

    if errors:
        raise invalid(errors)
    return counts, told


class _Writing:
    def __init__(self, inline: "ModelInline", ctx: Context, parent: Model, using: str) -> None:
        self.inline, self.ctx, self.parent, self.using = inline, ctx, parent, using
        self.errors: Errors = {}
        self.told: admin_log.Message = []

    def run(self, wanted: Mapping[str, Any]) -> None:
        inline = self.inline
        self._may(inline.admits(self.ctx), "change")

        for number, pk in enumerate(wanted.get("delete", ())):
            row = self._row(pk, f"delete[{number}]")
            if row is not None and self._may(inline.has_delete_permission(self.ctx, row), "delete"):
                permitted(inline, self.ctx, row, using=self.using)
                self.told += admin_log.deleted(row)
                inline.delete_model(self.ctx, row)

        for number, entry in enumerate(wanted.get("change", ())):
            place = f"change[{number}]"
            row = self._row(entry["pk"], place)
            if row is not None and self._may(inline.has_change_permission(self.ctx, row), "change"):
                self._save(row, entry["values"], place, change=True)

        for number, values in enumerate(wanted.get("add", ())):
            if self._may(inline.has_add_permission(self.ctx), "add"):
                row = inline.model()
                setattr(row, inline.foreign_key.name, self.parent)
                self._save(row, values, f"add[{number}]", change=False)

        if wanted.get("add") and inline.below(self.parent, self.using).count() > inline.max_num:
            raise ToolError(f"{inline.name}: at most {inline.max_num} rows are allowed")

    def _may(self, allowed: bool, what: str) -> bool:
        if not allowed:
            raise ToolError(f"You may not {what} {self.inline.model._meta.verbose_name_plural}")
        return True

    def _row(self, pk: Any, place: str) -> Model | None:
        """Return a visible row below the parent, or record an error and return None."""
        inline, codec = self.inline, self.inline.exposure.pk.codec
        rows = inline.get_queryset(self.ctx).using(self.using)
        try:
            wanted = pk if codec is None else codec.decode(pk)
            # Lock the row itself: a concurrent tool for this model does not lock the parent row.
            hold(inline, [wanted], using=self.using)
            row: Model | None = rows.filter(**{inline.foreign_key.name: self.parent}, pk=wanted).first()
        except ValueError:
            row = None

        if row is None or not inline.has_view_permission(self.ctx, row):
            self.errors[f"{inline.name}.{place}"] = [
                f"There is no {inline.model._meta.verbose_name} with pk {pk!s:.100}."
            ]
            return None
        return row

    def _save(self, row: Model, values: Mapping[str, Any], place: str, *, change: bool) -> None:
        inline = self.inline
        fixed = {inline.foreign_key.name: self.parent}
        filled = Filled(self.ctx, inline.fillable(self.ctx), values, using=self.using).bind(row, fixed)
        if filled.errors:
            self.errors |= {f"{inline.name}.{place}.{name}": texts for name, texts in filled.errors.items()}
            return
        saved = filled.save(inline.save_model, change=change)
        labels = [filled.form.fields[name].label or name for name in values]
        self.told += admin_log.changed(labels, saved) if change else admin_log.added(saved)
