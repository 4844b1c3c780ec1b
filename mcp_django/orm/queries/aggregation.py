"""Aggregation: groups and metrics of a client as a single SQL statement."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import models
from django.db.models import Avg, Count, F, Max, Min, OrderBy, Q, Sum
from django.db.models.constants import LOOKUP_SEP
from django.db.models.functions import ExtractDay, ExtractMonth, ExtractYear, TruncDate

from mcp_django.orm.codecs import Codec
from mcp_django.orm.codecs.codec import METRIC_LOOKUPS, Convert
from mcp_django.orm.codecs.django_fields import (
    BIG_INTEGER_CODEC,
    DATE_CODEC,
    INTEGER_CODEC,
    NUMBER_CODEC,
    build_decimal_codec,
)
from mcp_django.orm.declaration.exposed_fields import ExposedField, Purpose
from mcp_django.orm.queries.serialize import build_reference
from mcp_django.orm.queries.visibility import VisibilityScope, format_names
from mcp_django.orm.row_permissions import Rows
from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject
from mcp_django.schema.validation.messages import describe_unknown

AGGREGATE_FUNCTIONS: Mapping[str, type[models.Aggregate]] = {
    "count": Count,
    "sum": Sum,
    "avg": Avg,
    "min": Min,
    "max": Max,
}
_DATE_PARTS: Mapping[str, Convert] = {
    "year": ExtractYear,
    "month": ExtractMonth,
    "day": ExtractDay,
    "date": TruncDate,
}


@dataclass(frozen=True, slots=True, eq=False)
class AggregationGroup:
    """Field, or part of a date ("placed__year"), that rows are grouped by."""

    name: str
    item: ExposedField
    codec: Codec
    expression: Any
    label: Any = None
    """Expression of the related row's label, for a relation."""
    is_target_visible: bool = False
    """True if the caller may view the other model, for a relation."""

    def serialize(self, value: object, label: object) -> object:
        """Return the group's value as JSON."""
        pk = self.codec.serialize(value)
        target = self.item.target
        if target is None or value is None or not self.item.is_relation:
            return pk
        return build_reference(target, pk, label, visible=self.is_target_visible)


@dataclass(frozen=True, slots=True, eq=False)
class AggregationMetric:
    """Aggregate function that is computed for each group."""

    name: str
    codec: Codec
    expression: Any


def resolve_group(scope: VisibilityScope, name: str) -> AggregationGroup:
    """Return the group for a name given by a client.

    Raises:
        ToolError: the field is unknown or does not have this part of a date.
    """
    known = scope.toolset.exposure.ordering
    path, _, part = name.rpartition(LOOKUP_SEP)
    if part in _DATE_PARTS and name not in known:
        item = scope.resolve_field(path, Purpose.AGGREGATE)
        if part not in item.codec.lookups:
            raise ToolError(f"group_by: {path} has no {part}; dates have year, month and day")
        return AggregationGroup(
            name,
            item,
            DATE_CODEC if part == "date" else INTEGER_CODEC,
            _DATE_PARTS[part](scope.build_expression(item)),
        )
    item = scope.resolve_field(name, Purpose.AGGREGATE)
    visible = item.target is not None and scope.can_view(item.target)
    label = scope.build_expression(item, item.label) if visible and item.label is not None else None
    return AggregationGroup(name, item, item.codec, scope.build_expression(item), label, visible)


def resolve_metric(scope: VisibilityScope, request: JSONMapping) -> AggregationMetric:
    """Return the metric for a function of a field, or for the number of rows.

    Raises:
        ToolError: the field is unknown or does not support the function.
    """
    function, field, distinct = request["function"], request.get("field"), bool(request.get("distinct"))
    if field is None:
        if function != "count":
            raise ToolError(f"metrics: {function} requires a field")
        return AggregationMetric(request.get("name", "count"), INTEGER_CODEC, Count("pk"))

    item = scope.resolve_field(field, Purpose.AGGREGATE)
    if function not in item.codec.aggregates:
        allowed = ", ".join(sorted(item.codec.aggregates))
        raise ToolError(f"metrics: {function} does not apply to {field}, which is {item.codec.kind}; use {allowed}")
    name = request.get("name", f"{function}_{field}" if not distinct else f"{function}_distinct_{field}")
    options: JSONObject = {"distinct": True} if distinct else {}
    if distinct and function != "count":
        raise ToolError("metrics: distinct is supported by count only")

    codec = item.codec
    if function == "count":
        codec = INTEGER_CODEC
    elif function == "avg" and codec.kind == "integer":
        codec, options["output_field"] = NUMBER_CODEC, models.FloatField()
    elif function == "sum" and codec.kind == "integer":
        # PostgreSQL sums to numeric. Django converts the sum of an IntegerField back, but not that of a key.
        codec, options["output_field"] = BIG_INTEGER_CODEC, models.BigIntegerField()
    elif function in ("sum", "avg") and codec.kind == "decimal":
        # A sum may have more digits than the column.
        codec = build_decimal_codec(models.DecimalField(max_digits=None, decimal_places=None))
    return AggregationMetric(name, codec, AGGREGATE_FUNCTIONS[function](scope.build_expression(item), **options))


