"""Columns that the errors of databases name."""

from types import SimpleNamespace
from typing import Any

import pytest
from django.db import IntegrityError

from mcp_django.orm.writes.conflicts import ColumnConflict, find_conflict


class DriverError(Exception):
    """An error of a database driver, with the attributes that psycopg gives it."""

    def __init__(self, *args: Any, sqlstate: str | None = None, **diagnostics: Any) -> None:
        super().__init__(*args)
        if sqlstate is not None:
            self.sqlstate = sqlstate
            self.diag = SimpleNamespace(**diagnostics)


NOT_NULL = {"sqlstate": "23502", "table_name": "shop_parcel", "column_name": "weight"}
UNIQUE = {
    "sqlstate": "23505",
    "table_name": "shop_parcel",
    "message_detail": "Key (label, rank)=(a, 7) already exists.",
}
ERRORS: list[tuple[DriverError, ColumnConflict | None]] = [
    (DriverError("NOT NULL constraint failed: shop_parcel.weight"), ColumnConflict(True, "shop_parcel", ("weight",))),
    (
        DriverError("UNIQUE constraint failed: shop_parcel.label, shop_parcel.rank"),
        ColumnConflict(False, "shop_parcel", ("label", "rank")),
    ),
    (DriverError("UNIQUE constraint failed: index 'parcel_lower'"), None),
    (DriverError("CHECK constraint failed: weight"), None),
    (DriverError("FOREIGN KEY constraint failed"), None),
    (DriverError("null value", **NOT_NULL), ColumnConflict(True, "shop_parcel", ("weight",))),
    (DriverError("duplicate key", **UNIQUE), ColumnConflict(False, "shop_parcel", ("label", "rank"))),
    (
        DriverError("duplicate key", **{**UNIQUE, "message_detail": "Key (lower(label::text))=(a) already exists."}),
        None,
    ),
    (DriverError("too long", sqlstate="22001", column_name=None, message_detail=None, table_name=None), None),
    (DriverError(1048, "Column 'weight' cannot be null"), ColumnConflict(True, None, ("weight",))),
    (DriverError(1364, "Field 'weight' doesn't have a default value"), ColumnConflict(True, None, ("weight",))),
    (DriverError(1062, "Duplicate entry 'a' for key 'label'"), None),
    (DriverError(), None),
]


def test_columns_are_found_in_messages_of_the_database(subtests: pytest.Subtests) -> None:
    for cause, expected in ERRORS:
        with subtests.test(error=str(cause)):
            problem = IntegrityError(*cause.args)
            problem.__cause__ = cause
            assert find_conflict(problem) == expected
