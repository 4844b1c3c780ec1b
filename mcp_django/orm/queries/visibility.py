"""Visibility and limits of one call: the models and rows that its caller may see, sizes and time.

Values behind a restricted relation are read through an expression that is NULL for hidden rows. Reading, ordering and
grouping use the same expression, so they agree.
"""

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from django.db import OperationalError, connections, models, transaction
from django.db.models import Case, F, Q, When
from django.db.models.functions import NullIf

from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.declaration.exposed_fields import ExposedField, Purpose, RowDeclaration
from mcp_django.orm.row_permissions import Rows
from mcp_django.protocol.errors import ToolError
from mcp_django.schema.validation.messages import describe_unknown
from mcp_django.server.context.context import Context

MAX_FILTER_DEPTH = 4
"""Maximum nesting of `and`, `or` and `not` in filters."""
MAX_FILTER_CONDITIONS = 50
"""Maximum number of comparisons in the filters of one call.

`and`, `or` and `not` are not counted.
"""
MAX_LIST_VALUES = 200
"""Maximum number of values of one `in`."""
MAX_ORDER_FIELDS = 5
"""Maximum number of fields to order by."""
MAX_SEARCH_WORDS = 10
"""Maximum number of words of a search."""
MAX_RELATED_ROWS = 2000
"""Maximum number of related rows per call, for each to-many relation."""
MAX_GROUP_FIELDS = 4
"""Maximum number of fields to group by."""
MAX_METRICS = 10
"""Maximum number of metrics of one aggregation."""
_QUERY_CANCELED_SQLSTATE = "57014"
"""PostgreSQL's SQLSTATE query_canceled (appendix A of its manual)."""


class UnknownFieldError(ToolError):
    """A client named a field that is unknown or hidden."""


@contextlib.contextmanager
def limit_statement_time(ctx: Context, database: str, seconds: float | None) -> Iterator[None]:
    """Limit the time of each statement inside the block, on PostgreSQL only.

    The limit is a setting of the transaction (SET LOCAL). Inside an outer transaction the previous value is restored at
    the end.

    Raises:
        ToolError: a statement exceeded the limit.
    """
    connection: Any = connections[database]
    if seconds is None or connection.vendor != "postgresql":
        yield
        return

    is_nested = connection.in_atomic_block
    try:
        with transaction.atomic(database), connection.cursor() as cursor:
            previous = _set_statement_timeout(cursor, f"{max(1, int(seconds * 1000))}", read_previous=is_nested)
            yield
            if is_nested:
                _set_statement_timeout(cursor, previous)
    except OperationalError as problem:
        if getattr(problem.__cause__, "sqlstate", None) == _QUERY_CANCELED_SQLSTATE and not ctx.cancelled:
            raise ToolError(
                f"The query took longer than {seconds:g} seconds; narrow it down with filters, or request less"
            ) from None
        raise


def _set_statement_timeout(cursor: Any, value: str, *, read_previous: bool = False) -> str:
    previous = ""
    if read_previous:
        cursor.execute("SHOW statement_timeout")
        previous = cursor.fetchone()[0]
    cursor.execute("SELECT set_config('statement_timeout', %s, true)", [value])
    return previous


@dataclass(slots=True, eq=False)
class VisibilityScope:
    """Visible toolsets and rows of one call; each permission is checked once."""

    toolset: BaseModelToolset
    ctx: Context
    database: str
    _viewable: dict[RowDeclaration, bool] = field(default_factory=dict, init=False)
    _rows: "dict[RowDeclaration, Rows | None]" = field(default_factory=dict, init=False)
    _aliases: Iterator[int] = field(default_factory=itertools.count, init=False)

    def can_view(self, target: RowDeclaration) -> bool:
        """Return True if the caller may view rows of a related toolset."""
        allowed = self._viewable.get(target)
        if allowed is None:
            allowed = self._viewable[target] = target is self.toolset or target.can_view(self.ctx)
        return allowed

    def get_visible_rows(self, target: RowDeclaration) -> Rows | None:
        """Return the related rows that the caller may see, or None for all rows."""
        if not target.is_scoped:
            return None
        if target not in self._rows:
            self._rows[target] = target.get_queryset(self.ctx).using(self.database).order_by()
        return self._rows[target]

    def can_use(self, item: ExposedField) -> bool:
        """Return True if the caller may use this field.

        A field is unusable if its path crosses a model that the caller may not view.
        """
        return all(self.can_view(hop.target) for hop in item.hops)

    def resolve_field(self, name: str, purpose: Purpose) -> ExposedField:
        """Return the field for a name given by a client.

        Raises:
            UnknownFieldError: the name is unknown or hidden; the message is the same for both.
        """
        names = self.toolset.exposure.get_fields(purpose)
        item = names.get(name)
        if item is None or not self.can_use(item):
            known = [other.name for other in names.values() if self.can_use(other)]
            raise UnknownFieldError(f"{describe_unknown(name, known, purpose)}; {format_names(known)}")
        return item

    def build_expression(self, item: ExposedField, source: str | None = None) -> Any:
        """Return the SQL expression of a to-one field, which is NULL behind hidden rows.

        `source` is another column at the end of the same path, such as the label of a relation.
        """
        path = item.source if source is None else source
        conditions = self.build_conditions(item)
        if not conditions:
            return F(path)
        # NullIf instead of a constant NULL: if no row is visible, Django reduces the CASE to its default. PostgreSQL
        # neither orders nor groups by constants.
        nothing = NullIf(F(path), F(path))
        column = get_value_field(item, labelled=bool(source))
        return Case(When(Q(*conditions), then=F(path)), default=nothing, output_field=column)

    def create_alias(self) -> str:
        """Return a new name for an expression, unique in the call's statements."""
        return f"_mcp_{next(self._aliases)}"

    def build_conditions(self, item: ExposedField) -> list[Q]:
        """Return the conditions that every row on the path is visible."""
        visible_rows_by_path = [(hop.path, self.get_visible_rows(hop.target)) for hop in item.hops]
        if item.is_relation and item.target is not None:
            visible_rows_by_path.append((_get_relation_path(item), self.get_visible_rows(item.target)))
        return [Q(**{f"{path}__in": rows}) for path, rows in visible_rows_by_path if rows is not None]


def get_value_field(item: ExposedField, *, labelled: bool = False) -> Any:
    """Return the model field of a field's values.

    For a relation that is the primary key on the other side, or its label.
    """
    column = item.model_field
    if labelled and item.target is not None:
        return item.target.model._meta.get_field(str(item.target.label_path))
    if item.is_relation and not (isinstance(column, models.ForeignKey) and column.target_field.primary_key):
        column = column.related_model._meta.pk
    while isinstance(column, models.ForeignKey):
        column = column.target_field
    return column


def _get_relation_path(item: ExposedField) -> str:
    """Return the ORM path of a relation itself."""
    return f"{item.hops[-1].path}__{item.model_field.name}" if item.hops else str(item.model_field.name)


def format_names(known: list[str]) -> str:
    """Return the available names, to follow a message about an unknown name."""
    return f"there are: {', '.join(known[:40])}" if known else "there are none"
