"""Writes of inline rows together with their parent row, in the same transaction.

Rows are deleted, then changed, then added. Errors are collected under the position of the value, such as
"runways.add[0].length".
"""

from collections.abc import Mapping
from typing import Any

from django.db.models import Model

from mcp_django.exceptions import build_invalid_error
from mcp_django.orm import admin_log
from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.declaration.inlines import ModelInline
from mcp_django.orm.writes.binding import BoundWriteForm, FieldErrors
from mcp_django.orm.writes.delete import check_deletion
from mcp_django.orm.writes.lookup import lock_rows
from mcp_django.protocol.errors import ToolError
from mcp_django.server.context.context import Context

Counts = dict[str, dict[str, int]]


def save_inlines(
    toolset: BaseModelToolset, ctx: Context, parent: Model, given: Mapping[str, Any] | None, *, using: str
) -> tuple[Counts, admin_log.Message]:
    """Write the inline rows given by a client.

    Returns:
        The numbers of added, changed and deleted rows by inline, and the message for the admin's log.

    Raises:
        ToolError: an inline row is invalid or the write is not permitted.
    """
    counts: Counts = {}
    log_message: admin_log.Message = []
    errors: FieldErrors = {}

    for inline in toolset.inline_toolsets:
        changes = (given or {}).get(inline.name)
        if changes:
            writer = _InlineWriter(inline, ctx, parent, using)
            writer.run(changes)
            log_message += writer.log_message
            errors |= writer.errors
            counts[inline.name] = {
                "added": len(changes.get("add", ())),
                "changed": len(changes.get("change", ())),
                "deleted": len(changes.get("delete", ())),
            }

    if errors:
        raise build_invalid_error(errors)
    return counts, log_message


class _InlineWriter:
    def __init__(self, inline: ModelInline, ctx: Context, parent: Model, using: str) -> None:
        self.inline = inline
        self.ctx = ctx
        self.parent = parent
        self.using = using
        self.errors: FieldErrors = {}
        self.log_message: admin_log.Message = []

    def run(self, changes: Mapping[str, Any]) -> None:
        inline = self.inline
        self._require_permission(inline.has_class_permission(self.ctx), "change")

        for number, pk in enumerate(changes.get("delete", ())):
            row = self._find_row(pk, f"delete[{number}]")
            if row is not None and self._require_permission(inline.has_delete_permission(self.ctx, row), "delete"):
                check_deletion(inline, self.ctx, row, using=self.using)
                self.log_message += admin_log.build_deleted_message(row)
                inline.delete_model(self.ctx, row)

        for number, entry in enumerate(changes.get("change", ())):
            place = f"change[{number}]"
            row = self._find_row(entry["pk"], place)
            if row is not None and self._require_permission(inline.has_change_permission(self.ctx, row), "change"):
                self._save(row, entry["values"], place, change=True)

        for number, values in enumerate(changes.get("add", ())):
            if self._require_permission(inline.has_add_permission(self.ctx), "add"):
                row = inline.model()
                setattr(row, inline.foreign_key.name, self.parent)
                self._save(row, values, f"add[{number}]", change=False)

        if changes.get("add") and inline.get_rows_below(self.parent, self.using).count() > inline.max_num:
            raise ToolError(f"{inline.name}: at most {inline.max_num} rows are allowed")

    def _require_permission(self, allowed: bool, what: str) -> bool:
        if not allowed:
            raise ToolError(f"You may not {what} {self.inline.model._meta.verbose_name_plural}")
        return True

    def _find_row(self, pk: Any, place: str) -> Model | None:
        """Return a visible row below the parent, or record an error and return None."""
        inline = self.inline
        rows = inline.get_queryset(self.ctx).using(self.using)
        try:
            key = inline.exposure.pk.codec.decode(pk)
            # Lock the row itself: a concurrent tool for this model does not lock the parent row.
            lock_rows(inline, [key], using=self.using)
            row: Model | None = rows.filter(**{inline.foreign_key.name: self.parent}, pk=key).first()
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
        bound_form = BoundWriteForm(self.ctx, inline.get_writable_form(self.ctx), values, using=self.using).bind(
            row, fixed
        )
        if bound_form.errors:
            self.errors |= {f"{inline.name}.{place}.{name}": texts for name, texts in bound_form.errors.items()}
            return
        saved = bound_form.save(inline.save_model, change=change)
        labels = [bound_form.form.fields[name].label or name for name in values]
        self.log_message += (
            admin_log.build_changed_message(labels, saved) if change else admin_log.build_added_message(saved)
        )
