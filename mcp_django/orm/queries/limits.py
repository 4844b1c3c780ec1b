"""Limits of one call: sizes of its arguments and time of its statements."""

import contextlib
from collections.abc import Iterator
from typing import Any

from django.db import OperationalError, connections, transaction

from mcp_django.protocol.errors import ToolError
from mcp_django.server.context.context import Context

DEPTH = 4
"""Maximum nesting of `and`, `or` and `not` in filters."""
CONDITIONS = 50
"""Maximum number of comparisons in the filters of one call.

`and`, `or` and `not` are not counted.
"""
VALUES = 200
"""Maximum number of values of one `in`."""
ORDERS = 5
"""Maximum number of fields to order by."""
WORDS = 10
"""Maximum number of words of a search."""
RELATED = 2000
"""Maximum number of related rows per call, for each to-many relation."""
GROUPS = 4
"""Maximum number of fields to group by."""
METRICS = 10
"""Maximum number of metrics of one aggregation."""
_CANCELLED = "57014"
"""PostgreSQL's SQLSTATE query_canceled (appendix A of its manual)."""


@contextlib.contextmanager
def bounded(ctx: Context, database: str, seconds: float | None) -> Iterator[None]:
    """Limit the time of each statement inside the block, on PostgreSQL only.

    The limit is a setting of the transaction (SET LOCAL). Inside an outer transaction the previous value is restored at
    the end.

    Raises:
        ToolError: a statement exceeded the limit.
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
                f"The query took longer than {seconds:g} seconds; narrow it down with filters, or request less"
            ) from None
        raise


def _set(cursor: Any, value: str, *, read: bool = False) -> str:
    before = ""
    if read:
        cursor.execute("SHOW statement_timeout")
        before = cursor.fetchone()[0]
    cursor.execute("SELECT set_config('statement_timeout', %s, true)", [value])
    return before
