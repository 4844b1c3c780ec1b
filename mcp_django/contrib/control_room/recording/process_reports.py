"""Reports of this process: its state, versions, and running calls older than a second.

Shorter calls are never written. An administrator cancels a call by a mark on its row, in any process. The process of
the call finds the mark with its next report. So cancelling works under WSGI too, where no loop follows the event log.
"""

import platform
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from time import perf_counter, time
from typing import Any

import django
from django.db import transaction
from django.utils import timezone

from mcp_django import wiring
from mcp_django.conf import get_settings
from mcp_django.conf.project import read_version
from mcp_django.contrib.control_room.models import (
    KEY_CHARACTERS,
    NAME_CHARACTERS,
    LongCall,
    ReportedStream,
    ServingProcess,
)
from mcp_django.contrib.control_room.recording.entries import get_client_label, get_name, get_user_key
from mcp_django.contrib.control_room.recording.stream_reports import StreamReporter
from mcp_django.contrib.control_room.recording.writer import get_alias
from mcp_django.extensions.calls import sanitize_label
from mcp_django.extensions.event_loop import call_threadsafe
from mcp_django.runtime.calls.task import CallTask

MIN_AGE_SECONDS = 1.0
"""Age from which a running call is reported."""
MAX_REPORTED_CALLS = 200
"""Maximum calls that a process reports, the oldest first."""
HEARTBEAT_SECONDS = 5.0
"""Seconds between two reports of an idle process."""
SILENT_SECONDS = 15.0
"""Seconds after which a process without a report counts as silent, and its calls as lost."""
FORGET_SECONDS = 600.0
"""Seconds after which a silent process is deleted."""
CANCELLED_MESSAGE = "An administrator of the server cancelled the call"
_VERSIONS = {
    "package_version": read_version()[:32],
    "python_version": platform.python_version()[:32],
    "django_version": django.get_version()[:32],
}
_CHANGING = ("waits_for", "progress", "progress_total")


class ProcessReporter:
    """Reporter of one process. One thread uses it."""

    def __init__(self, process: str) -> None:
        self.process = process
        self._started = timezone.now()
        self._keys: dict[CallTask, str] = {}
        """Keys of the rows of running calls."""
        self._written: dict[str, tuple[Any, ...]] = {}
        """Changing values of the rows that this process has written."""
        self._cancelled: set[str] = set()
        self._streams = StreamReporter(process)
        self._reported_at = 0.0

    def report(self, dropped: int) -> None:
        """Write the changes since the last report, and cancel the marked calls. Raises `Error`.

        `dropped` is the number of records that were dropped.
        """
        running = _find_running_calls()
        rows = {row.key: (task, row) for task, row in self._build_rows(running)}
        is_due = time() - self._reported_at >= HEARTBEAT_SECONDS
        if not rows and not self._written and not is_due:
            return

        alias = get_alias()
        self._streams.report(alias)
        with transaction.atomic(using=alias):
            self._write_process(len(running), dropped)
            self._write_calls([row for _task, row in rows.values()], alias)
        self._reported_at = time()
        self._cancel_marked({key: task for key, (task, _row) in rows.items()}, alias)
        if is_due:
            delete_lost_processes()

    def remove(self) -> None:
        """Delete the rows of this process, because it ends. Raises `Error`."""
        if self._reported_at:
            alias = get_alias()
            LongCall.objects.using(alias).filter(process=self.process).delete()
            self._streams.remove(alias)
            ServingProcess.objects.using(alias).filter(name=self.process).delete()
        self._written.clear()
        self._reported_at = 0.0

    def _build_rows(self, running: Iterable[CallTask]) -> list[tuple[CallTask, LongCall]]:
        now = perf_counter()
        old = [task for task in running if now - task.call.started_at >= MIN_AGE_SECONDS]
        old.sort(key=lambda task: task.call.started_at)
        self._keys = {task: self._keys.get(task) or secrets.token_hex(16) for task in old[:MAX_REPORTED_CALLS]}
        return [(task, self._build_row(task, key, now)) for task, key in self._keys.items()]

    def _build_row(self, task: CallTask, key: str, now: float) -> LongCall:
        call = task.call
        progress, total = call.record.progress or (None, None)
        return LongCall(
            key=key,
            process=self.process,
            started=datetime.fromtimestamp(time() - (now - call.started_at), UTC),
            server=call.server.alias,
            method=sanitize_label(call.method)[:64],
            name=get_name(call.method, call.record.target),
            principal=call.principal.key[:KEY_CHARACTERS],
            user_key=get_user_key(call.principal),
            client=get_client_label(call.client_info),
            revision=call.revision.version,
            waits_for=(call.record.waits_for or "")[:NAME_CHARACTERS],
            progress=progress,
            progress_total=total,
        )

    def _write_process(self, running: int, dropped: int) -> None:
        usage = wiring.get_services().executor.get_usage()
        ServingProcess.objects.using(get_alias()).update_or_create(
            name=self.process,
            defaults={
                "started": self._started,
                "updated": timezone.now(),
                "running": running,
                "busy_threads": usage.busy,
                "max_threads": get_settings().limits.threads,
                "queued": usage.queued,
                "dropped": dropped,
                "streams": self._streams.count,
                **_VERSIONS,
            },
        )

    def _write_calls(self, rows: list[LongCall], alias: str) -> None:
        """Insert new rows, update changed ones, and delete those of ended calls."""
        calls = LongCall.objects.using(alias)
        values = {row.key: tuple(getattr(row, name) for name in _CHANGING) for row in rows}
        ended = self._written.keys() - values.keys()
        if ended:
            calls.filter(key__in=ended).delete()
        new = [row for row in rows if row.key not in self._written]
        calls.bulk_create(new, ignore_conflicts=True)
        changed = [row for row in rows if self._written.get(row.key, values[row.key]) != values[row.key]]
        calls.bulk_update(changed, _CHANGING)
        self._written = values

    def _cancel_marked(self, tasks: dict[str, CallTask], alias: str) -> None:
        """Cancel the calls that an administrator has marked. Their clients get an error."""
        self._cancelled &= tasks.keys()
        if not tasks.keys() - self._cancelled:
            return
        marked = LongCall.objects.using(alias).filter(process=self.process, cancelled__isnull=False)
        for key in marked.values_list("key", flat=True):
            task = tasks.get(key)
            if task is not None and key not in self._cancelled:
                self._cancelled.add(key)
                call_threadsafe(task.loop, task.abort, CANCELLED_MESSAGE)


def _find_running_calls() -> list[CallTask]:
    """Return the running calls of all loops of this process."""
    return [item for item in list(wiring.get_services().lifecycle.active) if isinstance(item, CallTask)]


def is_silent(process: ServingProcess) -> bool:
    """Return True if a process has not reported for too long."""
    return process.updated < timezone.now() - timedelta(seconds=SILENT_SECONDS)


def delete_lost_processes() -> None:
    """Delete the rows of processes that have been silent for long."""
    alias = get_alias()
    before = timezone.now() - timedelta(seconds=FORGET_SECONDS)
    lost = list(ServingProcess.objects.using(alias).filter(updated__lt=before).values_list("name", flat=True))
    if lost:
        LongCall.objects.using(alias).filter(process__in=lost).delete()
        ReportedStream.objects.using(alias).filter(process__in=lost).delete()
        ServingProcess.objects.using(alias).filter(name__in=lost, updated__lt=before).delete()
