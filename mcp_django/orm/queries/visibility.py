"""What one call may see: which related models its caller may view, and which of their rows.

A value behind a relation whose target hands out only some of its rows is read through an expression that is null where
the row on the way is not among them. Reading, ordering and grouping use that one expression, so that they agree.
"""

import itertools
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Case, F, Q, QuerySet, When
from django.db.models.functions import NullIf
from django.db.models.manager import BaseManager

from mcp_django.orm.fields.exposed_fields import ExposedField, Purpose
from mcp_django.protocol.errors import ToolError
from mcp_django.schema.validation.messages import unknown
from mcp_django.server.context.context import Context

if TYPE_CHECKING:
    from mcp_django.orm.toolset import ModelToolset


class Scope:
    """One call's view of a toolset and its neighbours. Each question is asked once."""

    __slots__ = ("_aliases", "_rows", "_viewable", "ctx", "database", "toolset")

    def __init__(self, toolset: "ModelToolset", ctx: Context, database: str) -> None:
        self.toolset, self.ctx, self.database = toolset, ctx, database
        self._viewable: dict[ModelToolset, bool] = {}
        self._rows: dict[ModelToolset, QuerySet[Any, Any] | None] = {}
        self._aliases = itertools.count()

    def may_view(self, target: "ModelToolset") -> bool:
        """May the caller view rows of a neighbour at all?"""
        known = self._viewable.get(target)
        if known is None:
            known = self._viewable[target] = target is self.toolset or target.lets_view(self.ctx)
        return known

    def rows_of(self, target: "ModelToolset") -> "QuerySet[Any, Any] | None":
        """The neighbour's rows that the caller may see; None for every one."""
        if not target.is_scoped:
            return None
        if target not in self._rows:
            self._rows[target] = target.get_queryset(self.ctx).using(self.database).order_by()
        return self._rows[target]

    def sees(self, item: ExposedField) -> bool:
        """May the caller use this field? Not when its path crosses a model that it may not view."""
        return all(self.may_view(hop.target) for hop in item.hops)

    def resolve(self, name: str, purpose: Purpose) -> ExposedField:
        """What a client's word means. Raises ToolError, in the same words for what is hidden and what is not there."""
        names = self.toolset.exposure.names(purpose)
        item = names.get(name)
        if item is None or not self.sees(item):
            known = [other.name for other in names.values() if self.sees(other)]
            raise ToolError(f"{unknown(name, known, _NOUNS[purpose])}; {listed(known)}")
        return item

    def expression(self, item: ExposedField, source: str | None = None) -> Any:
        """The value of a to-one field in SQL: its path, or what is null where a row on the way is out of sight.

        `source` is another column at the end of the same path: the label of a relation.
        """
        path = item.source if source is None else source
        conditions = self.conditions(item)
        if not conditions:
            return F(path)
        # Null, and not the constant: where no row can be in sight at all nothing else is left of the expression, and
        # PostgreSQL neither orders nor groups by constants.
        nothing = NullIf(F(path), F(path))
        column = value_field(item, labelled=bool(source))
        return Case(When(Q(*conditions), then=F(path)), default=nothing, output_field=column)

    def alias(self) -> str:
        """A name for an expression, unlike any other in the call's statements."""
        return f"_mcp_{next(self._aliases)}"

    def conditions(self, item: ExposedField) -> list[Q]:
        """That every row on the way is in sight."""
        found = [(hop.path, self.rows_of(hop.target)) for hop in item.hops]
        if item.is_relation and item.target is not None:
            found.append((_relation_path(item), self.rows_of(item.target)))
        return [Q(**{f"{path}__in": rows}) for path, rows in found if rows is not None]


def may_leave_out(manager: Any) -> bool:
    """May a class of managers give some of a model's rows only, perhaps others to each caller? Also one whose querysets
    filter as they are made.
    """
    kind = getattr(manager, "_queryset_class", QuerySet)
    return (
        manager.get_queryset is not BaseManager.get_queryset
        or manager.all is not BaseManager.all
        or kind.__init__ is not QuerySet.__init__
    )


def value_field(item: ExposedField, *, labelled: bool = False) -> Any:
    """The column whose values a field has: of a relation, the primary key on the other side, or its label."""
    found = item.model_field
    if labelled and item.target is not None:
        return item.target.model._meta.get_field(str(item.target.label_path))
    if item.is_relation and not (isinstance(found, models.ForeignKey) and found.target_field.primary_key):
        found = found.related_model._meta.pk
    while isinstance(found, models.ForeignKey):
        found = found.target_field
    return found


def _relation_path(item: ExposedField) -> str:
    """The ORM path of a relation itself."""
    return f"{item.hops[-1].path}__{item.model_field.name}" if item.hops else str(item.model_field.name)


def listed(known: list[str]) -> str:
    """The names that there are, after `unknown`."""
    return f"there are: {', '.join(known[:40])}" if known else "there are none"


_NOUNS = {
    Purpose.READ: "field",
    Purpose.FILTER: "filter",
    Purpose.ORDER: "field to order by",
    Purpose.SEARCH: "field to search",
    Purpose.AGGREGATE: "field to group or sum by",
    Purpose.WRITE: "field to write",
}
