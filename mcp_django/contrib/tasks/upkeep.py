"""Maintenance of the rows: lost workers, forgotten deliveries, expired tasks, and deletion."""

import logging
from dataclasses import dataclass
from datetime import timedelta

from django.utils import timezone

from mcp_django.contrib.tasks.attempts.executions import cancel_execution
from mcp_django.contrib.tasks.backend import TaskBackend
from mcp_django.contrib.tasks.models import Task
from mcp_django.contrib.tasks.options import get_settings
from mcp_django.contrib.tasks.publishing import publish_change
from mcp_django.contrib.tasks.rows import leases, store

logger = logging.getLogger("mcp_django.tasks")
MAX_INTERVAL_SECONDS = 15.0
"""Maximum seconds between two searches for lost, forgotten and expired tasks."""
FORGOTTEN_SECONDS = 15.0
"""Seconds after which a waiting task is enqueued again."""
DELETION_ROWS = 500
"""Rows that one statement deletes."""


@dataclass(frozen=True, slots=True)
class MaintenanceCounts:
    """Numbers of tasks that maintenance has changed."""

    lost: int
    enqueued: int
    expired: int
    deleted: int


def get_interval() -> float:
    """Return the seconds between two searches, at most a lease.

    A lost task therefore ends within two leases.
    """
    return min(MAX_INTERVAL_SECONDS, get_settings().lease)


async def maintain_tasks(backend: TaskBackend, *, enqueues: bool = True) -> MaintenanceCounts:
    """End lost attempts, enqueue tasks that no process runs, cancel expired tasks, and delete old rows.

    Any number of processes may do so at the same time. Without `enqueues`, tasks that wait go on waiting.
    """
    before = timezone.now() - timedelta(seconds=FORGOTTEN_SECONDS)
    lost = await store.run_on_rows(leases.end_lost_attempts)
    forgotten = await store.run_on_rows(leases.find_waiting, before=before)
    waiting = {task.pk: task for task in (*lost, *forgotten) if not task.is_terminal}
    for task in waiting.values() if enqueues else ():
        await enqueue_task(backend, task)
    for task in lost:
        await publish_change(task.pk)

    expired = await store.run_on_rows(leases.cancel_expired)
    for task in expired:
        await stop_cancelled_task(backend, task)
    return MaintenanceCounts(len(lost), len(waiting) if enqueues else 0, len(expired), await delete_old_tasks())


async def enqueue_task(backend: TaskBackend, task: Task) -> None:
    """Enqueue a waiting task. A failure is logged, and the next maintenance repeats it."""
    try:
        await backend.enqueue(task)
    except Exception:
        logger.exception("A task could not be enqueued; it is repeated")


async def stop_cancelled_task(backend: TaskBackend, task: Task) -> None:
    """Stop the tool of a cancelled task, in each process, and publish the change."""
    await cancel_execution(task.pk)
    await backend.cancel(task)
    await publish_change(task.pk)


async def delete_old_tasks() -> int:
    """Delete the rows of finished tasks whose retention is over, in batches; return their number."""
    before = timezone.now() - timedelta(seconds=get_settings().retention)
    deleted = 0
    while count := await store.run_on_rows(leases.delete_expired, before=before, limit=DELETION_ROWS):
        deleted += count
    return deleted
