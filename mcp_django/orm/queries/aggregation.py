"""Aggregation: groups and metrics of a client as a single SQL statement."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import models
from django.db.models import Avg, Count, F, Max, Min, OrderBy, Q, QuerySet, Sum
from django.db.models.constants import LOOKUP_SEP
from django.db.models.functions import ExtractDay, ExtractMonth, ExtractYear, TruncDate

from mcp_django.orm.fields.codecs import COMPARED, Codec, codec_of
from mcp_django.orm.fields.exposed_fields import ExposedField, Purpose
from mcp_django.orm.queries.serialize import referred
from mcp_django.orm.queries.visibility import Scope, listed
from mcp_django.protocol.errors import ToolError
from mcp_django.schema.validation.messages import unknown

FUNCTIONS: Mapping[str, type[models.Aggregate]] = {"count": Count, "sum": Sum, "avg": Avg, "min": Min, "max": Max}
_PARTS: Mapping[str, Callable[[Any], Any]] = {
    "year": ExtractYear,
    "month": ExtractMonth,
    "day": ExtractDay,
    "date": TruncDate,
}
_INTEGER = codec_of(models.BigIntegerField())
_NUMBER = codec_of(models.FloatField())
_DATE = codec_of(models.DateField())


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Field, or part of a date ("placed__year"), that rows are grouped by."""

    name: str
    item: ExposedField
    codec: Codec
    expression: Any
    label: Any = None
    """Expression of the related row's label, for a relation."""
    visible: bool = False
    """True if the caller may view the other model, for a relation."""

    def shown(self, value: Any, label: Any) -> Any:
        """Return the group's value as JSON."""
        pk = self.codec.shown(value)
        target = self.item.target
        if target is None or value is None or not self.item.is_relation:
            return pk
        if not self.visible:
            return {"pk": pk}
        return referred(target, pk, label)


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """Aggregate function that is computed for each group."""

    name: str
    codec: Codec
    expression: Any


def group_of(scope: Scope, name: str) -> Group:
    """Return the group for a name given by a client.

    Raises:
        ToolError: the field is unknown or does not have this part of a date.
    """
    known = scope.toolset.exposure.ordering
    path, _, part = name.rpartition(LOOKUP_SEP)
    if part in _PARTS and name not in known:
        item = scope.resolve(path, Purpose.AGGREGATE)
        if item.codec is None or part not in item.codec.lookups:
            raise ToolError(f"group_by: {path} has no {part}; dates have year, month and day")
        return Group(name, item, _DATE if part == "date" else _INTEGER, _PARTS[part](scope.expression(item)))
    item = scope.resolve(name, Purpose.AGGREGATE)
    assert item.codec is not None  # every orderable field is a column
    visible = item.target is not None and scope.may_view(item.target)
    label = scope.expression(item, item.label) if visible and item.label is not None else None
    return Group(name, item, item.codec, scope.expression(item), label, visible)


def metric_of(scope: Scope, asked: Mapping[str, Any]) -> Metric:
    """Return the metric for a function of a field, or for the number of rows.

    Raises:
        ToolError: the field is unknown or does not support the function.
    """
    function, field, distinct = asked["function"], asked.get("field"), bool(asked.get("distinct"))
    if field is None:
        if function != "count":
            raise ToolError(f"metrics: {function} requires a field")
        return Metric(asked.get("name", "count"), _INTEGER, Count("pk"))

    item = scope.resolve(field, Purpose.AGGREGATE)
    assert item.codec is not None  # every orderable field is a column
    if function not in item.codec.aggregates:
        allowed = ", ".join(sorted(item.codec.aggregates))
        raise ToolError(f"metrics: {function} does not apply to {field}, which is {item.codec.kind}; use {allowed}")
    name = asked.get("name", f"{function}_{field}" if not distinct else f"{function}_distinct_{field}")
    options: dict[str, Any] = {"distinct": True} if distinct else {}
    if distinct and function != "count":
        raise ToolError("metrics: distinct is supported by count only")

    codec = item.codec
    if function == "count":
        codec = _INTEGER
    elif function == "avg" and codec.kind == "integer":
        codec = _NUMBER
    elif function in ("sum", "avg") and codec.kind == "decimal":
        # A sum may have more digits than the column.
        codec = codec_of(models.DecimalField(max_digits=None, decimal_places=None))
    return Metric(name, codec, FUNCTIONS[function](scope.expression(item), **options))


