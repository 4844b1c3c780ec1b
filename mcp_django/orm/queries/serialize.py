"""Serialization of rows to JSON, by one compiled plan per selection of fields.

If all fields are columns, rows are read as tuples (`values_list`) without model instances.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import F

from mcp_django.orm.codecs import Codec
from mcp_django.orm.codecs.codec import to_plain_text
from mcp_django.orm.declaration.exposed_fields import ExposedField, Purpose, RowDeclaration
from mcp_django.orm.queries.pagination import RowOrder
from mcp_django.orm.queries.visibility import MAX_RELATED_ROWS, VisibilityScope
from mcp_django.orm.row_permissions import Rows
from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.jsonrpc import JSONObject

MAX_CACHED_PLANS = 200
"""Maximum number of cached plans of a toolset, and of cached querysets of a plan."""
Row = dict[str, Any]
RowValues = Sequence[Any]
"""Values of a row, in the order of the selected columns."""
Step = Callable[[list[Row], Sequence[RowValues]], None]
"""Function that converts one key of all rows to JSON, in place.

The second argument holds all columns of the rows.
"""


@dataclass(frozen=True, slots=True, eq=False)
class ReadPlan:
    """Compiled instructions to read and serialize rows of one selection of fields."""

    columns: tuple[tuple[ExposedField, str], ...]
    """Fields and ORM paths to read: first one for each key, then labels."""
    keys: tuple[str, ...]
    steps: tuple[Step, ...]
    to_many_fields: tuple[ExposedField, ...]
    computed_fields: tuple[ExposedField, ...]
    is_caller_independent: bool
    """True if all columns are the same for all callers.

    Querysets can then be cached.
    """
    queryset_cache: dict[Any, Rows] = field(default_factory=dict)
    """Querysets cached by `select_columns`, by order and number of extra columns."""

    def serialize(self, values: Sequence[RowValues]) -> list[Row]:
        """Convert rows of column values to JSON."""
        keys = self.keys
        rows = [dict(zip(keys, row, strict=False)) for row in values]
        for step in self.steps:
            step(rows, values)
        return rows


def get_plan(scope: VisibilityScope, names: Collection[str] | None = None) -> ReadPlan:
    """Return the plan for the fields that a client names, or for all fields that the caller may see.

    The primary key is always included.

    Raises:
        ToolError: a name is unknown or hidden.
    """
    exposure = scope.toolset.exposure
    if names is not None:
        names = {scope.resolve_field(name, Purpose.READ).name for name in names}
    selected_fields = [
        item for item in exposure.fields.values() if (names is None or item.name in names) and scope.can_use(item)
    ]
    label_visibility = tuple(item.target is not None and scope.can_view(item.target) for item in selected_fields)

    key = (tuple(item.name for item in selected_fields), label_visibility)
    plan: ReadPlan | None = exposure.cache.get(key)
    if plan is None:
        plan = _compile_plan(exposure.pk, selected_fields, label_visibility, not scope.toolset.is_scoped)
        # Clients can choose any subset of the fields, so the number of cached plans is limited.
        if len(exposure.cache) < MAX_CACHED_PLANS:
            exposure.cache[key] = plan
    return plan


def select_columns(
    scope: VisibilityScope,
    rows: Rows,
    plan: ReadPlan,
    extra: Sequence[Any] = (),
    *,
    order: RowOrder | None = None,
) -> Rows:
    """Return the ordered rows, with the plan's columns selected if cacheable.

    `rows` must be all rows that the caller may see. The result can be filtered before it is passed to `read_rows`.
    An `extra` expression other than F depends on the caller.
    """
    is_cacheable = plan.is_caller_independent and (order is None or order.is_caller_independent)
    if not is_cacheable or not all(isinstance(column, F) for column in extra):
        return rows.order_by() if order is None else order.apply(rows)

    name = (None if order is None else order.name, len(extra))
    cached = plan.queryset_cache.get(name)
    if cached is None:
        ordered = rows.order_by() if order is None else order.apply(rows)
        cached = ordered.values_list(*_deduplicate_columns([path for _, path in plan.columns]), *extra)
        if len(plan.queryset_cache) < MAX_CACHED_PLANS:
            plan.queryset_cache[name] = cached
    return cached.using(scope.database)


def read_rows(
    scope: VisibilityScope,
    rows: Rows,
    plan: ReadPlan,
    extra: Sequence[Any] = (),
    *,
    limit: int | None = None,
) -> tuple[list[Row], list[RowValues]]:
    """Return the first `limit` rows as JSON, and the database values of all rows.

    The database values are the plan's columns followed by the `extra` columns. Reading takes one statement, and one
    more for each to-many relation.
    """
    if getattr(rows, "_fields", None) is not None:
        values = list(rows)  # columns were chosen by `select_columns`
        serialized = plan.serialize(values[:limit])
    else:
        columns = [
            path if item.is_caller_independent else scope.build_expression(item, None if path == item.source else path)
            for item, path in plan.columns
        ]
        if plan.computed_fields:
            serialized, values = _read_instances(scope, rows, plan, [*columns, *extra], limit)
        else:
            values = list(rows.values_list(*_deduplicate_columns(columns), *extra))
            serialized = plan.serialize(values[:limit])

    for item in plan.to_many_fields:
        _add_to_many_values(scope, item, serialized, [row[0] for row in values[:limit]])
    if plan.to_many_fields or plan.computed_fields:
        # Restore the declared order.
        names = {*plan.keys, *(item.name for item in (*plan.to_many_fields, *plan.computed_fields))}
        order = [name for name in ("pk", *scope.toolset.exposure.fields) if name in names]
        serialized = [{name: row[name] for name in order} for row in serialized]
    return serialized, values


def _read_instances(
    scope: VisibilityScope, rows: Rows, plan: ReadPlan, columns: Sequence[Any], limit: int | None
) -> tuple[list[Row], list[RowValues]]:
    """Read rows as model instances, because methods or properties are shown."""
    related = scope.toolset.list_select_related
    if related:
        rows = rows.select_related() if related is True else rows.select_related(*related)

    own_columns = {field.attname for field in scope.toolset.model._meta.concrete_fields}
    names: list[str] = []
    added: JSONObject = {}
    for number, column in enumerate(columns):
        if isinstance(column, str) and column in own_columns:
            names.append(column)
        else:
            names.append(f"_mcp_column_{number}")
            added[names[-1]] = F(column) if isinstance(column, str) else column

    instances = list(rows.annotate(**added))
    values = [_get_instance_values(instance, names) for instance in instances]
    serialized = plan.serialize(values[:limit])
    for instance, row in zip(instances, serialized, strict=False):
        for item in plan.computed_fields:
            assert item.computed is not None
            row[item.name] = item.computed.get_value(instance, scope.ctx)
    return serialized, values


def _get_instance_values(instance: object, names: Sequence[str]) -> RowValues:
    # Avoid getattr: the descriptor of a file field returns an object instead of a name. Deferred fields need it.
    state = vars(instance)
    return [state[name] if name in state else getattr(instance, name) for name in names]


def _deduplicate_columns(columns: Sequence[Any]) -> list[Any]:
    """Return the columns for `values_list`, which would merge repeated names."""
    is_repeated = [isinstance(name, str) and name in columns[:place] for place, name in enumerate(columns)]
    return [F(name) if twice else name for name, twice in zip(columns, is_repeated, strict=True)]


def _compile_plan(
    pk: ExposedField, fields: Iterable[ExposedField], label_visibility: Sequence[bool], has_fixed_rows: bool
) -> ReadPlan:
    columns, keys, steps = [(pk, pk.source)], ["pk"], []
    if pk.codec.encode is not None:
        steps.append(_build_encoding_step("pk", pk.codec))

    many, computed, relations = [], [], []
    for item, with_label in zip(fields, label_visibility, strict=True):
        if item.computed is not None:
            computed.append(item)
        elif item.is_to_many:
            many.append(item)
        else:
            columns.append((item, item.source))
            keys.append(item.name)
            if item.is_relation and item.target is not None:
                relations.append((item, with_label))
            elif item.codec.encode is not None:
                steps.append(_build_encoding_step(item.name, item.codec))

    for item, with_label in relations:
        place = None
        if with_label and item.label is not None:
            place = len(columns)
            columns.append((item, item.label))
        steps.append(_build_reference_step(item, place, with_label))
    is_caller_independent = has_fixed_rows and not computed and all(item.is_caller_independent for item, _ in columns)
    return ReadPlan(tuple(columns), tuple(keys), tuple(steps), tuple(many), tuple(computed), is_caller_independent)


def _build_encoding_step(key: str, codec: Codec) -> Step:
    encode, encoder = codec.encode, codec.encode_factory
    make: Any = (lambda: encode) if encoder is None else encoder

    def step(rows: list[Row], values: Sequence[RowValues]) -> None:
        encode = make()
        for row in rows:
            value = row[key]
            if value is not None:
                row[key] = encode(value)

    return step


def _build_reference_step(item: ExposedField, place: int | None, visible: bool) -> Step:
    """Return a step that builds references with key, label and URI.

    If the other model is hidden from the caller, a reference has only its key.
    """
    key, serialize, target = item.name, item.codec.serialize, item.target
    assert target is not None

    def step(rows: list[Row], values: Sequence[RowValues]) -> None:
        # Rows of a page often share the same few related rows.
        known: dict[Any, Any] = {None: None}
        for row, columns in zip(rows, values, strict=True):
            value = row[key]
            reference = known.get(value, known)
            if reference is known:
                pk = serialize(value)
                label = None if place is None else columns[place]
                reference = build_reference(target, pk, label, visible=visible)
                known[value] = reference
            row[key] = reference

    return step


def build_reference(target: RowDeclaration, pk: object, label: object, *, visible: bool) -> Row:
    """Return a reference to a row, if visible with its label, and with its URI if that can be read."""
    if not visible:
        return {"pk": pk}
    reference = {"pk": pk, "label": to_plain_text(pk if label is None else label)}
    if target.has_row_uris:
        reference["uri"] = target.build_row_uri(pk)
    return reference


def _add_to_many_values(
    scope: VisibilityScope, item: ExposedField, rows_as_json: Sequence[Row], keys: Sequence[Any]
) -> None:
    """Add the values of a to-many relation, read for all rows in one statement."""
    target = item.target
    visible = target is not None and scope.can_view(target)

    lists: dict[Any, list[Any]] = {key: [] for key in keys}
    if keys:
        columns = ["pk", item.source, *([item.label] if visible and item.label is not None else [])]
        rows = scope.toolset.model._base_manager.using(scope.database).filter(
            *scope.build_conditions(item), pk__in=keys, **{f"{item.source}__isnull": False}
        )
        related = list(rows.order_by("pk", item.source).values_list(*columns)[: MAX_RELATED_ROWS + 1])
        if len(related) > MAX_RELATED_ROWS:
            raise ToolError(
                f"{item.name}: more than {MAX_RELATED_ROWS} related rows on this page; request fewer rows, or "
                "other fields"
            )
        for key, value, *label in related:
            pk: Any = item.codec.serialize(value)
            if item.is_relation and target is not None:
                pk = build_reference(target, pk, label[0] if label else None, visible=visible)
            lists[key].append(pk)

    for row, key in zip(rows_as_json, keys, strict=True):
        row[item.name] = lists[key]
