"""`create` and `update`: validation by a form, then saving of row and inline rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from django.db.models import Model

from mcp_django.exceptions import build_invalid_error
from mcp_django.orm import admin_log
from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.declaration.exposed_fields import ExposedField
from mcp_django.orm.declaration.inlines import ModelInline
from mcp_django.orm.queries.visibility import format_names
from mcp_django.orm.rows.items import serialize_written_row
from mcp_django.orm.rows.lookup import format_on_one_line, get_label, lock_rows
from mcp_django.orm.rows.versions import read_visible_keys
from mcp_django.orm.writes.base import WriteOperation
from mcp_django.orm.writes.binding import BoundWriteForm, FieldErrors
from mcp_django.orm.writes.confirmation import format_values
from mcp_django.orm.writes.delete import check_deletion
from mcp_django.orm.writes.schema import get_inline_parameters
from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject
from mcp_django.schema import ArgumentError
from mcp_django.schema.validation.messages import describe_unknown
from mcp_django.server.context.context import Context

Counts = dict[str, dict[str, int]]


def save_inlines(
    toolset: BaseModelToolset, ctx: Context, parent: Model, given: Mapping[str, JSONObject], *, using: str
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
        changes = given.get(inline.name)
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


@dataclass(slots=True, eq=False)
class _InlineWriter:
    inline: ModelInline
    ctx: Context
    parent: Model
    using: str
    errors: FieldErrors = field(default_factory=dict)
    log_message: admin_log.Message = field(default_factory=list)

    def run(self, changes: JSONMapping) -> None:
        inline = self.inline
        self._check_permission(inline.has_class_permission(self.ctx), "change")

        for number, pk in enumerate(changes.get("delete", ())):
            row = self._find_row(pk, f"delete[{number}]")
            if row is not None:
                self._check_permission(inline.has_delete_permission(self.ctx, row), "delete")
                check_deletion(inline, self.ctx, row, using=self.using)
                self.log_message += admin_log.build_deleted_message(row)
                inline.delete_model(self.ctx, row)

        for number, entry in enumerate(changes.get("change", ())):
            place = f"change[{number}]"
            row = self._find_row(entry["pk"], place)
            if row is not None:
                self._check_permission(inline.has_change_permission(self.ctx, row), "change")
                self._save(row, entry["values"], place, change=True)

        for number, values in enumerate(changes.get("add", ())):
            self._check_permission(inline.has_add_permission(self.ctx), "add")
            row = inline.model()
            setattr(row, inline.foreign_key.name, self.parent)
            self._save(row, values, f"add[{number}]", change=False)

        if changes.get("add") and inline.get_rows_below(self.parent, self.using).count() > inline.max_num:
            raise ToolError(f"{inline.name}: at most {inline.max_num} rows are allowed")

    def _check_permission(self, is_allowed: bool, verb: str) -> None:
        if not is_allowed:
            raise ToolError(f"You may not {verb} {self.inline.model._meta.verbose_name_plural}")

    def _find_row(self, pk: object, place: str) -> Model | None:
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

    def _save(self, row: Model, values: JSONMapping, place: str, *, change: bool) -> None:
        inline = self.inline
        fixed = {inline.foreign_key.name: self.parent}
        bound_form = BoundWriteForm(self.ctx, inline.get_writable_form(self.ctx), values, using=self.using).bind(
            row, fixed
        )
        if bound_form.errors:
            self.errors |= {f"{inline.name}.{place}.{name}": texts for name, texts in bound_form.errors.items()}
            return
        saved = bound_form.save(inline.save_model, change=change)
        check_saved_row(inline, self.ctx, saved, using=self.using, is_new=not change)
        labels = [bound_form.form.fields[name].label or name for name in values]
        self.log_message += (
            admin_log.build_changed_message(labels, saved) if change else admin_log.build_added_message(saved)
        )


def check_saved_row(toolset: BaseModelToolset, ctx: Context, row: Model, *, using: str, is_new: bool) -> None:
    """Check that the caller has the permission for a row with its saved values, inside the transaction.

    Otherwise callers could give rows values for which they have no permission.

    Raises:
        ToolError: the caller has no permission.
    """
    if not toolset.row_permissions.restricts_rows:
        return
    saved = toolset.model._base_manager.using(using).filter(pk=row.pk).first()
    if saved is None or not toolset.can_keep_row(ctx, saved, is_new=is_new):
        verb = "add" if is_new else "change"
        raise ToolError(
            f"You may not {verb} a {toolset.model._meta.verbose_name} to these values, and nothing was changed"
        )


class SaveOperation(WriteOperation):
    """Creation or change of a row, with its inline rows."""

    is_new: ClassVar[bool]
    """True for the creation of a row."""

    def run(self) -> object:
        """See WriteOperation."""
        self._check_inlines()
        return super().run()

    def _check_inlines(self) -> None:
        """Check the structure of the changes to inline rows.

        Raises:
            ToolError: an inline is unknown or hidden, or its changes are malformed.
        """
        usable = {inline.name: inline for inline in self.toolset.inline_toolsets if inline.can_use(self.ctx)}
        for name, changes in self.arguments.inlines.items():
            if name not in usable:
                raise ToolError(f"{describe_unknown(name, usable, 'inline')}; {format_names(list(usable))}")
            try:
                get_inline_parameters(usable[name], new=self.is_new).check(changes)
            except ArgumentError as problem:
                raise ToolError(f"inlines.{name}: {problem}") from None

    def bind_form(self, row: Model | None) -> BoundWriteForm:
        """Bind and validate the client's values.

        Raises:
            ToolError: at least one value is invalid.
        """
        writable_form, values = self.toolset.get_writable_form(self.ctx), self.arguments.values
        bound_form = BoundWriteForm(self.ctx, writable_form, values, using=self.using).bind(row)
        if bound_form.errors:
            raise build_invalid_error(bound_form.errors)
        return bound_form

    def save_inlines(self, row: Model) -> tuple[JSONObject, admin_log.Message]:
        """Write the inline rows of a saved row; return the result, and the message for the admin's log."""
        toolset, ctx = self.toolset, self.ctx
        counts, message = save_inlines(toolset, ctx, row, self.arguments.inlines, using=self.using)
        check_saved_row(toolset, ctx, row, using=self.using, is_new=self.is_new)
        result = serialize_written_row(toolset, ctx, row, using=self.using)
        return {**result, **({"inlines": counts} if counts else {})}, message

    def format_arguments(self) -> str:
        """Format the values and the changes of inline rows for the question to the user."""
        lines = [format_values(self.arguments.values)]
        for name, given in self.arguments.inlines.items():
            lines += [f"{name}: {what} {len(rows)}: {format_on_one_line(rows)}" for what, rows in given.items() if rows]
        return "\n".join(lines)


