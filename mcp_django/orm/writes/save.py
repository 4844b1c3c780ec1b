"""`create` and `update`: validation by a form, then saving of row and inline rows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.db.models import Model

from mcp_django.exceptions import invalid
from mcp_django.orm.writes import admin_log
from mcp_django.orm.writes.base import Write
from mcp_django.orm.writes.confirmation import in_line, lines
from mcp_django.orm.writes.etags import require_version
from mcp_django.orm.writes.forms.binding import Filled
from mcp_django.orm.writes.inlines import save_related
from mcp_django.orm.writes.lookup import find, label_of
from mcp_django.orm.writes.result import shown
from mcp_django.protocol.errors import ToolError

if TYPE_CHECKING:
    pass


class Create(Write):
    """Creation of a row."""

    name = "create"

    def question(self) -> tuple[str, Sequence[Model]]:
        """See WriteOperation."""
        self._filled()
        name = self.toolset.model._meta.verbose_name
        return f"Add this {name}?\n{lines(self.arguments['values'])}{_below(self.arguments)}", ()

    def work(self) -> dict[str, Any]:
        """See WriteOperation."""
        toolset, ctx = self.toolset, self.ctx
        row = self._filled().save(toolset.save_model, change=False)
        counts, told = save_related(toolset, ctx, row, self.arguments.get("inlines"), using=self.using)
        result = shown(toolset, ctx, row, using=self.using) | ({"inlines": counts} if counts else {})

        if self.dry_run:
            # A dry run uses up this number, so the row would get another one.
            if toolset.model._meta.auto_field is not None:
                result["pk"] = None
                if result["item"] is not None:
                    result["item"]["pk"] = None
        else:
            toolset.log_write(ctx, [row], admin_log.ADDITION, [*admin_log.added(), *told])
        return {**result, "dry_run": self.dry_run}

    def _filled(self) -> Filled:
        toolset, ctx = self.toolset, self.ctx
        if not toolset.has_add_permission(ctx):
            raise ToolError(f"You may not add {toolset.model._meta.verbose_name_plural}")
        return _bound(Filled(ctx, toolset.fillable(ctx), self.arguments["values"], using=self.using), None)


class Update(Write):
    """Change of some values of a row."""

    name = "update"

    def question(self) -> tuple[str, Sequence[Model]]:
        """See WriteOperation."""
        row = self._row(lock=False)
        label = label_of(self.toolset, self.ctx, row)
        self._filled(row)
        return f"Change {label}?\n{lines(self.arguments.get('values', {}))}{_below(self.arguments)}", (
            self._row(lock=False),
        )

    def work(self) -> dict[str, Any]:
        """See WriteOperation."""
        toolset, ctx = self.toolset, self.ctx
        row = self._row(lock=True)
        self.require_agreed((row,))

        before = self._values(row)
        filled = self._filled(row)
        row = filled.save(toolset.save_model, change=True)
        after = self._values(row)
        names = [name for name in before if before[name] != after[name]]

        counts, told = save_related(toolset, ctx, row, self.arguments.get("inlines"), using=self.using)
        result = shown(toolset, ctx, row, using=self.using) | ({"inlines": counts} if counts else {})

        if not self.dry_run:
            labels = [filled.form.fields[name].label or name for name in names]
            own = admin_log.changed(labels) if labels else []
            toolset.log_write(ctx, [row], admin_log.CHANGE, [*own, *told])
        return {**result, "changed": names, "dry_run": self.dry_run}

    def _row(self, *, lock: bool) -> Model:
        toolset, ctx = self.toolset, self.ctx
        may = toolset.has_change_permission
        row: Model
        (row,) = find(toolset, ctx, [self.arguments["pk"]], using=self.using, may=may, lock=lock)
        require_version(toolset, row, self.arguments.get("if_match"))
        if not self.arguments.get("values") and not self.arguments.get("inlines"):
            raise ToolError("Nothing to change: give values, or inlines")
        return row

    def _filled(self, row: Model) -> Filled:
        values = self.arguments.get("values", {})
        return _bound(Filled(self.ctx, self.toolset.fillable(self.ctx), values, using=self.using), row)

    def _values(self, row: Any) -> dict[str, Any]:
        """Return the current values of the given fields, for comparison."""
        values = {}
        for name in self.arguments.get("values", {}):
            item = self.toolset.exposure.fields.get(name)
            if item is None or item.model_field is None:
                continue
            if item.many:
                values[name] = set(getattr(row, name).using(self.using).values_list("pk", flat=True))
            else:
                values[name] = getattr(row, item.model_field.attname)
        return values


def _bound(filled: Filled, row: Model | None) -> Filled:
    filled.bind(row)
    if filled.errors:
        raise invalid(filled.errors)
    return filled


def _below(arguments: dict[str, Any]) -> str:
    """Format the changes of inline rows for the question to the user."""
    told = []
    for name, given in (arguments.get("inlines") or {}).items():
        told += [f"{name}: {what} {len(rows)}: {in_line(rows)}" for what, rows in given.items() if rows]
    return "".join(f"\n{line}" for line in told)
