"""Clock of the database server, which all processes share.

The clocks of machines differ. A time that one process writes and another one compares is therefore that of the
database. The follower of the event log measures the difference, so reading the clock needs no query.
"""

import time

from django.db import connections, router

from mcp_django.aio.clock import monotonic
from mcp_django.models import StreamEvent
from mcp_django.protocol.log_text import get_logger

logger = get_logger("mcp_django.events")

TIME_QUERIES = {
    "postgresql": "SELECT EXTRACT(EPOCH FROM clock_timestamp())",
    "mysql": "SELECT UNIX_TIMESTAMP(NOW(6))",
}
"""Query of the seconds since the epoch, by vendor. A database in a file has the clock of its machine."""
MEASURE_INTERVAL_SECONDS = 60.0
MIN_WARNED_SECONDS = 2.0
"""Minimum difference for a warning."""
MAX_STEP_SECONDS = 0.5
"""Change of the time of day against the monotonic clock after which the difference is measured again."""


class DatabaseClock:
    """Time of day at the database of the event log. Thread-safe."""

    def __init__(self) -> None:
        self.difference = 0.0
        """Seconds by which the database is ahead."""
        self._next_measurement = 0.0
        self._offset = 0.0
        """Time of day minus monotonic time, at the last measurement."""
        self._has_warned = False

    def time(self) -> float:
        """Return the seconds since the epoch."""
        return time.time() + self.difference

    def measure(self) -> None:
        """Measure the difference, once a minute, and after each step of the clock. Blocks for one query.

        Raises:
            django.db.Error: the database failed.
        """
        offset = time.time() - monotonic()
        if monotonic() < self._next_measurement and abs(offset - self._offset) < MAX_STEP_SECONDS:
            return

        started = time.time()
        database_time = query_database_time()
        ended = time.time()
        self._next_measurement = monotonic() + MEASURE_INTERVAL_SECONDS
        self._offset = offset
        if database_time is None:
            return

        # The database read its clock between these two times. A slow query leaves the known difference as it is.
        self.difference = min(max(self.difference, database_time - ended), database_time - started)
        is_large = abs(self.difference) >= MIN_WARNED_SECONDS
        if is_large and not self._has_warned:
            logger.warning(
                "Clock differs from that of the database by %.1f seconds; synchronize the clocks of all machines",
                -self.difference,
            )
        self._has_warned = is_large


def query_database_time() -> float | None:
    """Return the seconds since the epoch at the database of the event log; None if it is a file."""
    connection = connections[router.db_for_write(StreamEvent)]
    query = TIME_QUERIES.get(connection.vendor)
    if query is None:
        return None
    with connection.cursor() as cursor:
        cursor.execute(query)
        row = cursor.fetchone()
    return float(row[0])
