"""Written rows as `get` returns them, and row versions for optimistic locking.

Clients send a version as `if_match` and change only the version that they read. A version is a keyed digest of the
row's shown columns, or of its `version_field`. Without the key, clients cannot find values by trying digests. Hidden
columns are excluded, so that their changes stay unnoticed. A reference to a hidden row counts as NULL, as in rows.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from django.db.models import F, Model
from django.utils.crypto import salted_hmac

from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.declaration.exposed_fields import ExposedField
from mcp_django.orm.declaration.inlines import ModelInline
from mcp_django.orm.queries.serialize import get_plan, read_rows
from mcp_django.orm.queries.visibility import VisibilityScope
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import ToolError
from mcp_django.schema import to_json
from mcp_django.server.context.context import Context

VERSION_KEY = "_version"
"""Key of the version in a row."""
_SALT = "mcp_django.orm.version"
_VERSION_CHARACTERS = 24
"""Length in characters: 96 bits."""


def is_versioned(toolset: BaseModelToolset) -> bool:
    """Return True if clients can change or delete rows, so that versions are useful."""
    return any(verb in toolset.tools for verb in ("update", "delete"))


def build_version_expressions(scope: VisibilityScope) -> list[Any]:
    """Return the extra columns of `read_rows` for the version, if rows have versions."""
    if not is_versioned(scope.toolset):
        return []
    return [
        F(name) if item is None or item.is_caller_independent else scope.build_expression(item)
        for name, item in _get_version_columns(scope.toolset)
    ]


def _get_version_columns(toolset: BaseModelToolset) -> list[tuple[str, ExposedField | None]]:
    """Return the columns that the version covers, each with its field unless the project chose the column.

    The names are attributes of a row and arguments of `values_list`.
    """
    if toolset.version_field is not None:
        return [(toolset.version_field, None)]
    return [
        (item.model_field.attname, item)
        for item in toolset.exposure.fields.values()
        if not item.hops and not item.is_to_many and item.model_field is not None and item.model_field.concrete
    ]


def get_row_version(scope: VisibilityScope, row: Model) -> str:
    """Return the version of a row that was read from the database.

    This takes a statement if the row has references whose visibility depends on the caller.
    """
    columns = _get_version_columns(scope.toolset)
    visible_keys = read_visible_keys(scope, row, (item for _, item in columns if item is not None))
    values = [
        visible_keys[item.name] if item is not None and item.name in visible_keys else getattr(row, name)
        for name, item in columns
    ]
    return compute_version(scope.toolset, row.pk, values)


def read_visible_keys(scope: VisibilityScope, row: Model, items: Iterable[ExposedField]) -> dict[str, Any]:
    """Return the keys of those references of a row whose visibility depends on the caller, by field name.

    A reference to a hidden row is None.
    """
    references = [item for item in items if item.is_column and not item.is_caller_independent]
    if not references:
        return {}
    rows = scope.toolset.model._base_manager.using(scope.database).filter(pk=row.pk)
    values = rows.values_list(*(scope.build_expression(item) for item in references)).first()
    return dict(zip((item.name for item in references), values or [None] * len(references), strict=True))


def compute_version(toolset: BaseModelToolset, pk: Any, values: Sequence[Any]) -> str:
    """Return the version for a primary key and the values of `build_version_expressions`."""
    items = [item for _, item in _get_version_columns(toolset)]
    content = [toolset.model._meta.label, *map(_make_serializable, (pk, *values), (toolset.exposure.pk, *items))]
    return salted_hmac(_SALT, jsonrpc.dumps(content).decode(), algorithm="sha256").hexdigest()[:_VERSION_CHARACTERS]


def check_version(scope: VisibilityScope, row: Model, expected: str | None) -> None:
    """Check that the row has the expected version.

    Raises:
        ToolError: the row has changed.
    """
    if expected is not None and expected != get_row_version(scope, row):
        raise ToolError(
            "The row has changed since the version in if_match, and nothing was done. Get it again, and decide by its "
            "new values"
        )


def _make_serializable(value: Any, item: ExposedField | None) -> Any:
    if isinstance(value, memoryview):
        value = bytes(value)
    try:
        return to_json(value)
    except TypeError:
        # Avoid `str`, which may render the value for a page and query the database.
        prepared = value if item is None else item.model_field.get_prep_value(value)
        return prepared if isinstance(prepared, str) else str(prepared)


def serialize_written_row(toolset: BaseModelToolset, ctx: Context, row: Model, *, using: str) -> dict[str, Any]:
    """Return `pk` and `item` of a written row.

    The item is None if the caller may not view rows, or if the write moved the row out of the caller's visible rows.
    """
    pk = toolset.exposure.pk.codec.serialize(row.pk)
    item = None

    rows = toolset.get_queryset(ctx).using(using).filter(pk=row.pk).order_by()
    if toolset.has_view_permission(ctx, row):
        scope = VisibilityScope(toolset, ctx, using)
        plan = get_plan(scope)
        items, values = read_rows(scope, rows[:1], plan, build_version_expressions(scope))
        if items:
            item = complete_row(toolset, ctx, items[0], row.pk, values[0][len(plan.columns) :], using=using)
    return {"pk": pk, "item": item}


def complete_row(
    toolset: BaseModelToolset,
    ctx: Context,
    item: dict[str, Any],
    pk: Any,
    values: Sequence[Any],
    *,
    using: str,
    with_inlines: bool = True,
) -> dict[str, Any]:
    """Add the inline rows, if requested, and the version made of `values` to a row."""
    if with_inlines:
        for inline in toolset.inline_toolsets:
            if inline.can_view(ctx):
                item[inline.name] = _serialize_inline_rows(inline, ctx, pk, using)
    if is_versioned(toolset):
        item[VERSION_KEY] = compute_version(toolset, pk, values)
    return item


def _serialize_inline_rows(inline: ModelInline, ctx: Context, parent_pk: Any, using: str) -> dict[str, Any]:
    rows = inline.get_queryset(ctx).using(using).filter(**{inline.foreign_key.name: parent_pk})
    rows = rows.order_by(*(inline.ordering or ("pk",)))
    scope = VisibilityScope(inline, ctx, using)
    items, _ = read_rows(scope, rows[: inline.max_num + 1], get_plan(scope))
    return {"items": items[: inline.max_num], "more": len(items) > inline.max_num}
