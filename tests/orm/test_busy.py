"""Writes while others write to the same database."""

import sqlite3

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mcp_django import ToolError
from mcp_django.orm.writes.transaction import run_write

sqlite = pytest.mark.skipif(connection.vendor != "sqlite", reason="SQLite's transactions")


@sqlite
@pytest.mark.django_db(transaction=True)
def test_a_write_takes_the_lock_before_it_reads(subtests: pytest.Subtests) -> None:
    for dry_run in (False, True):
        with subtests.test(dry_run=dry_run):
            with CaptureQueriesContext(
                connection,
            ) as queries:
                run_write(Group.objects.count, using="default", dry_run=dry_run)
                Group.objects.count()
            assert queries[0]["sql"] == "BEGIN IMMEDIATE"
            assert connection.transaction_mode is None


@sqlite
@pytest.mark.django_db(transaction=True)
def test_a_write_without_the_lock_is_an_error() -> None:
    connection.ensure_connection()
    connection.cursor().execute("PRAGMA busy_timeout = 1")
    other = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ToolError, match="busy with other writes, and nothing was changed"):
            run_write(Group.objects.count, using="default")
    finally:
        other.close()
        connection.close()
