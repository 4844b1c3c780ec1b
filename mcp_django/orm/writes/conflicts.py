"""Errors for writes that the database rejects, by field if clients may know the columns.

The database's own message names hidden columns and values of other rows, so it is never passed on.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.core.exceptions import NON_FIELD_ERRORS
from django.db import models

from mcp_django.exceptions import build_invalid_error
from mcp_django.orm.codecs.codec import ModelField
from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.log_text import get_logger

logger = get_logger("mcp_django.orm")

CONFLICT_MESSAGE = (
    "The database rejected the write: a value conflicts with another row or a rule of the table. Nothing was changed"
)
MISSING_VALUE_MESSAGE = (
    "The database rejected the write: a column that clients cannot write requires a value. Nothing was changed"
)
_SQLITE_MESSAGE = re.compile(r"(NOT NULL|UNIQUE) constraint failed: (\w+\.\w+(?:, \w+\.\w+)*)$")
_POSTGRES_NOT_NULL, _POSTGRES_UNIQUE = "23502", "23505"
_POSTGRES_KEY = re.compile(r"Key \(([\w, ]+)\)=\(")
_MYSQL_NOT_NULL = {1048, 1364}
_MYSQL_COLUMN = re.compile(r"(?:Column|Field) '(\w+)'")


class ColumnConflict(NamedTuple):
    """Columns whose values the database rejects."""

    is_missing: bool
    """True if a value is missing, False if another row has the same values."""
    table: str | None
    """Name of the table; None if the database does not name it."""
    columns: tuple[str, ...]


def build_conflict_error(toolset: BaseModelToolset, problem: Exception) -> ToolError:
    """Return the error for a write of a toolset that the database rejected."""
    logger.debug("Write rejected by the database", exc_info=problem)
    conflict = find_conflict(problem)
    if conflict is None:
        return ToolError(CONFLICT_MESSAGE)

    for place, owner in [("", toolset), *((f"{inline.name}.", inline) for inline in toolset.inline_toolsets)]:
        fields = _find_fields(owner.model, conflict)
        if fields and all(field.name in owner.exposure.fields for field in fields):
            return build_invalid_error(_describe_conflict(owner.model, fields, place, conflict))

    if conflict.is_missing:
        logger.warning("Write without a required value: %s.%s", conflict.table, ", ".join(conflict.columns))
        return ToolError(MISSING_VALUE_MESSAGE)
    return ToolError(CONFLICT_MESSAGE)


def find_conflict(problem: Exception) -> ColumnConflict | None:
    """Return the columns that a database error names, or None."""
    cause: Any = problem.__cause__ or problem
    diagnostics = getattr(cause, "diag", None)
    if diagnostics is not None:
        return _find_postgres_conflict(getattr(cause, "sqlstate", None), diagnostics)
    if found := _SQLITE_MESSAGE.search(str(cause)):
        names = [name.split(".") for name in found[2].split(", ")]
        return ColumnConflict(found[1] == "NOT NULL", names[0][0], tuple(column for _, column in names))
    number, text = (*cause.args, None, None)[:2]
    named = _MYSQL_COLUMN.match(str(text)) if number in _MYSQL_NOT_NULL else None
    return None if named is None else ColumnConflict(True, None, (named[1],))


def _find_postgres_conflict(state: str | None, diagnostics: Any) -> ColumnConflict | None:
    if state == _POSTGRES_NOT_NULL and diagnostics.column_name:
        return ColumnConflict(True, diagnostics.table_name, (diagnostics.column_name,))
    if state == _POSTGRES_UNIQUE and (key := _POSTGRES_KEY.match(diagnostics.message_detail or "")):
        return ColumnConflict(False, diagnostics.table_name, tuple(key[1].split(", ")))
    return None


def _find_fields(model: type[models.Model], conflict: ColumnConflict) -> "list[ModelField]":
    """Return the fields of a model for the columns, or [] if one is no column of it."""
    fields = {
        field.column: field
        for field in model._meta.concrete_fields
        if conflict.table in (None, field.model._meta.db_table) and not (conflict.is_missing and field.null)
    }
    found = [fields[column] for column in conflict.columns if column in fields]
    return found if len(found) == len(conflict.columns) else []


def _describe_conflict(
    model: type[models.Model], fields: "Sequence[ModelField]", place: str, conflict: ColumnConflict
) -> dict[str, list[str]]:
    if conflict.is_missing:
        return {f"{place}{field.name}": [str(field.error_messages["null"])] for field in fields}
    error = model().unique_error_message(model, tuple(field.name for field in fields))
    name = f"{place}{fields[0].name}" if len(fields) == 1 else NON_FIELD_ERRORS
    return {name: list(error.messages)}
