"""Leases: claims of workers on waiting tasks, lost workers, rows of workers.

A task waits if it is `working` and has no worker. A claim gives it to one worker for `lease` seconds, and heartbeats
extend the lease. Two workers never hold the same task, because each claim is one conditional UPDATE.
"""

import os
import secrets
import socket
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import connections, transaction
from django.db.models import F, Q, QuerySet

from mcp_django.contrib.tasks.models import (
    ACTIVE,
    WORKER_CHARACTERS,
    AttemptOutcome,
    Task,
    TaskAttempt,
    TaskStatus,
    TaskWorker,
)
from mcp_django.contrib.tasks.rows import database, store
from mcp_django.extensions.calls import jsonrpc
from mcp_django.extensions.errors import InternalError
from mcp_django.extensions.event_loop import monotonic

ALIVE_SECONDS = 45.0
"""Seconds after its last report for which a worker process counts as alive."""
SILENT_ROW_SECONDS = 3600.0
"""Seconds after which the row of a silent worker process is deleted."""
LOST_MESSAGE = "The worker of this task was lost, and the tool must not run twice"
STOPPED_MESSAGE = "The server stopped before the task was finished, and the tool must not run twice"


def create_worker_name() -> str:
    """Return a name for one claim: host, process, and random letters."""
    suffix = f":{os.getpid()}:{secrets.token_hex(6)}"
    return f"{socket.gethostname()[: WORKER_CHARACTERS - len(suffix)]}{suffix}"


def find_due() -> QuerySet[Task]:
    """Return the tasks that a worker may claim now."""
    now = database.now()
    is_due = Q(run_after=None) | Q(run_after__lte=now)
    return Task.objects.filter(is_due, status=TaskStatus.WORKING, worker="", expires__gt=now)


def claim_task(id: str, *, worker: str, lease: float) -> Task | None:
    """Claim a waiting task for an attempt; return its row, or None if it does not wait."""
    waiting = find_due().filter(pk=id)
    sent = monotonic()
    with transaction.atomic(using=store.get_alias()):
        if not waiting.update(attempts=F("attempts") + 1, **_build_claim(worker, lease)):
            return None
        task = Task.objects.get(pk=id)
        task.lease_sent = sent
        store.start_attempts([task])
    return task


def claim_next_tasks(queues: Sequence[str] | None, *, worker: str, lease: float, limit: int) -> list[Task]:
    """Claim up to `limit` of the oldest waiting tasks of some queues (None: of all); return their rows.

    `worker` names this claim: a new name for each call. On PostgreSQL and MySQL concurrent workers skip the rows that
    others are claiming, and the claim takes three statements.
    """
    waiting = find_due().order_by("created")
    if queues is not None:
        waiting = waiting.filter(queue__in=queues)

    if not connections[store.get_alias()].features.has_select_for_update_skip_locked:
        ids = waiting.values_list("pk", flat=True)[:limit]
        claimed = [claim_task(id, worker=worker, lease=lease) for id in ids]
        return [task for task in claimed if task is not None]

    sent = monotonic()
    with transaction.atomic(using=store.get_alias()):
        rows = list(waiting.select_for_update(skip_locked=True)[:limit])
        if rows:
            values = _build_claim(worker, lease)
            Task.objects.filter(pk__in=[task.pk for task in rows]).update(attempts=F("attempts") + 1, **values)
            for task in rows:
                task.lease_sent = sent
                for name, value in {"attempts": task.attempts + 1, **values}.items():
                    setattr(task, name, value)
            store.start_attempts(rows)
    return rows


def _build_claim(worker: str, lease: float) -> dict[str, Any]:
    now = database.now()
    return {
        "worker": worker,
        "heartbeat": now,
        "lease_expires": now + timedelta(seconds=lease),
        "run_after": None,
    }


def return_task(task: Task, *, delay: float) -> Task | None:
    """Return a claimed task, whose tool has not begun, to the waiting ones; return its row.

    No worker claims it for `delay` seconds. The attempt does not count: neither as a loss nor as an attempt. Returns
    None if the attempt has lost its lease.
    """
    now = database.now()
    held = Task.objects.filter(pk=task.pk, worker=task.worker, status=TaskStatus.WORKING)
    values: dict[str, Any] = {"updated": now, "run_after": now + timedelta(seconds=delay)}
    with transaction.atomic(using=store.get_alias()):
        if not held.update(worker="", lease_expires=None, attempts=F("attempts") - 1, **values):
            return None
        TaskAttempt.objects.filter(task=task.pk, number=task.attempts).delete()
    return Task.objects.get(pk=task.pk)


def return_claim(worker: str) -> None:
    """Return all tasks of a claim, of which no tool has begun, to the waiting ones."""
    for task in Task.objects.filter(status=TaskStatus.WORKING, worker=worker):
        return_task(task, delay=0)


def record_unknown(task: Task) -> timedelta:
    """Record that the worker of a task does not know its tool.

    Returns the time since the first such record. It begins again after an attempt in which the tool has run.
    """
    now, since = database.now(), task.unknown_since
    if since is not None and not TaskAttempt.objects.filter(task=task.pk, ended__gt=since).exists():
        return now - since
    Task.objects.filter(pk=task.pk, worker=task.worker).update(unknown_since=now)
    return timedelta()


