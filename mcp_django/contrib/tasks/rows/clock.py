"""Time of the rows: that of the database, which all processes share.

A lease is written by one process and compared by another one, whose clock may differ.
"""

from datetime import datetime, timedelta

from django.db import connections, router
from django.utils import timezone

from mcp_django import wiring
from mcp_django.aio.loop_local import find_running_loop
from mcp_django.contrib.tasks.models import Task


def now() -> datetime:
    """Return the time of the database.

    Off the event loop, and outside of transactions, the difference of the clocks is measured first, once a minute.

    Raises DatabaseError.
    """
    clock = wiring.get_event_publisher().clock
    if find_running_loop() is None and not connections[router.db_for_write(Task)].in_atomic_block:
        clock.measure()
    return timezone.now() + timedelta(seconds=clock.difference)
