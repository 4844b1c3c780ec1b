"""Serialization of rows to JSON, by one compiled plan per selection of fields.

If all fields are columns, rows are read as tuples (`values_list`) without model instances.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.db.models import F, QuerySet

from mcp_django.orm.fields.codecs import Codec
from mcp_django.orm.fields.exposed_fields import ExposedField
from mcp_django.orm.queries.limits import RELATED
from mcp_django.orm.queries.visibility import Scope
from mcp_django.protocol.errors import ToolError

if TYPE_CHECKING:
    from mcp_django.orm.queries.pagination import Order
    from mcp_django.orm.toolset import ModelToolset

KEPT = 200
"""Maximum number of cached plans of a toolset, and of cached querysets of a plan."""
Row = dict[str, Any]
Step = Callable[[list[Row], Sequence[Sequence[Any]]], None]
"""Function that converts one key of all rows to JSON, in place.

The second argument holds all columns of the rows.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Compiled instructions to read and serialize rows of one selection of fields."""

    columns: tuple[tuple[ExposedField, str], ...]
    """Fields and ORM paths to read: first one for each key, then labels."""
    keys: tuple[str, ...]
    steps: tuple[Step, ...]
    many: tuple[ExposedField, ...]
    computed: tuple[ExposedField, ...]
    is_plain: bool
    """True if all columns are the same for all callers.

    Querysets can then be cached.
    """
    selections: dict[Any, "QuerySet[Any, Any]"] = field(default_factory=dict)
    """Querysets cached by `select_columns`, by order and number of extra columns."""

    def shown(self, values: Sequence[Sequence[Any]]) -> list[Row]:
        """Convert rows of column values to JSON."""
        keys = self.keys
        rows = [dict(zip(keys, row, strict=False)) for row in values]
        for step in self.steps:
            step(rows, values)
        return rows


def plan_of(toolset: "ModelToolset", scope: Scope, names: Collection[str] | None) -> Plan:
    """Return the plan for these fields, or for all fields, that the caller may see.

    The primary key is always included. `names` are already resolved fields of the exposure.
    """
    exposure = toolset.exposure
    wanted = [item for item in exposure.fields.values() if (names is None or item.name in names) and scope.sees(item)]
    labelled = tuple(item.target is not None and scope.may_view(item.target) for item in wanted)

    key = (tuple(item.name for item in wanted), labelled)
    plan: Plan | None = exposure.plans.get(key)
    if plan is None:
        plan = _compile(exposure.pk, wanted, labelled, not toolset.is_scoped)
        # Clients can choose any subset of the fields, so the number of cached plans is limited.
        if len(exposure.plans) < KEPT:
            exposure.plans[key] = plan
    return plan


def selected(
    scope: Scope, rows: "QuerySet[Any, Any]", plan: Plan, extra: Sequence[Any] = (), *, order: "Order | None" = None
) -> "QuerySet[Any, Any]":
    """Return the ordered rows, with the plan's columns selected if cacheable.

    `rows` must be all rows that the caller may see. The result can be filtered before it is passed to `read_rows`.
    """
    if not plan.is_plain or (order is not None and not order.is_plain):
        return rows.order_by() if order is None else order.apply(rows)

    name = (None if order is None else order.name, len(extra))
    kept = plan.selections.get(name)
    if kept is None:
        ordered = rows.order_by() if order is None else order.apply(rows)
        kept = ordered.values_list(*_once([path for _, path in plan.columns]), *extra)
        if len(plan.selections) < KEPT:
            plan.selections[name] = kept
    return kept.using(scope.database)


def read(
    scope: Scope, rows: "QuerySet[Any, Any]", plan: Plan, extra: Sequence[Any] = (), *, limit: int | None = None
) -> tuple[list[Row], list[Sequence[Any]]]:
    """Return the first `limit` rows as JSON, and the database values of all rows.

    The database values are the plan's columns followed by the `extra` columns. Reading takes one statement, and one
    more for each to-many relation.
    """
    if getattr(rows, "_fields", None) is not None:
        values = list(rows)  # columns were chosen by `select_columns`
        found = plan.shown(values[:limit])
    else:
        columns = [path if item.is_plain else _masked(scope, item, path) for item, path in plan.columns]
        if plan.computed:
            found, values = _instances(scope, rows, plan, [*columns, *extra], limit)
        else:
            values = list(rows.values_list(*_once(columns), *extra))
            found = plan.shown(values[:limit])

    for item in plan.many:
        _add_many(scope, item, found, [row[0] for row in values[:limit]])
    if plan.many or plan.computed:
        # Restore the declared order.
        names = {*plan.keys, *(item.name for item in (*plan.many, *plan.computed))}
        order = [name for name in ("pk", *scope.toolset.exposure.fields) if name in names]
        found = [{name: row[name] for name in order} for row in found]
    return found, values


def _instances(
    scope: Scope, rows: "QuerySet[Any, Any]", plan: Plan, columns: Sequence[Any], limit: int | None
) -> tuple[list[Row], list[Sequence[Any]]]:
    """Read rows as model instances, because methods or properties are shown."""
    related = scope.toolset.list_select_related
    if related:
        rows = rows.select_related() if related is True else rows.select_related(*related)

    own = {field.attname for field in scope.toolset.model._meta.concrete_fields}
    names: list[str] = []
    added: dict[str, Any] = {}
    for number, column in enumerate(columns):
        if isinstance(column, str) and column in own:
            names.append(column)
        else:
            names.append(f"_mcp_column_{number}")
            added[names[-1]] = F(column) if isinstance(column, str) else column

    instances = list(rows.annotate(**added))
    values = [_values(instance, names) for instance in instances]
    found = plan.shown(values[:limit])
    for instance, row in zip(instances, found, strict=False):
        for item in plan.computed:
            assert item.computed is not None
            row[item.name] = item.computed.value(instance, scope.ctx)
    return found, values


def _values(instance: Any, names: Sequence[str]) -> Sequence[Any]:
    # Avoid getattr: the descriptor of a file field returns an object instead of a name. Deferred fields need it.
    state = vars(instance)
    return [state[name] if name in state else getattr(instance, name) for name in names]


def _once(columns: Sequence[Any]) -> list[Any]:
    """Return the columns for `values_list`, which would merge repeated names."""
    again = [isinstance(name, str) and name in columns[:place] for place, name in enumerate(columns)]
    return [F(name) if twice else name for name, twice in zip(columns, again, strict=True)]


def _masked(scope: Scope, item: ExposedField, path: str) -> Any:
    return scope.expression(item, None if path == item.source else path)


def _compile(pk: ExposedField, wanted: Iterable[ExposedField], labelled: Sequence[bool], fixed: bool) -> Plan:
    columns, keys, steps = [(pk, pk.source)], ["pk"], []
    if pk.codec is not None and pk.codec.encode is not None:
        steps.append(_encoding("pk", pk.codec))

    many, computed, relations = [], [], []
    for item, with_label in zip(wanted, labelled, strict=True):
        if item.computed is not None:
            computed.append(item)
        elif item.many:
            many.append(item)
        else:
            columns.append((item, item.source))
            keys.append(item.name)
            if item.is_relation and item.target is not None:
                relations.append((item, with_label))
            elif item.codec is not None and item.codec.encode is not None:
                steps.append(_encoding(item.name, item.codec))

    for item, with_label in relations:
        place = None
        if with_label and item.label is not None:
            place = len(columns)
            columns.append((item, item.label))
        steps.append(_reference(item, place, with_label))
    plain = fixed and not computed and all(item.is_plain for item, _ in columns)
    return Plan(tuple(columns), tuple(keys), tuple(steps), tuple(many), tuple(computed), plain)


def _encoding(key: str, codec: Codec) -> Step:
    encode, encoder = codec.encode, codec.encoder
    make: Any = (lambda: encode) if encoder is None else encoder

    def step(rows: list[Row], values: Sequence[Sequence[Any]]) -> None:
        encode = make()
        for row in rows:
            value = row[key]
            if value is not None:
                row[key] = encode(value)

    return step


def _reference(item: ExposedField, place: int | None, visible: bool) -> Step:
    """Return a step that builds references with key, label and URI.

    If the other model is hidden from the caller, a reference has only its key.
    """
    key, shown, target = item.name, item.codec.shown if item.codec is not None else _same, item.target

    assert target is not None

    def step(rows: list[Row], values: Sequence[Sequence[Any]]) -> None:
        # Rows of a page often share the same few related rows.
        known: dict[Any, Any] = {None: None}
        for row, columns in zip(rows, values, strict=True):
            value = row[key]
            reference = known.get(value, known)
            if reference is known:
                pk = shown(value)
                reference = referred(target, pk, None if place is None else columns[place]) if visible else {"pk": pk}
                known[value] = reference
            row[key] = reference

    return step


def referred(target: "ModelToolset", pk: Any, label: Any) -> Row:
    """Return a reference to a visible row, with its URI if that can be read."""
    reference = {"pk": pk, "label": str(pk if label is None else label)}
    if target.serves_rows:
        reference["uri"] = target.uri(pk)
    return reference


def _same(value: Any) -> Any:
    return value


def _add_many(scope: Scope, item: ExposedField, found: Sequence[Row], keys: Sequence[Any]) -> None:
    """Add the values of a to-many relation, read for all rows in one statement."""
    target = item.target
    visible = target is not None and scope.may_view(target)

    lists: dict[Any, list[Any]] = {key: [] for key in keys}
    if keys:
        columns = ["pk", item.source, *([item.label] if visible and item.label is not None else [])]
        rows = scope.toolset.model._base_manager.using(scope.database).filter(
            *scope.conditions(item), pk__in=keys, **{f"{item.source}__isnull": False}
        )
        related = list(rows.order_by("pk", item.source).values_list(*columns)[: RELATED + 1])
        if len(related) > RELATED:
            raise ToolError(
                f"{item.name}: more than {RELATED} related rows on this page; request fewer rows, or other fields"
            )
        shown = item.codec.shown if item.codec is not None else _same
        for key, value, *label in related:
            pk: Any = shown(value)
            if item.is_relation and target is not None:
                pk = referred(target, pk, label[0] if label else None) if visible else {"pk": pk}
            lists[key].append(pk)

    for row, key in zip(found, keys, strict=True):
        row[item.name] = lists[key]
