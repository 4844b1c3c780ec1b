"""Measurements of the rules of the control room: values of tools, processes and remote servers."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.contrib.control_room.alert_rules import (
    Measurement,
    RuleDefinition,
    iter_measurements,
    register_rules,
)
from mcp_django.contrib.control_room.alerts.options import get_alert_settings
from mcp_django.contrib.control_room.models import (
    AlertRule,
    CallRollup,
    LongCall,
    OutcomeChoices,
    Period,
    ServingProcess,
)
from mcp_django.contrib.control_room.recording.histogram import estimate_percentile, merge
from mcp_django.contrib.control_room.recording.writer import get_alias
from mcp_django.models import ClientHealth

SERVER_FAILURES = (OutcomeChoices.TOOL_ERROR, OutcomeChoices.BUG, OutcomeChoices.TIMEOUT)
"""Outcomes that count as errors of a tool. Mistakes and cancellations of clients do not."""
HEALTH_SECONDS = 900.0
"""Seconds for which the report of a process about a remote server counts."""
MIN_ENDED_SHARE = 0.95
"""Share of the calls that ended within the reported time."""


def measure_tools(now: datetime) -> Iterator[Measurement]:
    """Yield the errors and the slowness of each tool, and the refusals of each server."""
    settings = get_alert_settings()
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


def measure_processes(now: datetime) -> Iterator[Measurement]:
    """Yield the state of each process, and the age of the oldest call."""
    alias = get_alias()
    for process in ServingProcess.objects.using(alias).all():
        yield Measurement("silent_process", process.name, max(0.0, (now - process.updated).total_seconds()))
        yield Measurement("thread_queue", process.name, process.queued)
        yield Measurement("dropped", process.name, process.dropped, is_total=True)
    for call in LongCall.objects.using(alias).order_by("started")[:1]:
        subject = f"{call.server}: {call.name or call.method}"
        yield Measurement("oldest_call", subject, (now - call.started).total_seconds())


def measure_remotes(now: datetime) -> Iterator[Measurement]:
    """Yield the failing processes of each remote server."""
    failing: dict[str, int] = defaultdict(int)
    for row in ClientHealth.objects.filter(updated__gte=now - timedelta(seconds=HEALTH_SECONDS)):
        failing[row.alias] += row.is_failing
    for alias, count in failing.items():
        yield Measurement("remote", alias, count)


def measure(now: datetime | None = None) -> list[Measurement]:
    """Return the measurements of all rules that are on."""
    return list(iter_measurements(get_alert_settings().limits, now or timezone.now()))


def register() -> None:
    """Register the rules of the control room."""
    register_rules(
        measure_tools,
        RuleDefinition(name=AlertRule.ERRORS, label=AlertRule.ERRORS.label, limit=0.05),
        RuleDefinition(name=AlertRule.BUGS, label=AlertRule.BUGS.label, limit=0.0),
        RuleDefinition(
            name=AlertRule.SLOW,
            label=AlertRule.SLOW.label,
            limit=15.0,
            time_text=_("95 %% of the calls took up to %(value)s (limit: %(limit)s)"),
        ),
        RuleDefinition(name=AlertRule.REFUSALS, label=AlertRule.REFUSALS.label, limit=5.0),
    )
    register_rules(
        measure_processes,
        RuleDefinition(
            name=AlertRule.OLDEST_CALL,
            label=AlertRule.OLDEST_CALL.label,
            limit=300.0,
            time_text=_("a call has run for %(value)s (limit: %(limit)s)"),
        ),
        RuleDefinition(
            name=AlertRule.THREAD_QUEUE, label=AlertRule.THREAD_QUEUE.label, limit=0.0, raise_delay_seconds=60.0
        ),
        RuleDefinition(
            name=AlertRule.SILENT_PROCESS,
            label=AlertRule.SILENT_PROCESS.label,
            limit=30.0,
            time_text=_("no report for %(value)s (limit: %(limit)s)"),
        ),
        RuleDefinition(name=AlertRule.DROPPED, label=AlertRule.DROPPED.label, limit=0.0),
    )
    register_rules(measure_remotes, RuleDefinition(name=AlertRule.REMOTE, label=AlertRule.REMOTE.label, limit=0.0))