class Aggregation:
    """Groups and metrics of one call.

    Raises:
        ToolError: a name is unknown, used twice, or incompatible with the others.
    """

    def __init__(self, scope: Scope, group_by: Sequence[str], metrics: Sequence[Mapping[str, Any]]) -> None:
        self.groups = [group_of(scope, name) for name in dict.fromkeys(group_by)]
        self.metrics = [metric_of(scope, asked) for asked in metrics]
        names = [*(group.name for group in self.groups), *(metric.name for metric in self.metrics)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ToolError(f"metrics: two results are named {twice!r}; rename one of them")

        self._aliases = {group.name: f"_mcp_group_{n}" for n, group in enumerate(self.groups)}
        self._metrics = {metric.name: f"_mcp_metric_{n}" for n, metric in enumerate(self.metrics)}

    def apply(
        self, rows: "QuerySet[Any, Any]", having: Mapping[str, Any] | None, order_by: Sequence[str] | None
    ) -> "QuerySet[Any, Any]":
        """Return the grouped queryset; `serialize_row` converts its tuples."""
        metrics = {self._metrics[metric.name]: metric.expression for metric in self.metrics}
        columns = {self._aliases[group.name]: group.expression for group in self.groups}
        labels = {f"{self._aliases[g.name]}_label": g.label for g in self.groups if g.label is not None}

        order = [self._ordering(name) for name in order_by or ()]
        order += [self._ordering(group.name) for group in self.groups]
        if not columns:
            # A constant group yields one row of metrics even without any rows.
            columns = {"_mcp_all": models.Value(1)}

        found: QuerySet[Any, Any] = rows.order_by().values(**columns, **labels).annotate(**metrics)
        if having:
            found = found.filter(*(self._having(name, value) for name, value in having.items()))
        found = found.order_by(*order)
        return found.values_list(*columns, *labels, *metrics)

    def _ordering(self, name: str) -> OrderBy:
        plain = name.removeprefix("-")
        alias = self._aliases.get(plain) or self._metrics.get(plain)
        if alias is None:
            known = [*self._aliases, *self._metrics]
            raise ToolError(f"{unknown(plain, known, 'name to order groups by')}; {listed(known)}")
        if name.startswith("-"):
            return OrderBy(F(alias), descending=True, nulls_last=True)
        return OrderBy(F(alias), nulls_last=True)

    def _having(self, name: str, value: Any) -> Q:
        path, separator, lookup = name.rpartition(LOOKUP_SEP)
        if name in self._metrics or not separator:
            path, lookup = name, "exact"
        metric = next((metric for metric in self.metrics if metric.name == path), None)
        if metric is None:
            raise ToolError(f"{unknown(path, self._metrics, 'metric in having')}; {listed(list(self._metrics))}")
        if lookup not in COMPARED:
            raise ToolError(f"having: {path} does not support the lookup {lookup[:60]!r}; use {', '.join(COMPARED)}")

        try:
            wanted = metric.codec.decode(value)
        except ValueError as problem:
            raise ToolError(f"having: {name}: {problem}") from None
        return Q(**{f"{self._metrics[path]}{LOOKUP_SEP}{lookup}": wanted})

    def shown(self, row: Sequence[Any]) -> dict[str, Any]:
        """Return one group as JSON."""
        at = len(self.groups) or 1
        labels = iter(row[at:])
        found = {
            group.name: group.shown(value, next(labels) if group.label is not None else None)
            for group, value in zip(self.groups, row, strict=False)
        }
        values = row[len(row) - len(self.metrics) :]
        return found | {
            metric.name: metric.codec.shown(value) for metric, value in zip(self.metrics, values, strict=True)
        }