class Aggregation:
    """Groups and metrics of one call.

    Raises:
        ToolError: a name is unknown, used twice, or incompatible with the others.
    """

    def __init__(self, scope: VisibilityScope, group_by: Sequence[str], metrics: Sequence[JSONMapping]) -> None:
        self.groups = [resolve_group(scope, name) for name in dict.fromkeys(group_by)]
        self.metrics = [resolve_metric(scope, asked) for asked in metrics]
        names = [*(group.name for group in self.groups), *(metric.name for metric in self.metrics)]
        duplicate = next((name for name in names if names.count(name) > 1), None)
        if duplicate is not None:
            raise ToolError(f"metrics: two results are named {duplicate!r}; rename one of them")

        self._group_aliases = {group.name: f"_mcp_group_{n}" for n, group in enumerate(self.groups)}
        self._metric_aliases = {metric.name: f"_mcp_metric_{n}" for n, metric in enumerate(self.metrics)}

    def apply(self, rows: Rows, having: JSONMapping | None, order_by: Sequence[str] | None) -> Rows:
        """Return the grouped queryset; `serialize_row` converts its tuples."""
        metrics = {self._metric_aliases[metric.name]: metric.expression for metric in self.metrics}
        columns = {self._group_aliases[group.name]: group.expression for group in self.groups}
        labels = {f"{self._group_aliases[g.name]}_label": g.label for g in self.groups if g.label is not None}

        order = [self._build_ordering(name) for name in order_by or ()]
        order += [self._build_ordering(group.name) for group in self.groups]
        if not columns:
            # A constant group yields one row of metrics even without any rows.
            columns = {"_mcp_all": models.Value(1)}

        queryset: Rows = rows.order_by().values(**columns, **labels).annotate(**metrics)
        if having:
            queryset = queryset.filter(*(self._build_having_condition(name, value) for name, value in having.items()))
        queryset = queryset.order_by(*order)
        return queryset.values_list(*columns, *labels, *metrics)

    def _build_ordering(self, name: str) -> OrderBy:
        plain = name.removeprefix("-")
        alias = self._group_aliases.get(plain) or self._metric_aliases.get(plain)
        if alias is None:
            known = [*self._group_aliases, *self._metric_aliases]
            raise ToolError(f"{describe_unknown(plain, known, 'name to order groups by')}; {format_names(known)}")
        if name.startswith("-"):
            return OrderBy(F(alias), descending=True, nulls_last=True)
        return OrderBy(F(alias), nulls_last=True)

    def _build_having_condition(self, name: str, value: object) -> Q:
        path, separator, lookup = name.rpartition(LOOKUP_SEP)
        if name in self._metric_aliases or not separator:
            path, lookup = name, "exact"
        metric = next((metric for metric in self.metrics if metric.name == path), None)
        if metric is None:
            raise ToolError(
                f"{describe_unknown(path, self._metric_aliases, 'metric in having')}; "
                f"{format_names(list(self._metric_aliases))}"
            )
        if lookup not in METRIC_LOOKUPS:
            raise ToolError(
                f"having: {path} does not support the lookup {lookup[:60]!r}; use {', '.join(METRIC_LOOKUPS)}"
            )

        try:
            bound = metric.codec.decode(value)
        except ValueError as problem:
            raise ToolError(f"having: {name}: {problem}") from None
        return Q(**{f"{self._metric_aliases[path]}{LOOKUP_SEP}{lookup}": bound})

    def serialize_row(self, row: Sequence[object]) -> JSONObject:
        """Return one group as JSON."""
        first_label = len(self.groups) or 1
        labels = iter(row[first_label:])
        serialized = {
            group.name: group.serialize(value, next(labels) if group.label is not None else None)
            for group, value in zip(self.groups, row, strict=False)
        }
        values = row[len(row) - len(self.metrics) :]
        return serialized | {
            metric.name: metric.codec.serialize(value) for metric, value in zip(self.metrics, values, strict=True)
        }