def end_lost_attempt(task: Task, outcome: AttemptOutcome, text: str) -> Task | None:
    """End the attempt of a lost or stopped worker, and return the row; None if another process was faster.

    A task whose tool has committed its result is completed. Another one waits again if it may be repeated. Otherwise
    it fails with `text`. Nothing changes while the tool is about to commit.
    """
    error = jsonrpc.dumps({"code": InternalError.code, "message": text}).decode()
    failed = store.TaskEnd(task, TaskStatus.FAILED, {"error": error, "status_message": text})
    with transaction.atomic(using=store.get_alias()):
        if not store.lock_attempt(task):
            return None
        is_committed = store.complete_committed(task)
        is_waiting = not is_committed and store.give_up_lease(task.pk, task.worker)
        if not is_committed and not is_waiting and not store.finish_row(failed):
            return None
        store.end_attempt(task.pk, task.attempts, AttemptOutcome.FINISHED if is_committed else outcome)
    return Task.objects.get(pk=task.pk) if is_waiting else store.read_finished(task.pk)


def end_expired_attempt(task: Task) -> Task | None:
    """End the attempt of another worker, whose lease has expired in this row.

    Returns the row, as `end_lost_attempt` does. Nothing changes if the worker has extended the lease since the row was
    read.
    """
    with transaction.atomic(using=store.get_alias()):
        if not store.lock_attempt(task, lease_expires=task.lease_expires):
            return None
        return end_lost_attempt(task, AttemptOutcome.LOST, LOST_MESSAGE)


def end_lost_attempts(*, min_seconds: float = 0.0, limit: int = 100) -> list[Task]:
    """End the attempts whose leases expired at least `min_seconds` ago.

    Returns the rows, which have ended or wait again.
    """
    before = database.now() - timedelta(seconds=min_seconds)
    lost = Task.objects.filter(status=TaskStatus.WORKING, lease_expires__lt=before).exclude(worker="")
    rows = [end_expired_attempt(task) for task in lost.order_by("lease_expires")[:limit]]
    return [row for row in rows if row is not None]


def find_waiting(*, before: datetime, limit: int = 100, is_unsent: Q | None = None) -> list[Task]:
    """Return tasks that have waited since `before`, or whose delay is over, the oldest first."""
    rows = find_due().filter(Q(updated__lt=before) | Q(run_after__isnull=False))
    return list((rows if is_unsent is None else rows.filter(is_unsent)).order_by("created")[:limit])


def claim_resends(*, before: datetime, repeat_before: datetime, limit: int = 100) -> list[Task]:
    """Claim the delivery of tasks that have waited since `before`; return their rows, the oldest first.

    Each task is claimed by one process. It is claimed again if its last delivery was before `repeat_before`, or before
    it began to wait.
    """
    is_unsent = Q(sent=None) | Q(sent__lt=F("updated")) | Q(sent__lt=repeat_before)
    now = database.now()
    waiting = find_waiting(before=before, limit=limit, is_unsent=is_unsent)
    unsent = Task.objects.filter(is_unsent, status=TaskStatus.WORKING, worker="")
    return [task for task in waiting if unsent.filter(pk=task.pk).update(sent=now)]


def release_resend(id: str) -> None:
    """Let a task be delivered by the next maintenance, because this delivery failed."""
    Task.objects.filter(pk=id).update(sent=None)


def cancel_expired(*, limit: int = 100) -> list[Task]:
    """Cancel unfinished tasks that have expired; return their rows."""
    expired = Task.objects.filter(status__in=ACTIVE, expires__lte=database.now()).order_by("expires")
    rows = [store.cancel(id) for id in expired.values_list("pk", flat=True)[:limit]]
    return [row for row in rows if row is not None]


def delete_expired(*, before: datetime, limit: int = 500) -> int:
    """Delete up to `limit` finished tasks that expired before a time; return their number."""
    expired = Task.objects.filter(expires__lt=before).exclude(status__in=ACTIVE).order_by("expires")
    keys = list(expired.values_list("pk", flat=True)[:limit])
    if not keys:
        return 0
    with transaction.atomic(using=store.get_alias()):
        return Task.objects.filter(pk__in=keys).delete()[1].get(Task._meta.label, 0)


def report_worker(row: TaskWorker, running: int, finished: int) -> None:
    """Write the state of a worker, and delete the rows of workers that are silent for an hour."""
    now = database.now()
    if row._state.adding:
        row.started = now
    row.running = running
    row.finished = finished
    row.seen = now
    row.save()
    TaskWorker.objects.filter(seen__lt=now - timedelta(seconds=SILENT_ROW_SECONDS)).delete()


def remove_worker(row: TaskWorker) -> None:
    """Delete the row of a worker that ends."""
    TaskWorker.objects.filter(pk=row.pk).delete()


def is_worker_alive(row: TaskWorker) -> bool:
    """Return True if a worker process has reported lately."""
    return row.seen >= database.now() - timedelta(seconds=ALIVE_SECONDS)
