"""Call of an action: its rows, the confirmation and the method."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db.models import Model

from mcp_django.orm.writes import admin_log
from mcp_django.orm.writes.base import Write
from mcp_django.orm.writes.confirmation import lines
from mcp_django.orm.writes.lookup import find, label_of
from mcp_django.protocol.errors import ToolError
from mcp_django.schema import ArgumentError, Output, Parameters, to_json
from mcp_django.server.context.context import Context

if TYPE_CHECKING:
    from mcp_django.orm.toolset import ModelToolset

_NAMED = 20
"""Maximum number of rows that a confirmation names."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Acting:
    """Action of a toolset, compiled from a method and its options."""

    name: str
    title: str
    fn: Callable[..., Any]
    rows: str | None
    """Name of the parameter for the rows: "queryset", "obj" or None."""
    parameters: Parameters
    injected: Mapping[str, Any]
    """Parameters that receive the Context or the Principal."""
    output: Output | None
    atomic: bool
    confirm: bool
    where: str


class Act(Write):
    """Write operation that calls an action's method."""

    def __init__(
        self,
        toolset: "ModelToolset",
        ctx: Context,
        arguments: dict[str, Any],
        acting: Acting,
        hooks: Sequence[Callable[..., bool]],
    ) -> None:
        super().__init__(toolset, ctx, arguments)
        self.name, self.atomic, self.confirm = acting.name, acting.atomic, acting.confirm
        self._acting, self._hooks = acting, hooks
        own = {name: value for name, value in arguments.items() if name in acting.parameters.schema["properties"]}
        try:
            self._values = acting.parameters.convert(own)
        except ArgumentError as problem:
            raise ToolError(str(problem)) from None
        self._given = own

    def question(self) -> tuple[str, Sequence[Model]]:
        """See WriteOperation."""
        rows = self._rows(lock=False)
        labels = [label_of(self.toolset, self.ctx, row) for row in rows[:_NAMED]]
        if len(rows) > _NAMED:
            labels.append(f"{len(rows) - _NAMED} more")
        text = f"{self._acting.title[:1].upper()}{self._acting.title[1:]}"
        about = f": {', '.join(labels)}" if labels else ""
        return f"{text}{about}?\n{lines(self._given)}".rstrip("\n"), rows

    def work(self) -> dict[str, Any]:
        """See WriteOperation."""
        acting, toolset, ctx = self._acting, self.toolset, self.ctx
        rows = self._rows(lock=acting.atomic)
        self.require_agreed(rows)

        values = dict(self._values)
        for name, kind in acting.injected.items():
            values[name] = ctx if kind is Context else ctx.principal
        if acting.rows == "obj":
            values["obj"] = rows[0]
        elif acting.rows == "queryset":
            chosen = toolset.get_queryset(ctx).using(self.using)
            values["queryset"] = chosen.filter(pk__in=[row.pk for row in rows])

        value = acting.fn(**values)
        result = to_json(value) if acting.output is None else acting.output.dump(value)
        if rows and not self.dry_run:
            toolset.log_write(ctx, rows, admin_log.CHANGE, acting.title)
        return {"result": result, "rows": len(rows), "dry_run": self.dry_run}

    def _rows(self, *, lock: bool) -> list[Model]:
        if self._acting.rows is None:
            return []
        pks = self.arguments["pks"] if self._acting.rows == "queryset" else [self.arguments["pk"]]
        return find(self.toolset, self.ctx, pks, using=self.using, may=self._may, lock=lock)

    def _may(self, ctx: Context, row: Model) -> bool:
        return all(hook(ctx, row) for hook in self._hooks)
