"""Call of an action: its rows, the confirmation and the method."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Model

from mcp_django.orm import admin_log
from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.writes.base import WriteOperation
from mcp_django.orm.writes.confirmation import format_values
from mcp_django.orm.writes.lookup import find_rows, get_label
from mcp_django.protocol.errors import ToolError
from mcp_django.schema import ArgumentError, CompiledOutput, CompiledParameters, to_json
from mcp_django.server.context.context import Context

_MAX_QUESTION_ROWS = 20
"""Maximum number of rows that a confirmation names."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledAction:
    """Action of a toolset, compiled from a method and its options."""

    name: str
    title: str
    fn: Callable[..., Any]
    row_parameter: str | None
    """Name of the parameter for the rows: "queryset", "obj" or None."""
    parameters: CompiledParameters
    injected: Mapping[str, Any]
    """Parameters that receive the Context or the Principal."""
    output: CompiledOutput | None
    atomic: bool
    confirm: bool
    source: str


class ActionCall(WriteOperation):
    """Write operation that calls an action's method."""

    def __init__(
        self,
        toolset: BaseModelToolset,
        ctx: Context,
        arguments: dict[str, Any],
        action: CompiledAction,
        hooks: Sequence[Callable[..., bool]],
    ) -> None:
        super().__init__(toolset, ctx, arguments)
        self.name = action.name
        self.atomic = action.atomic
        self.confirm = action.confirm
        self._action = action
        self._hooks = hooks
        method_arguments = {
            name: value for name, value in arguments.items() if name in action.parameters.schema["properties"]
        }
        try:
            self._method_values = action.parameters.convert(method_arguments)
        except ArgumentError as problem:
            raise ToolError(str(problem)) from None
        self._method_arguments = method_arguments

    def build_question(self) -> tuple[str, Sequence[Model]]:
        """See WriteOperation."""
        rows = self._find_rows(lock=False)
        labels = [get_label(self.toolset, self.ctx, row) for row in rows[:_MAX_QUESTION_ROWS]]
        if len(rows) > _MAX_QUESTION_ROWS:
            labels.append(f"{len(rows) - _MAX_QUESTION_ROWS} more")
        text = f"{self._action.title[:1].upper()}{self._action.title[1:]}"
        row_labels = f": {', '.join(labels)}" if labels else ""
        return f"{text}{row_labels}?\n{format_values(self._method_arguments)}".rstrip("\n"), rows

    def execute(self) -> dict[str, Any]:
        """See WriteOperation."""
        action, toolset, ctx = self._action, self.toolset, self.ctx
        rows = self._find_rows(lock=action.atomic)
        self.check_agreed_versions(rows)

        values = dict(self._method_values)
        for name, kind in action.injected.items():
            values[name] = ctx if kind is Context else ctx.principal
        if action.row_parameter == "obj":
            values["obj"] = rows[0]
        elif action.row_parameter == "queryset":
            chosen = toolset.get_queryset(ctx).using(self.using)
            values["queryset"] = chosen.filter(pk__in=[row.pk for row in rows])

        value = action.fn(**values)
        result = to_json(value) if action.output is None else action.output.dump(value)
        if rows and not self.dry_run:
            toolset.log_write(ctx, rows, admin_log.CHANGE, action.title)
        return {"result": result, "rows": len(rows), "dry_run": self.dry_run}

    def _find_rows(self, *, lock: bool) -> list[Model]:
        if self._action.row_parameter is None:
            return []
        pks = self.arguments["pks"] if self._action.row_parameter == "queryset" else [self.arguments["pk"]]
        return find_rows(self.toolset, self.ctx, pks, using=self.using, has_permission=self._has_permission, lock=lock)

    def _has_permission(self, ctx: Context, row: Model) -> bool:
        return all(hook(ctx, row) for hook in self._hooks)
