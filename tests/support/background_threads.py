"""Threads of the package that work at times of their own, and that no test may leave behind."""

import threading

from mcp_django.contrib.tasks.attempts.heartbeats import HEARTBEATS, Heartbeats
from tests.support.waiting import wait_until

NAMES = frozenset({"mcp-tasks-heartbeats", "mcp-interrupt", "mcp-playground"})
"""Names of threads that end with their work. Those of pools and loops stay, and wait for work."""


def get_background_threads() -> set[threading.Thread]:
    """Return those of this process."""
    return {thread for thread in threading.enumerate() if thread.name in NAMES}


def wait_for_end(threads: set[threading.Thread], heartbeats: Heartbeats = HEARTBEATS) -> None:
    """Wait until threads have ended, those of heartbeats without delay. Raises AssertionError with their names."""

    def have_ended() -> bool:
        heartbeats.request()
        return not any(thread.is_alive() for thread in threads)

    wait_until(have_ended, lambda: f"the test left threads behind: {[thread.name for thread in threads]}")
