"""The version of a row: what a client gives back as `if_match`, to change only what it has seen.

A keyed digest of what the toolset shows of the row itself, or of its `version_field`. The key keeps anybody from trying
out which values make a digest; what is not shown takes no part, so that nothing of it can be noticed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.db.models import F, Model
from django.utils.crypto import salted_hmac

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import ToolError
from mcp_django.schema import to_json

if TYPE_CHECKING:
    from mcp_django.orm.toolset import ModelToolset

VERSION = "_version"
"""The key of a row under which it is shown."""
_SALT = "mcp_django.orm.version"
_LENGTH = 24
"""Characters: 96 bits."""


def is_versioned(toolset: "ModelToolset") -> bool:
    """Can clients change rows, so that it matters which version they have seen?"""
    return any(verb in toolset.tools for verb in ("update", "delete"))


def version_columns(toolset: "ModelToolset") -> list[Any]:
    """What `serialize.read` is asked for besides, to make the version of a row; nothing where there is none."""
    return [F(name) for name in columns_of(toolset)] if is_versioned(toolset) else []


def columns_of(toolset: "ModelToolset") -> tuple[str, ...]:
    """The columns that make the version, as attributes of a row and as names for `values_list`."""
    if toolset.version_field is not None:
        return (toolset.version_field,)
    return tuple(
        item.model_field.attname
        for item in toolset.exposure.fields.values()
        if not item.hops and not item.many and item.model_field is not None and item.model_field.concrete
    )


def version_of(toolset: "ModelToolset", row: Model) -> str:
    """The version of a row that was read from the database."""
    return version(toolset, row.pk, [getattr(row, name) for name in columns_of(toolset)])


def version(toolset: "ModelToolset", pk: Any, values: Sequence[Any]) -> str:
    """The same of its primary key and the values of `columns_of`."""
    what = [toolset.model._meta.label, *map(_plain, (pk, *values))]
    return salted_hmac(_SALT, jsonrpc.dumps(what).decode(), algorithm="sha256").hexdigest()[:_LENGTH]


def require_version(toolset: "ModelToolset", row: Model, expected: str | None) -> None:
    """Raise ToolError when the row is not what the client has seen."""
    if expected is not None and expected != version_of(toolset, row):
        raise ToolError(
            "The row has changed since the version in if_match, and nothing was done. Get it again, and decide by what "
            "it is now"
        )


def _plain(value: Any) -> Any:
    if isinstance(value, memoryview):
        value = bytes(value)
    try:
        return to_json(value)
    except TypeError:
        return str(value)
