"""The test database after a test with transactions of its own: the rows that it has added are deleted.

Django empties all tables instead, and then fills two of them again. That takes longer than most tests.
"""

from typing import Any

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import IntegrityError
from django.test import TransactionTestCase


class TableContents:
    """The tables of a database, and the rows of those that are not empty."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        tables = connection.introspection.django_table_names(only_existing=True, include_views=False)
        self._tables = {table: connection.ops.quote_name(table) for table in tables}
        self._rows = self._read_rows(connection, self._find_filled(connection))

    def restore(self, connection: BaseDatabaseWrapper) -> bool:
        """Delete the rows of tables that were empty; return False if those of the others are not as before."""
        try:
            with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
                for table in self._find_filled(connection):
                    if table not in self._rows:
                        cursor.execute(f"DELETE FROM {self._tables[table]}")
        except IntegrityError:
            return False
        return self._read_rows(connection, list(self._rows)) == self._rows

    def _find_filled(self, connection: BaseDatabaseWrapper) -> list[str]:
        """Return the tables that have rows, by one statement."""
        parts = (f"SELECT '{table}' WHERE EXISTS (SELECT 1 FROM {name})" for table, name in self._tables.items())
        with connection.cursor() as cursor:
            cursor.execute(" UNION ALL ".join(parts))
            return [table for (table,) in cursor.fetchall()]

    def _read_rows(self, connection: BaseDatabaseWrapper, tables: list[str]) -> dict[str, list[Any]]:
        rows = {}
        with connection.cursor() as cursor:
            for table in tables:
                cursor.execute(f"SELECT * FROM {self._tables[table]} ORDER BY 1")
                rows[table] = cursor.fetchall()
        return rows


def restore_after_transactions() -> None:
    """Let tests with transactions of their own restore the contents of the default database, as they are now."""
    flush = TransactionTestCase._fixture_teardown  # type: ignore[attr-defined]  # not in the type stubs
    connection = connections["default"]
    contents = TableContents(connection)

    def restore(case: Any) -> None:
        nonlocal contents
        if {*case._databases_names(include_mirrors=False)} != {"default"} or case.available_apps is not None:
            flush(case)
        elif not contents.restore(connection):
            flush(case)
            contents = TableContents(connection)  # with other primary keys

    TransactionTestCase._fixture_teardown = restore  # type: ignore[attr-defined]
