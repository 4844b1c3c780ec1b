"""Limits of one call: sizes of its arguments and time of its statements."""

import contextlib
from collections.abc import Iterator
from typing import Any

from django.db import OperationalError, connections, transaction

from mcp_django.protocol.errors import ToolError
from mcp_django.server.context.context import Context

MAX_FILTER_DEPTH = 4
"""Maximum nesting of `and`, `or` and `not` in filters."""
MAX_FILTER_CONDITIONS = 50
"""Maximum number of comparisons in the filters of one call.

`and`, `or` and `not` are not counted.
"""
MAX_LIST_VALUES = 200
"""Maximum number of values of one `in`."""
MAX_ORDER_FIELDS = 5
"""Maximum number of fields to order by."""
MAX_SEARCH_WORDS = 10
"""Maximum number of words of a search."""
MAX_RELATED_ROWS = 2000
"""Maximum number of related rows per call, for each to-many relation."""
MAX_GROUP_FIELDS = 4
"""Maximum number of fields to group by."""
MAX_METRICS = 10
"""Maximum number of metrics of one aggregation."""
_QUERY_CANCELED_SQLSTATE = "57014"
"""PostgreSQL's SQLSTATE query_canceled (appendix A of its manual)."""


@contextlib.contextmanager
def limit_statement_time(ctx: Context, database: str, seconds: float | None) -> Iterator[None]:
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

    is_nested = connection.in_atomic_block
    try:
        with transaction.atomic(database), connection.cursor() as cursor:
            previous = _set_statement_timeout(cursor, f"{max(1, int(seconds * 1000))}", read_previous=is_nested)
            yield
            if is_nested:
                _set_statement_timeout(cursor, previous)
    except OperationalError as problem:
        if getattr(problem.__cause__, "sqlstate", None) == _QUERY_CANCELED_SQLSTATE and not ctx.cancelled:
            raise ToolError(
                f"The query took longer than {seconds:g} seconds; narrow it down with filters, or request less"
            ) from None
        raise


def _set_statement_timeout(cursor: Any, value: str, *, read_previous: bool = False) -> str:
    previous = ""
    if read_previous:
        cursor.execute("SHOW statement_timeout")
        previous = cursor.fetchone()[0]
    cursor.execute("SELECT set_config('statement_timeout', %s, true)", [value])
    return previous
