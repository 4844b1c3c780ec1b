"""Row versions for optimistic locking, sent by clients as `if_match`.

A client changes only the version that it read. A version is a keyed digest of the row's shown columns, or of its
`version_field`. Without the key, clients cannot find values by trying digests. Hidden columns are excluded, so that
their changes stay unnoticed.
"""

from collections.abc import Sequence
from typing import Any

from django.db.models import F, Model
from django.utils.crypto import salted_hmac

from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import ToolError
from mcp_django.schema import to_json

VERSION_KEY = "_version"
"""Key of the version in a row."""
_SALT = "mcp_django.orm.version"
_VERSION_CHARACTERS = 24
"""Length in characters: 96 bits."""


def is_versioned(toolset: BaseModelToolset) -> bool:
    """Return True if clients can change or delete rows, so that versions are useful."""
    return any(verb in toolset.tools for verb in ("update", "delete"))


def build_version_expressions(toolset: BaseModelToolset) -> list[Any]:
    """Return the extra columns of `read_rows` for the version, if rows have versions."""
    return [F(name) for name in get_version_columns(toolset)] if is_versioned(toolset) else []


def get_version_columns(toolset: BaseModelToolset) -> tuple[str, ...]:
    """Return the names of the columns that the version covers.

    The names are attributes of a row and arguments of `values_list`.
    """
    if toolset.version_field is not None:
        return (toolset.version_field,)
    return tuple(
        item.model_field.attname
        for item in toolset.exposure.fields.values()
        if not item.hops and not item.is_to_many and item.model_field is not None and item.model_field.concrete
    )


def get_row_version(toolset: BaseModelToolset, row: Model) -> str:
    """Return the version of a row that was read from the database."""
    return compute_version(toolset, row.pk, [getattr(row, name) for name in get_version_columns(toolset)])


def compute_version(toolset: BaseModelToolset, pk: Any, values: Sequence[Any]) -> str:
    """Return the version for a primary key and the values of `get_version_columns`."""
    content = [toolset.model._meta.label, *map(_make_serializable, (pk, *values))]
    return salted_hmac(_SALT, jsonrpc.dumps(content).decode(), algorithm="sha256").hexdigest()[:_VERSION_CHARACTERS]


def check_version(toolset: BaseModelToolset, row: Model, expected: str | None) -> None:
    """Check that the row has the expected version.

    Raises:
        ToolError: the row has changed.
    """
    if expected is not None and expected != get_row_version(toolset, row):
        raise ToolError(
            "The row has changed since the version in if_match, and nothing was done. Get it again, and decide by its "
            "new values"
        )


def _make_serializable(value: Any) -> Any:
    if isinstance(value, memoryview):
        value = bytes(value)
    try:
        return to_json(value)
    except TypeError:
        return str(value)
