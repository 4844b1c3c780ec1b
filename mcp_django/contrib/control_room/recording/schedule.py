"""Periodic work of the thread that writes records: tasks, compaction and maintenance."""

import random
from collections.abc import Callable, Iterator
from time import perf_counter, time

from mcp_django.contrib.control_room.recording.maintenance import iter_maintenance
from mcp_django.extensions.calls import get_logger

logger = get_logger("mcp_django.records")

MAINTENANCE_SECONDS = 3600.0
"""Seconds between two maintenances of a process.

The first one comes after a random part of it.
"""
COMPACTION_SECONDS = 300.0
"""Seconds between two compactions of a process, the first one after a random part of it."""
MAX_MAINTENANCE_SECONDS = 0.1
"""Seconds of maintenance between two writes."""


class Schedule:
    """Work that follows a write, if it is due."""

    def __init__(self, compact: Callable[[], None]) -> None:
        """Create a schedule; `compact` combines the rows of this process."""
        self._compact = compact
        self._tasks: list[Callable[[], None]] = []
        self.restart()

    def restart(self) -> None:
        """Choose the times of the first compaction and maintenance of this process."""
        self._compacted_at = time() - random.random() * COMPACTION_SECONDS  # noqa: S311  # spreads load
        self._maintenance: Iterator[None] = iter(())
        self._maintained_at = time() - random.random() * MAINTENANCE_SECONDS  # noqa: S311  # spreads load

    def add_task(self, task: Callable[[], None]) -> None:
        """Call a function after each write of this process. Its failures are logged."""
        self._tasks.append(task)

    def run(self) -> None:
        """Run the work that is due. Raises `Error`."""
        for task in self._tasks:
            try:
                task()
            except Exception:
                logger.exception("A periodic task of the control room failed")
        if time() - self._compacted_at >= COMPACTION_SECONDS:
            self._compacted_at = time()
            self._compact()
        if time() - self._maintained_at >= MAINTENANCE_SECONDS:
            self._maintained_at = time()
            self._maintenance = iter_maintenance()
        self._continue_maintenance()

    def _continue_maintenance(self) -> None:
        """Continue a maintenance that has begun, for a short time: calls wait to be written."""
        end = perf_counter() + MAX_MAINTENANCE_SECONDS
        for _part in self._maintenance:
            if perf_counter() >= end:
                return
