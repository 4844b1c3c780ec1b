"""Recorder of the finished calls of all threads of a process.

It writes them from a thread of its own. A database that is away harms no call: counts are kept and written later.
"""

import atexit
import os
import secrets
import socket
import threading
from time import time
from typing import Any

from django.db import Error
from django.db.models.signals import post_delete

from mcp_django import wiring
from mcp_django.conf import on_change
from mcp_django.contrib.control_room.options import RecordSettings
from mcp_django.contrib.control_room.recording.compaction import compact_rows
from mcp_django.contrib.control_room.recording.counts import ProcessCounts
from mcp_django.contrib.control_room.recording.entries import CallEntry
from mcp_django.contrib.control_room.recording.maintenance import remove_deleted_user
from mcp_django.contrib.control_room.recording.process_reports import ProcessReporter
from mcp_django.contrib.control_room.recording.record_queue import RecordQueue
from mcp_django.contrib.control_room.recording.recorder_thread import RecorderThread
from mcp_django.contrib.control_room.recording.schedule import Schedule
from mcp_django.contrib.control_room.recording.writer import RowWriter
from mcp_django.extensions.calls import get_logger
from mcp_django.runtime.calls.observer import add_outcome_recorder
from mcp_django.signals import server_drained

logger = get_logger("mcp_django.records")

ERROR_INTERVAL_SECONDS = 60.0
"""Seconds between two log lines about a database that is away."""


class CallRecorder:
    """Recorder of one process."""

    def __init__(self, *, starts_thread: bool = True) -> None:
        self._starts_thread = starts_thread
        self.queue = RecordQueue(self._start_thread)
        """The queue; its `record` takes each finished call."""
        self.schedule = Schedule(self._compact)
        """The periodic work that follows each write."""
        self._thread = RecorderThread(self.write, lambda: self.queue.options.flush)
        self._reset()

    def _reset(self) -> None:
        self._flush_lock = threading.Lock()
        self._records: list[CallEntry] = []
        self._counts = ProcessCounts()
        self._writer = RowWriter(create_process_name())
        self._reporter = ProcessReporter(self._writer.process)
        self._reports = False
        self._minute = 0
        self._minute_rows = 0
        self._dropped_rows = 0
        self._logged_at = 0.0

    def reset_after_fork(self) -> None:
        """Forget the calls and the thread of the parent process."""
        self.queue.reset()
        self.schedule.restart()
        self._thread.reset_after_fork()
        self._reset()

    @property
    def dropped(self) -> int:
        """Calls that were dropped from the full queue, and rows above the limit."""
        return self.queue.dropped + self._dropped_rows

    def start_reports(self) -> None:
        """Report this process from now on, if the settings include it. A loop has started to serve."""
        if self._reports or not self.queue.options.running:
            return
        self._reports = True
        self._start_thread()

    def stop(self, **kwargs: Any) -> None:
        """Write all calls, and delete the report of this process."""
        self._reports = False
        self._thread.write_now()

    def write(self) -> bool:
        """Write all calls and the report, and do the periodic work.

        Returns False if the database is away.
        """
        if not (self.flush() and self.report()):
            return False
        self.schedule.run()
        return True

    def flush(self) -> bool:
        """Write all calls now, on the connection of the calling thread.

        Returns False if the database is away.
        """
        with self._flush_lock:
            options = self.queue.options
            self._drain(options)
            self._counts.drop_old(time())
            try:
                written = self._writer.write(self._counts, self._records)
            except Error:
                self._keep_after_failure(options)
                return False
            self._records.clear()
            now = time()
            self._counts.calls.confirm(written, now)
            self._counts.usage.confirm(written, now)
            return True

    def report(self) -> bool:
        """Write the state and the running calls of this process, or delete them after its end.

        Returns False if the database is away.
        """
        try:
            if self._reports:
                self._reporter.report(self.dropped + self._counts.dropped)
            else:
                self._reporter.remove()
        except Error:
            logger.debug("The state of the process could not be written", exc_info=True)
            return False
        return True

    def _start_thread(self) -> None:
        if self._starts_thread:
            self._thread.start()

    def _drain(self, options: RecordSettings) -> None:
        """Count the calls of the queue, and collect those that get a row."""
        drained = self.queue.drain()
        self._records += [entry for entry in drained.entries if self._may_write_row(entry, options)]
        if options.rollups:
            for start, group, durations in drained.durations:
                self._counts.add(start, group, durations)

    def _may_write_row(self, entry: CallEntry, options: RecordSettings) -> bool:
        """Return True if the limit of rows in this minute is not reached."""
        if options.calls.share >= 1:
            return True
        minute = int(entry.at) // 60
        if minute != self._minute:
            self._minute = minute
            self._minute_rows = 0
        self._minute_rows += 1
        if self._minute_rows <= options.calls_per_minute:
            return True
        self._dropped_rows += 1
        return False

    def _keep_after_failure(self, options: RecordSettings) -> None:
        """Keep the unwritten records, within the limits of memory."""
        surplus = len(self._records) - options.buffer
        if surplus > 0:
            del self._records[:surplus]
            self._dropped_rows += surplus
        if time() - self._logged_at >= ERROR_INTERVAL_SECONDS:
            self._logged_at = time()
            logger.warning("Records of calls could not be written; they are kept and written later", exc_info=True)

    def _compact(self) -> None:
        compact_rows(self._writer.process, self._counts.calls.final_before, self._counts.usage.final_before)


def create_process_name() -> str:
    """Return a name for this process that no other process has."""
    return f"{socket.gethostname()[:48]}:{os.getpid()}:{secrets.token_hex(4)}"


RECORDER = CallRecorder()
"""The recorder of this process."""


def install_recorder() -> None:
    """Record the calls of this process from now on."""
    add_outcome_recorder(RECORDER.queue.record)
    on_change(RECORDER.queue.forget_settings)
    wiring.PROCESS.lifecycle.loop_callbacks.add(RECORDER.start_reports)
    server_drained.connect(RECORDER.stop, dispatch_uid="mcp_control_room")
    os.register_at_fork(after_in_child=RECORDER.reset_after_fork)
    post_delete.connect(remove_deleted_user, dispatch_uid="mcp_control_room")
    atexit.register(RECORDER.stop)