class CreateOperation(SaveOperation):
    """Creation of a row."""

    is_new = True

    def build_question(self) -> tuple[str, tuple[str, ...]]:
        """See WriteOperation."""
        self._check_permission()
        self.bind_form(None)
        return f"Add this {self.toolset.model._meta.verbose_name}?\n{self.format_arguments()}", ()

    def execute(self) -> JSONObject:
        """See WriteOperation."""
        toolset, ctx = self.toolset, self.ctx
        self._check_permission()
        row = self.bind_form(None).save(toolset.save_model, change=False)
        result, inline_messages = self.save_inlines(row)

        if not self.dry_run:
            toolset.log_write(ctx, [row], admin_log.ADDITION, [*admin_log.build_added_message(), *inline_messages])
        elif toolset.model._meta.auto_field is not None:
            # A dry run uses up this number, so the row would get another one.
            result["pk"] = None
            if result["item"] is not None:
                result["item"]["pk"] = None
        return {**result, "dry_run": self.dry_run}

    def _check_permission(self) -> None:
        if not self.toolset.has_add_permission(self.ctx):
            raise ToolError(f"You may not add {self.toolset.model._meta.verbose_name_plural}")


class UpdateOperation(SaveOperation):
    """Change of some values of a row."""

    is_new = False

    def build_question(self) -> tuple[str, tuple[str, ...]]:
        """See WriteOperation."""
        row = self._find_row(lock=False)
        label, versions = get_label(self.toolset, self.ctx, row), self.get_versions((row,))
        self.bind_form(row)  # changes the row
        return f"Change {label}?\n{self.format_arguments()}", versions

    def execute(self) -> JSONObject:
        """See WriteOperation."""
        toolset, ctx = self.toolset, self.ctx
        row = self._find_row(lock=True)
        self.check_agreed_versions((row,))

        items = self._get_given_fields()
        values_before, keys_before = self._read_values(row, items), read_visible_keys(self.scope, row, items)
        bound_form = self.bind_form(row)
        row = bound_form.save(toolset.save_model, change=True)
        values_after, keys_after = self._read_values(row, items), read_visible_keys(self.scope, row, items)
        names = [
            item.name for item in items if not _is_same_value(item, values_before[item.name], values_after[item.name])
        ]
        # The log is complete. The caller is not informed about a reference to a hidden row that was removed.
        visible_names = [name for name in names if name not in keys_before or keys_before[name] != keys_after[name]]
        result, inline_messages = self.save_inlines(row)

        if not self.dry_run:
            labels = [bound_form.form.fields[name].label or name for name in names]
            row_message = admin_log.build_changed_message(labels) if labels else []
            toolset.log_write(ctx, [row], admin_log.CHANGE, [*row_message, *inline_messages])
        return {**result, "changed": visible_names, "dry_run": self.dry_run}

    def _find_row(self, *, lock: bool) -> Model:
        row = self.find_row(self.toolset.has_change_permission, lock=lock)
        if not self.arguments.values and not self.arguments.inlines:
            raise ToolError("Nothing to change: give values, or inlines")
        return row

    def _get_given_fields(self) -> list[ExposedField]:
        """Return the shown fields of the model that the client gave values for."""
        fields = self.toolset.exposure.fields
        items = [fields[name] for name in self.arguments.values if name in fields]
        return [item for item in items if item.model_field is not None]

    def _read_values(self, row: object, items: Sequence[ExposedField]) -> JSONObject:
        """Return the current values of the given fields, for comparison."""
        return {
            item.name: set(getattr(row, item.name).using(self.using).values_list("pk", flat=True))
            if item.is_to_many
            else getattr(row, item.model_field.attname)
            for item in items
        }


def _is_same_value(item: ExposedField, before: object, after: object) -> bool:
    """Return True if two values of a field are equal, or have the same JSON.

    Values of some classes, such as blocks of a stream, have no equality.
    """
    if before == after:
        return True
    if item.is_to_many or before is None or after is None or hasattr(after, "resolve_expression"):
        return False
    return bool(item.codec.serialize(before) == item.codec.serialize(after))
