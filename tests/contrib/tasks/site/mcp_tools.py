"""Tools whose SQL takes ten minutes, unless it is interrupted."""

from django.db import connection

from mcp_django import tool
from mcp_django.types import TaskOptions


@tool(task=TaskOptions(grace=0))
def sleep_in_sql() -> str:
    """Sleep in the database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(600)")
    return "awake"
