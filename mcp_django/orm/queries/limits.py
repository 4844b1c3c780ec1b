"""How much one call may ask for, and how long its statements may take."""

import contextlib
from collections.abc import Iterator
from typing import Any

from django.db import OperationalError, connections, transaction

from mcp_django.protocol.errors import ToolError
from mcp_django.server.context.context import Context

DEPTH = 4
"""Levels of `and`, `or` and `not` in filters."""
CONDITIONS = 50
"""Comparisons in one call's filters, and, or and not counted."""
VALUES = 200
"""Values of one `in`."""
ORDERS = 5
"""Fields to order by."""
WORDS = 10
"""Words of a search."""
RELATED = 2000
"""Related rows that one call shows, of all its rows together, for each relation to many."""
GROUPS = 4
"""Fields to group by."""
METRICS = 10
"""Functions of one aggregation."""
_CANCELLED = "57014"
"""PostgreSQL's SQLSTATE for a statement that was stopped (appendix A of its manual: query_canceled)."""


@contextlib.contextmanager
def bounded(ctx: Context, database: str, seconds: float | None) -> Iterator[None]:
    """Around a call's statements: on PostgreSQL none of them takes longer. Raises ToolError for one that would.

    A setting of the transaction (SET LOCAL) asks for one; where the handler is in one already, what was set before
    comes back at the end.
    """
    connection: Any = connections[database]
    if seconds is None or connection.vendor != "postgresql":
        yield
        return
    outer = connection.in_atomic_block
    try:
        with transaction.atomic(database), connection.cursor() as cursor:
            before = _set(cursor, f"{max(1, int(seconds * 1000))}", read=outer)
            yield
            if outer:
                _set(cursor, before)
    except OperationalError as problem:
        if getattr(problem.__cause__, "sqlstate", None) == _CANCELLED and not ctx.cancelled:
            raise ToolError(
                f"The query took longer than {seconds:g} seconds; narrow it down with filters, or ask for less"
            ) from None
        raise


def _set(cursor: Any, value: str, *, read: bool = False) -> str:
    before = ""
    if read:
        cursor.execute("SHOW statement_timeout")
        before = cursor.fetchone()[0]
    cursor.execute("SELECT set_config('statement_timeout', %s, true)", [value])
    return before
