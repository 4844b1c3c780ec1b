"""Recorder of the finished calls of all threads of a process.

It writes them from a thread of its own. A call costs a look-up of its group, and an append to a queue. The queue is
bounded: the oldest calls are dropped and counted. Its tuples refer to no objects that Python's garbage collector
follows, because thousands of them would make it run. A database that is away harms no call: counts are kept and
written later.
"""

import atexit
import itertools
import os
import random
import secrets
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import perf_counter, time
from typing import Any

from django.db import Error, connections
from django.db.models.signals import post_delete

from mcp_django import wiring
from mcp_django.conf import on_change
from mcp_django.contrib.control_room.options import NO_CALLS, CallSelection, RecordSettings, get_settings
from mcp_django.contrib.control_room.recording.compaction import compact_rows
from mcp_django.contrib.control_room.recording.counts import HOUR_SECONDS, MINUTE_SECONDS, ProcessCounts
from mcp_django.contrib.control_room.recording.entries import (
    FAILED_OUTCOMES,
    CallDetail,
    CallEntry,
    CallGroup,
    build_detail,
    build_group,
    get_method,
    has_question,
)
from mcp_django.contrib.control_room.recording.maintenance import iter_maintenance, remove_deleted_user
from mcp_django.contrib.control_room.recording.process_reports import ProcessReporter
from mcp_django.contrib.control_room.recording.writer import RowWriter, get_alias
from mcp_django.observability import Call, Outcome
from mcp_django.protocol.errors import MCPError
from mcp_django.protocol.jsonrpc import Request
from mcp_django.protocol.log_text import get_logger
from mcp_django.runtime.calls.observer import add_outcome_recorder
from mcp_django.server.ports import Overloaded
from mcp_django.signals import server_drained

logger = get_logger("mcp_django.records")
STOP_TIMEOUT_SECONDS = 3.0
"""Maximum seconds that the end of a process waits for the last write."""
MAINTENANCE_SECONDS = 3600.0
"""Seconds between two maintenances of a process.

The first one comes after a random part of it.
"""
COMPACTION_SECONDS = 300.0
"""Seconds between two compactions of a process, the first one after a random part of it."""
MAX_MAINTENANCE_SECONDS = 0.1
"""Seconds of maintenance between two writes."""
MAX_GROUPS = 10_000
"""Number of groups above which a process forgets all of them."""
ERROR_INTERVAL_SECONDS = 60.0
"""Seconds between two log lines about a database that is away."""

_OK = Outcome.OK


