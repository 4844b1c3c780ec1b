"""Figures of tasks for monitoring: waiting tasks, the oldest one, lost attempts, workers.

The control room measures one of them for its alerts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Min, Q
from django.utils.translation import gettext_lazy as _

from mcp_django.contrib.control_room.alert_rules import Measurement, RuleDefinition, register_rules
from mcp_django.contrib.tasks.models import ACTIVE, AttemptOutcome, Task, TaskAttempt, TaskStatus, TaskWorker
from mcp_django.contrib.tasks.rows import database
from mcp_django.contrib.tasks.rows.leases import ALIVE_SECONDS

LOSS_WINDOW_SECONDS = 3600.0
"""Seconds for which a lost attempt counts."""
OLDEST_TASK = RuleDefinition(
    name="oldest_task",
    label=_("Seconds for which the oldest task has waited"),
    limit=300.0,
    time_text=_("the oldest task has waited for %(value)s (limit: %(limit)s)"),
)


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """The state of all tasks at one time."""

    waiting: int
    """Number of tasks without a worker."""
    oldest_waiting_seconds: float
    """Seconds for which the oldest of them has waited; 0 without one."""
    running: int
    input_required: int
    expired_leases: int
    """Number of running tasks whose worker is silent, before maintenance has ended their attempts."""
    lost_attempts: int
    """Number of attempts of the last hour whose worker was lost."""
    workers: int
    """Number of worker processes that have reported lately."""


def read_figures() -> TaskFigures:
    """Return the figures, from three statements."""
    now = database.now()
    is_working = Q(status=TaskStatus.WORKING)
    is_waiting = is_working & Q(worker="")
    counts = Task.objects.filter(status__in=ACTIVE, expires__gt=now).aggregate(
        waiting=Count("pk", filter=is_waiting),
        oldest=Min("updated", filter=is_waiting),
        running=Count("pk", filter=is_working & ~Q(worker="")),
        input_required=Count("pk", filter=Q(status=TaskStatus.INPUT_REQUIRED)),
        expired=Count("pk", filter=is_working & Q(lease_expires__lt=now)),
    )
    lost = TaskAttempt.objects.filter(
        outcome=AttemptOutcome.LOST, ended__gte=now - timedelta(seconds=LOSS_WINDOW_SECONDS)
    )
    alive = TaskWorker.objects.filter(seen__gte=now - timedelta(seconds=ALIVE_SECONDS))
    oldest = counts["oldest"]
    return TaskFigures(
        waiting=counts["waiting"],
        oldest_waiting_seconds=0.0 if oldest is None else max(0.0, (now - oldest).total_seconds()),
        running=counts["running"],
        input_required=counts["input_required"],
        expired_leases=counts["expired"],
        lost_attempts=lost.count(),
        workers=alive.count(),
    )


def measure_oldest_task(now: datetime) -> Iterator[Measurement]:
    """Yield the seconds for which the oldest task without a worker has waited."""
    yield Measurement(OLDEST_TASK.name, "", read_figures().oldest_waiting_seconds)


def register_alert_rule() -> None:
    """Register the rule about the oldest task, for projects with the control room."""
    register_rules(measure_oldest_task, OLDEST_TASK)
