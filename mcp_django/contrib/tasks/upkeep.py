"""Maintenance of the rows: lost workers, forgotten deliveries, expired tasks, and deletion."""

from dataclasses import dataclass
from datetime import timedelta

from mcp_django.contrib.tasks.attempts.executions import cancel_execution
from mcp_django.contrib.tasks.backend import TaskBackend, get_backend
from mcp_django.contrib.tasks.models import Task
from mcp_django.contrib.tasks.options import get_settings
from mcp_django.contrib.tasks.publishing import publish_change
from mcp_django.contrib.tasks.rows import database, leases, store
from mcp_django.contrib.tasks.rows.database import AVAILABILITY
from mcp_django.extensions.calls import get_logger
from mcp_django.extensions.event_loop import LoopLocal, is_async_to_sync_loop, start_task, start_timer

logger = get_logger("mcp_django.tasks")
MAX_INTERVAL_SECONDS = 15.0
"""Maximum seconds between two searches for lost, forgotten and expired tasks."""
FORGOTTEN_SECONDS = 15.0
"""Seconds after which a waiting task is enqueued again."""
RESEND_SECONDS = 300.0
"""Seconds between further deliveries to workers.

A task may also wait for long because all workers are busy.
"""
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
    """Return the seconds between two searches, at most half a lease.

    A lost task therefore ends within two leases, and no outage that costs a lease fits between two searches.
    """
    return min(MAX_INTERVAL_SECONDS, get_settings().lease / 2)


class RegularMaintenance:
    """Maintenance on one loop, at regular intervals from the first `start` on."""

    def __init__(self) -> None:
        self.is_started = False

    def start(self) -> None:
        """Maintain the tasks from now on. Idempotent."""
        if not self.is_started:
            self.is_started = True
            self._schedule()

    def _schedule(self) -> None:
        start_timer(get_interval(), lambda: start_task(self._run()))

    async def _run(self) -> None:
        try:
            await maintain_tasks(get_backend())
        except Exception:
            logger.exception("Maintenance of tasks failed; it is repeated")
        self._schedule()


_maintenance = LoopLocal(RegularMaintenance)


def start_maintenance() -> None:
    """Maintain the tasks regularly on the running loop, unless it ends with its request. Idempotent.

    Each process that serves does so from its start, or from its first request if its server sends no lifespan messages.
    So a task that waited during a restart is taken without a poll. Processes that run tasks do so, too.
    """
    if not is_async_to_sync_loop():
        _maintenance.get().start()


async def maintain_tasks(backend: TaskBackend, *, enqueues: bool = True, is_command: bool = False) -> MaintenanceCounts:
    """End lost attempts, enqueue tasks that no process runs, cancel expired tasks, and delete old rows.

    Any number of processes may do so at the same time. Without `enqueues`, tasks that wait go on waiting.
    `is_command` is True for a process that does so once.
    """
    before = database.now() - timedelta(seconds=FORGOTTEN_SECONDS)
    lost = await _end_lost_attempts(is_command)
    waiting = {task.pk: task for task in lost if not task.is_terminal}
    if enqueues and backend.delivers_to_workers:
        repeat_before = database.now() - timedelta(seconds=RESEND_SECONDS)
        due = await store.run_on_rows(leases.claim_resends, before=before, repeat_before=repeat_before)
        waiting |= {task.pk: task for task in due}
    elif enqueues:
        # Each process takes them, as far as it has places.
        waiting |= {task.pk: task for task in await store.run_on_rows(leases.find_waiting, before=before)}
    for task in waiting.values() if enqueues else ():
        if not await enqueue_task(backend, task):
            await store.run_on_rows(leases.release_resend, task.pk)
    for task in lost:
        await publish_change(task.pk)

    expired = await store.run_on_rows(leases.cancel_expired)
    for task in expired:
        await stop_cancelled_task(backend, task)
    return MaintenanceCounts(len(lost), len(waiting) if enqueues else 0, len(expired), await delete_old_tasks())


async def _end_lost_attempts(is_command: bool) -> list[Task]:
    """End the attempts of lost workers, unless the database was away lately.

    The workers may only seem to be lost then.
    """
    lease = get_settings().lease
    if is_command:
        # It has not seen whether the database was away. So it waits in another way.
        return await store.run_on_rows(leases.end_lost_attempts, min_seconds=lease)
    return await store.run_on_rows(leases.end_lost_attempts) if AVAILABILITY.has_lasted(lease) else []


async def enqueue_task(backend: TaskBackend, task: Task) -> bool:
    """Enqueue a waiting task. A failure is logged, and the next maintenance repeats it.

    Returns False if it failed.
    """
    try:
        await backend.enqueue(task)
    except Exception:
        logger.exception("A task could not be enqueued; it is repeated")
        return False
    return True


async def stop_cancelled_task(backend: TaskBackend, task: Task) -> None:
    """Stop the tool of a cancelled task, in each process, and publish the change."""
    await cancel_execution(task.pk)
    await backend.cancel(task)
    await publish_change(task.pk)


async def delete_old_tasks() -> int:
    """Delete the rows of finished tasks whose retention is over, in batches; return their number."""
    before = database.now() - timedelta(seconds=get_settings().retention)
    deleted = 0
    while count := await store.run_on_rows(leases.delete_expired, before=before, limit=DELETION_ROWS):
        deleted += count
    return deleted