class CallRecorder:
    """Recorder of one process."""

    def __init__(self, *, starts_thread: bool = True) -> None:
        self.dropped = 0
        """Calls that were dropped from the full queue, and rows above the limit."""
        self._starts_thread = starts_thread
        self._periodic_tasks: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._options: RecordSettings | None = None
        self._is_enabled = True
        self._selects_all = False
        self._entries: deque[tuple[float, int, float, CallDetail | None]] = deque()
        """Time, number of the group, seconds and detail of each call."""
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._groups: dict[int, CallGroup] = {}
        self._old_numbers: list[int] = []
        """Groups that get no more calls. Calls that wait in the queue may belong to them."""
        self._next_number = itertools.count()
        self._groups_hour = 0.0
        self._records: list[CallEntry] = []
        self._counts = ProcessCounts()
        self._writer = RowWriter(create_process_name())
        self._reporter = ProcessReporter(self._writer.process)
        self._reports = False
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._written = threading.Condition()
        self._minute = 0
        self._minute_rows = 0
        self._logged_at = 0.0
        self._compacted_at = time() - random.random() * COMPACTION_SECONDS  # noqa: S311  # spreads load
        self._maintenance: Iterator[None] = iter(())
        self._maintained_at = time() - random.random() * MAINTENANCE_SECONDS  # noqa: S311  # spreads load

    def reset_after_fork(self) -> None:
        """Forget the calls and the thread of the parent process."""
        self._lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self._reset()

    def forget_settings(self) -> None:
        """Read the settings again before the next call."""
        self._options = None

    def record(self, call: Call, outcome: Outcome, error: MCPError | Overloaded | None) -> None:
        """Record a finished call. Notifications are not recorded. Never raises.

        Each call of the server comes here, so the common case does no more than needed.
        """
        try:
            options = self._options
            if options is None:
                options = self._prepare()
            if not self._is_enabled or type(call.message) is not Request:
                return
            seconds = perf_counter() - call.started_at
            record = call.record
            if (
                outcome is _OK
                and seconds < options.slow
                and not self._selects_all
                and not record.waits
                and record.conversation_id is None
            ):
                detail = None
            else:
                is_selected = self._selects(call, outcome, seconds, options)
                detail = build_detail(call, error, seconds, options) if is_selected else None

            entries = self._entries
            if len(entries) >= options.buffer:
                self._drop_oldest()
            is_plain = error is None and not record.is_continued
            method = call.message.method if is_plain else get_method(call, error)
            key = (call.server.alias, method, record.target, outcome, call.connection.principal.key)
            number = self._numbers.get(key)
            if number is None:
                number = self._add_group(key, build_group(call, method, outcome))
            entries.append((time(), number, seconds, detail))
        except Exception:
            logger.exception("A call could not be recorded")

    def _add_group(self, key: tuple[Any, ...], group: CallGroup) -> int:
        """Return the number of a new group. Two threads may add the same one."""
        number = next(self._next_number)
        self._groups[number] = group
        self._numbers[key] = number
        return number

    def _renew_groups(self, now: float) -> None:
        """Forget the groups at the end of the hour, and when there are many.

        Calls that were recorded with an earlier group are counted by the next write.
        """
        hour = now // HOUR_SECONDS
        if hour == self._groups_hour and len(self._numbers) <= MAX_GROUPS:
            return
        self._groups_hour = hour
        self._numbers = {}
        for number in self._old_numbers:
            del self._groups[number]
        self._old_numbers = list(self._groups)

    def _prepare(self) -> RecordSettings:
        """Load the settings, and start the thread once."""
        options = get_settings()
        exceptions = any(tool.calls is not None and tool.calls.share for tool in options.tools.values())
        self._selects_all = bool(options.calls.share) or exceptions
        self._options = options
        self._is_enabled = options.rollups or options.calls != NO_CALLS or bool(options.tools)
        if self._is_enabled:
            self._start_thread()
        return options

    def start_reports(self) -> None:
        """Report this process from now on, if the settings say so. A loop has started to serve."""
        if self._reports or not (self._options or get_settings()).running:
            return
        self._reports = True
        self._start_thread()

    def _start_thread(self) -> None:
        with self._lock:
            if self._thread is None and self._starts_thread:
                self._thread = threading.Thread(target=self._run, name="mcp-recorder", daemon=True)
                self._thread.start()

    def _selects(self, call: Call, outcome: Outcome, seconds: float, options: RecordSettings) -> bool:
        """Return True if the call gets a row of its own."""
        selection = _get_selection(call, options)
        if (selection.failed and outcome in FAILED_OUTCOMES) or (selection.slow and seconds >= options.slow):
            return True
        if selection.asked and has_question(call, outcome):
            return True
        return selection.share >= 1 or (selection.share > 0 and random.random() < selection.share)  # noqa: S311  # a sample

    def _drop_oldest(self) -> None:
        try:
            self._entries.popleft()
        except IndexError:
            return  # the writing thread has emptied the queue
        self.dropped += 1

    def flush(self) -> bool:
        """Write all calls now, on the connection of the calling thread.

        Returns False if the database is away.
        """
        with self._flush_lock:
            options = self._options or get_settings()
            self._drain(options)
            self._renew_groups(time())
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

    def _drain(self, options: RecordSettings) -> None:
        """Count the calls of the queue, and collect those that get a row."""
        durations: dict[tuple[float, int], list[float]] = {}
        popleft = self._entries.popleft
        for _ in range(len(self._entries)):
            try:
                at, number, seconds, detail = popleft()
            except IndexError:
                break
            key = (at // MINUTE_SECONDS, number)
            found = durations.get(key)
            if found is None:
                durations[key] = [seconds]
            else:
                found.append(seconds)
            if detail is not None and (group := self._groups.get(number)) is not None:
                entry = CallEntry(at, group, seconds, detail)
                if self._may_write_row(entry, options):
                    self._records.append(entry)
        for (minute, number), taken in durations.items():
            group = self._groups.get(number)
            if group is None:  # its thread slept between two renewals of the groups
                self.dropped += len(taken)
            elif options.rollups:
                self._counts.add(minute * MINUTE_SECONDS, group, taken)

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
        self.dropped += 1
        return False

    def _keep_after_failure(self, options: RecordSettings) -> None:
        """Keep what was not written, within the limits of memory."""
        surplus = len(self._records) - options.buffer
        if surplus > 0:
            del self._records[:surplus]
            self.dropped += surplus
        if time() - self._logged_at >= ERROR_INTERVAL_SECONDS:
            self._logged_at = time()
            logger.warning("Records of calls could not be written; they are kept and written later", exc_info=True)

    def _run(self) -> None:
        """Write regularly, until the process ends."""
        while True:
            options = self._options or get_settings()
            self._wake.wait(options.flush)
            self._wake.clear()
            try:
                if self.flush() and self.report():
                    self._maintain()
                else:
                    connections[get_alias()].close()
            except Exception:
                logger.exception("Records of calls could not be written")
                _drop_connection()
            with self._written:
                self._written.notify_all()

    def add_periodic_task(self, task: Callable[[], None]) -> None:
        """Call a function after each write of this process. Its failures are logged."""
        self._periodic_tasks.append(task)

    def _maintain(self) -> None:
        for task in self._periodic_tasks:
            try:
                task()
            except Exception:
                logger.exception("A periodic task of the control room failed")
        if time() - self._compacted_at >= COMPACTION_SECONDS:
            self._compacted_at = time()
            compact_rows(self._writer.process, self._counts.calls.final_before, self._counts.usage.final_before)
        if time() - self._maintained_at >= MAINTENANCE_SECONDS:
            self._maintained_at = time()
            self._maintenance = iter_maintenance()
        self._continue_maintenance()

    def _continue_maintenance(self) -> None:
        """Go on with a maintenance that has begun, for a short time: calls wait to be written."""
        end = perf_counter() + MAX_MAINTENANCE_SECONDS
        for _part in self._maintenance:
            if perf_counter() >= end:
                return

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

    def stop(self, **kwargs: Any) -> None:
        """Write all calls, and delete the report of this process."""
        self._reports = False
        self.flush_from_thread()

    def flush_from_thread(self) -> None:
        """Wake the thread, and wait a few seconds until it has written."""
        thread = self._thread
        if thread is None or not thread.is_alive() or thread is threading.current_thread():
            return
        with self._written:
            self._wake.set()
            self._written.wait(STOP_TIMEOUT_SECONDS)


def _drop_connection() -> None:
    """Close the connection of this thread, and forget it.

    After an error in the middle of a transaction it may hold locks, and its state is unknown.
    """
    alias = get_alias()
    with suppress(Error):
        connections[alias].close()
    del connections[alias]


def _get_selection(call: Call, options: RecordSettings) -> CallSelection:
    exception = options.tools.get(call.record.target or "") if options.tools else None
    return options.calls if exception is None or exception.calls is None else exception.calls


def create_process_name() -> str:
    """Return a name for this process that no other process has."""
    return f"{socket.gethostname()[:48]}:{os.getpid()}:{secrets.token_hex(4)}"


RECORDER = CallRecorder()
"""The recorder of this process."""


def install_recorder() -> None:
    """Record the calls of this process from now on."""
    add_outcome_recorder(RECORDER.record)
    on_change()(RECORDER.forget_settings)
    wiring.get_lifecycle().loop_callbacks.add(RECORDER.start_reports)
    server_drained.connect(RECORDER.stop, dispatch_uid="mcp_control_room")
    os.register_at_fork(after_in_child=RECORDER.reset_after_fork)
    post_delete.connect(remove_deleted_user, dispatch_uid="mcp_control_room")
    atexit.register(RECORDER.stop)
