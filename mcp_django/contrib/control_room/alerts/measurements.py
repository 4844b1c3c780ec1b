"""Measurements of the rules: values of tools, processes, remote servers and tasks, with their limits."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.apps import apps
from django.utils import timezone
from django.utils.module_loading import import_string

from mcp_django.contrib.control_room.alerts.options import AlertSettings
from mcp_django.contrib.control_room.models import CallRollup, LongCall, OutcomeChoices, Period, ServingProcess
from mcp_django.contrib.control_room.recording.histogram import estimate_percentile, merge
from mcp_django.contrib.control_room.recording.writer import get_alias
from mcp_django.models import ClientHealth

SERVER_FAILURES = (OutcomeChoices.TOOL_ERROR, OutcomeChoices.BUG, OutcomeChoices.TIMEOUT)
"""Outcomes that count as errors of a tool. Mistakes and cancellations of clients do not."""
HEALTH_SECONDS = 900.0
"""Seconds for which the report of a process about a remote server counts."""
MIN_ENDED_SHARE = 0.95
"""Share of the calls that ended within the reported time."""
TASKS_APP = "mcp_django.contrib.tasks"
TASK_FIGURES = "mcp_django.contrib.tasks.rows.figures.read_figures"


@dataclass(frozen=True, slots=True)
class Measurement:
    """Value of a rule for one subject."""

    rule: str
    subject: str
    """Tool, process or server; empty for the whole project."""
    value: float
    is_total: bool = False
    """True for a total that only grows. Its increase since the last check counts."""


Rule = Callable[[AlertSettings, datetime], Iterator[Measurement]]


def measure_tools(settings: AlertSettings, now: datetime) -> Iterator[Measurement]:
    """Yield the errors and the slowness of each tool, and the refusals of each server."""
    since = now - timedelta(seconds=settings.window)
    rows = CallRollup.objects.using(get_alias()).filter(period=Period.MINUTE, start__gte=since, start__lte=now)
    groups: dict[tuple[str, str], list[CallRollup]] = defaultdict(list)
    refusals: dict[str, int] = defaultdict(int)
    for row in rows.order_by().iterator():
        groups[row.server, row.name or row.method].append(row)
        if row.outcome == OutcomeChoices.OVERLOADED:
            refusals[row.server] += row.count

    for (server, name), group in groups.items():
        subject = f"{server}: {name}"
        count = sum(row.count for row in group)
        failures = sum(row.count for row in group if row.outcome in SERVER_FAILURES)
        yield Measurement("bugs", subject, sum(row.count for row in group if row.outcome == OutcomeChoices.BUG))
        if count >= settings.min_calls:
            yield Measurement("errors", subject, failures / count)
            milliseconds = estimate_percentile(merge(row.histogram for row in group), MIN_ENDED_SHARE)
            yield Measurement("slow", subject, (milliseconds or 0.0) / 1000)
    for server, count in refusals.items():
        yield Measurement("refusals", server, count)


def measure_processes(settings: AlertSettings, now: datetime) -> Iterator[Measurement]:
    """Yield the state of each process, and the age of the oldest call."""
    alias = get_alias()
    for process in ServingProcess.objects.using(alias).all():
        yield Measurement("silent_process", process.name, max(0.0, (now - process.updated).total_seconds()))
        yield Measurement("thread_queue", process.name, process.queued)
        yield Measurement("dropped", process.name, process.dropped, is_total=True)
    for call in LongCall.objects.using(alias).order_by("started")[:1]:
        subject = f"{call.server}: {call.name or call.method}"
        yield Measurement("oldest_call", subject, (now - call.started).total_seconds())


def measure_remotes(settings: AlertSettings, now: datetime) -> Iterator[Measurement]:
    """Yield the failing processes of each remote server."""
    failing: dict[str, int] = defaultdict(int)
    for row in ClientHealth.objects.filter(updated__gte=now - timedelta(seconds=HEALTH_SECONDS)):
        failing[row.alias] += row.is_failing
    for alias, count in failing.items():
        yield Measurement("remote", alias, count)


def measure_tasks(settings: AlertSettings, now: datetime) -> Iterator[Measurement]:
    """Yield the waiting time of the oldest task without a worker."""
    if apps.is_installed(TASKS_APP):
        yield Measurement("oldest_task", "", import_string(TASK_FIGURES)().oldest_waiting_seconds)


RULES: Mapping[Rule, frozenset[str]] = {
    measure_tools: frozenset({"errors", "bugs", "slow", "refusals"}),
    measure_processes: frozenset({"silent_process", "thread_queue", "dropped", "oldest_call"}),
    measure_remotes: frozenset({"remote"}),
    measure_tasks: frozenset({"oldest_task"}),
}
"""Functions that measure, and the rules that each of them serves."""


def measure(settings: AlertSettings, now: datetime | None = None) -> list[Measurement]:
    """Return the measurements of all rules that are on."""
    now = now or timezone.now()
    return [
        measurement
        for function, rules in RULES.items()
        if not rules.isdisjoint(settings.limits)
        for measurement in function(settings, now)
        if measurement.rule in settings.limits
    ]
