"""`create` and `update`: validation by a form, then saving of row and inline rows."""

from collections.abc import Sequence
from typing import Any

from django.db.models import Model

from mcp_django.exceptions import build_invalid_error
from mcp_django.orm import admin_log
from mcp_django.orm.writes.base import WriteOperation
from mcp_django.orm.writes.binding import BoundWriteForm
from mcp_django.orm.writes.confirmation import format_on_one_line, format_values
from mcp_django.orm.writes.etags import check_version
from mcp_django.orm.writes.inlines import save_inlines
from mcp_django.orm.writes.lookup import find_rows, get_label
from mcp_django.orm.writes.result import serialize_written_row
from mcp_django.protocol.errors import ToolError


class CreateOperation(WriteOperation):
    """Creation of a row."""

    name = "create"

    def build_question(self) -> tuple[str, Sequence[Model]]:
        """See WriteOperation."""
        self._bind_form()
        name = self.toolset.model._meta.verbose_name
        return f"Add this {name}?\n{format_values(self.arguments['values'])}{_format_inlines(self.arguments)}", ()

    def execute(self) -> dict[str, Any]:
        """See WriteOperation."""
        toolset, ctx = self.toolset, self.ctx
        row = self._bind_form().save(toolset.save_model, change=False)
        counts, inline_messages = save_inlines(toolset, ctx, row, self.arguments.get("inlines"), using=self.using)
        result = serialize_written_row(toolset, ctx, row, using=self.using) | ({"inlines": counts} if counts else {})

        if self.dry_run:
            # A dry run uses up this number, so the row would get another one.
            if toolset.model._meta.auto_field is not None:
                result["pk"] = None
                if result["item"] is not None:
                    result["item"]["pk"] = None
        else:
            toolset.log_write(ctx, [row], admin_log.ADDITION, [*admin_log.build_added_message(), *inline_messages])
        return {**result, "dry_run": self.dry_run}

    def _bind_form(self) -> BoundWriteForm:
        toolset, ctx = self.toolset, self.ctx
        if not toolset.has_add_permission(ctx):
            raise ToolError(f"You may not add {toolset.model._meta.verbose_name_plural}")
        return _bind_checked(
            BoundWriteForm(ctx, toolset.get_writable_form(ctx), self.arguments["values"], using=self.using), None
        )


class UpdateOperation(WriteOperation):
    """Change of some values of a row."""

    name = "update"

    def build_question(self) -> tuple[str, Sequence[Model]]:
        """See WriteOperation."""
        row = self._find_row(lock=False)
        label = get_label(self.toolset, self.ctx, row)
        self._bind_form(row)
        return f"Change {label}?\n{format_values(self.arguments.get('values', {}))}{_format_inlines(self.arguments)}", (
            self._find_row(lock=False),
        )

    def execute(self) -> dict[str, Any]:
        """See WriteOperation."""
        toolset, ctx = self.toolset, self.ctx
        row = self._find_row(lock=True)
        self.check_agreed_versions((row,))

        before = self._read_values(row)
        bound_form = self._bind_form(row)
        row = bound_form.save(toolset.save_model, change=True)
        after = self._read_values(row)
        names = [name for name in before if before[name] != after[name]]

        counts, inline_messages = save_inlines(toolset, ctx, row, self.arguments.get("inlines"), using=self.using)
        result = serialize_written_row(toolset, ctx, row, using=self.using) | ({"inlines": counts} if counts else {})

        if not self.dry_run:
            labels = [bound_form.form.fields[name].label or name for name in names]
            row_message = admin_log.build_changed_message(labels) if labels else []
            toolset.log_write(ctx, [row], admin_log.CHANGE, [*row_message, *inline_messages])
        return {**result, "changed": names, "dry_run": self.dry_run}

    def _find_row(self, *, lock: bool) -> Model:
        toolset, ctx = self.toolset, self.ctx
        has_permission = toolset.has_change_permission
        row: Model
        (row,) = find_rows(
            toolset, ctx, [self.arguments["pk"]], using=self.using, has_permission=has_permission, lock=lock
        )
        check_version(toolset, row, self.arguments.get("if_match"))
        if not self.arguments.get("values") and not self.arguments.get("inlines"):
            raise ToolError("Nothing to change: give values, or inlines")
        return row

    def _bind_form(self, row: Model) -> BoundWriteForm:
        values = self.arguments.get("values", {})
        return _bind_checked(
            BoundWriteForm(self.ctx, self.toolset.get_writable_form(self.ctx), values, using=self.using), row
        )

    def _read_values(self, row: Any) -> dict[str, Any]:
        """Return the current values of the given fields, for comparison."""
        values = {}
        for name in self.arguments.get("values", {}):
            item = self.toolset.exposure.fields.get(name)
            if item is None or item.model_field is None:
                continue
            if item.is_to_many:
                values[name] = set(getattr(row, name).using(self.using).values_list("pk", flat=True))
            else:
                values[name] = getattr(row, item.model_field.attname)
        return values


def _bind_checked(bound_form: BoundWriteForm, row: Model | None) -> BoundWriteForm:
    bound_form.bind(row)
    if bound_form.errors:
        raise build_invalid_error(bound_form.errors)
    return bound_form


def _format_inlines(arguments: dict[str, Any]) -> str:
    """Format the changes of inline rows for the question to the user."""
    lines = []
    for name, given in (arguments.get("inlines") or {}).items():
        lines += [f"{name}: {what} {len(rows)}: {format_on_one_line(rows)}" for what, rows in given.items() if rows]
    return "".join(f"\n{line}" for line in lines)
