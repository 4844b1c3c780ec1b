"""Thread of a process that writes the records of calls regularly."""

import threading
from collections.abc import Callable
from contextlib import suppress

from django.db import Error, connections

from mcp_django.contrib.control_room.recording.writer import get_alias
from mcp_django.extensions.calls import get_logger

logger = get_logger("mcp_django.records")

STOP_TIMEOUT_SECONDS = 3.0
"""Maximum seconds that the end of a process waits for the last write."""


class RecorderThread:
    """The thread, which starts at the first use and ends with the process."""

    def __init__(self, write: Callable[[], bool], get_interval: Callable[[], float]) -> None:
        """Create the thread, without starting it.

        `write` returns False if the database is away. `get_interval` returns the seconds between two writes.
        """
        self._write = write
        self._get_interval = get_interval
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Forget the thread of the parent process."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._written = threading.Condition()

    def start(self) -> None:
        """Start the thread once."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="mcp-recorder", daemon=True)
                self._thread.start()

    def write_now(self) -> None:
        """Wake the thread, and wait a few seconds until it has written."""
        thread = self._thread
        if thread is None or not thread.is_alive() or thread is threading.current_thread():
            return
        with self._written:
            self._wake.set()
            self._written.wait(STOP_TIMEOUT_SECONDS)

    def _run(self) -> None:
        while True:
            self._wake.wait(self._get_interval())
            self._wake.clear()
            try:
                if not self._write():
                    connections[get_alias()].close()
            except Exception:
                logger.exception("Records of calls could not be written")
                _drop_connection()
            with self._written:
                self._written.notify_all()


def _drop_connection() -> None:
    """Close the connection of this thread, and forget it.

    After an error in the middle of a transaction it may hold locks, and its state is unknown.
    """
    alias = get_alias()
    with suppress(Error):
        connections[alias].close()
    del connections[alias]
