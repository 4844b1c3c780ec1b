"""Row versions for optimistic locking.

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
from mcp_django.orm.queries.visibility import VisibilityScope
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.schema import to_json

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


def read_visible_keys(scope: VisibilityScope, row: Model, items: Iterable[ExposedField]) -> JSONObject:
    """Return the keys of those references of a row whose visibility depends on the caller, by field name.

    A reference to a hidden row is None.
    """
    references = [item for item in items if item.is_column and not item.is_caller_independent]
    if not references:
        return {}
    rows = scope.toolset.model._base_manager.using(scope.database).filter(pk=row.pk)
    values = rows.values_list(*(scope.build_expression(item) for item in references)).first()
    return dict(zip((item.name for item in references), values or [None] * len(references), strict=True))


def compute_version(toolset: BaseModelToolset, pk: object, values: Sequence[Any]) -> str:
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


def _make_serializable(value: object, item: ExposedField | None) -> Any:
    if isinstance(value, memoryview):
        value = bytes(value)
    try:
        return to_json(value)
    except TypeError:
        # Avoid `str`, which may render the value for a page and query the database.
        prepared = value if item is None else item.model_field.get_prep_value(value)
        return prepared if isinstance(prepared, str) else str(prepared)
