"""The database of the rows, as this process sees it: its time, and whether it has answered lately.

All processes share the time of the database. A lease is written by one process and compared by another one, whose
clock may differ. After an outage the workers need some time to extend their leases, and to store late results. Until
then their leases may look expired. So a process ends the leases of others only if it has reached the database for one
lease.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import ParamSpec, TypeVar

from django.db import connections, router
from django.utils import timezone

from mcp_django import wiring
from mcp_django.contrib.tasks.models import Task
from mcp_django.contrib.tasks.options import get_settings
from mcp_django.extensions.errors import find_database_failure
from mcp_django.extensions.event_loop import find_running_loop, monotonic

P = ParamSpec("P")
T = TypeVar("T")
SLOW_STATEMENT_RATIO = 0.25
"""Part of a lease above which a statement counts as an outage: the database did not answer meanwhile."""
MAX_GAP_RATIO = 0.6
"""Part of a lease above which a gap between two statements may hide an outage.

Such an outage has cost a lease. The last heartbeat before such an outage is at most a quarter of a lease older.
"""


class Availability:
    """Time since which the database has answered without a failure. Thread-safe."""

    def __init__(self) -> None:
        self.since: float | None = None
        """Time of `monotonic`; None before the first answer, and after a failure."""
        self._last_answer = 0.0

    def observe(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking function on the rows, and learn from it whether the database answers."""
        started = monotonic()
        try:
            value = fn(*args, **kwargs)
        except Exception as problem:
            if find_database_failure(problem) is not None:
                self.since = None
            raise
        ended, lease = monotonic(), get_settings().lease
        is_slow = ended - started > lease * SLOW_STATEMENT_RATIO
        if self.since is None or is_slow or started - self._last_answer > lease * MAX_GAP_RATIO:
            self.since = ended
        self._last_answer = ended
        return value

    def has_lasted(self, seconds: float) -> bool:
        """Return True if the database has answered for so long, without a long time between two statements."""
        return self.since is not None and monotonic() - self.since >= seconds


AVAILABILITY = Availability()
"""The availability that this process has seen."""


def now() -> datetime:
    """Return the time of the database.

    Off the event loop, and outside of transactions, the difference of the clocks is measured first, once a minute.

    Raises DatabaseError.
    """
    clock = wiring.get_services().event_publisher.clock
    if find_running_loop() is None and not connections[router.db_for_write(Task)].in_atomic_block:
        clock.measure()
    return timezone.now() + timedelta(seconds=clock.difference)
