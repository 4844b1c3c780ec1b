"""Metrics of all processes, read from the counts of calls and the reports of processes.

Every process answers with the same numbers, so a scraper may reach any of them. Counters start at midnight UTC, because
the rows of minutes are deleted after some time. Scrapers know resets of counters.
"""

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from django.db.models import Max, Q
from django.utils import timezone

from mcp_django.contrib.control_room.models import Alert, CallRollup, LongCall, Period, ServingProcess
from mcp_django.contrib.control_room.openmetrics import MetricFamily
from mcp_django.contrib.control_room.recording.histogram import BOUNDS_MILLISECONDS, BUCKET_COUNT, HistogramSum
from mcp_django.contrib.control_room.recording.writer import get_alias

MERGED_BUCKET_COUNT = 2
"""Number of buckets of the rows in one bucket of the metric, whose bounds are powers of two."""
INFINITY = float("inf")
TargetKey = tuple[str, str, str]
"""Server, method and name."""


def read_families(now: datetime | None = None) -> list[MetricFamily]:
    """Return the metrics at a time. Runs five statements."""
    now = now or timezone.now()
    return [*_read_calls(now), *_read_processes(now), _read_alerts()]


def _read_calls(now: datetime) -> list[MetricFamily]:
    calls = MetricFamily("mcp_calls", "counter", "Finished calls since midnight UTC.")
    durations = MetricFamily(
        "mcp_call_duration_seconds", "histogram", "Durations of finished calls since midnight UTC.", "seconds"
    )
    start = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    created = start.timestamp()
    counts: dict[tuple[str, str, str, str], int] = defaultdict(int)
    sums: dict[TargetKey, float] = defaultdict(float)
    histograms: dict[TargetKey, HistogramSum] = defaultdict(HistogramSum)
    for row in _iter_rows(start, now):
        target = (row.server, row.method, row.name)
        counts[*target, row.outcome] += row.count
        sums[target] += row.milliseconds_sum
        histograms[target].add(row.histogram, row.count)

    for (server, method, name, outcome), count in sorted(counts.items()):
        calls.add({"server": server, "method": method, "name": name, "outcome": outcome}, count, created)
    for target, histogram in sorted(histograms.items()):
        labels = dict(zip(("server", "method", "name"), target, strict=True))
        durations.add_histogram(labels, _build_buckets(histogram.counts), sums[target] / 1000, created)
    return [calls, durations]


def _iter_rows(start: datetime, now: datetime) -> Iterator[CallRollup]:
    """Yield the rows since `start`. Hours that have not been summed yet come from their minutes."""
    rows = CallRollup.objects.using(get_alias()).filter(start__gte=start, start__lte=now)
    hours = rows.filter(period=Period.HOUR)
    last_hour = hours.aggregate(last=Max("start"))["last"]
    since = start if last_hour is None else last_hour + timedelta(hours=1)
    wanted = Q(period=Period.MINUTE, start__gte=since) | Q(period=Period.HOUR)
    return rows.filter(wanted).order_by().iterator()


def _build_buckets(histogram: list[int]) -> list[tuple[float, int]]:
    """Return cumulative counts by upper bound in seconds."""
    buckets, reached = [], 0
    for index, count in enumerate(histogram):
        reached += count
        if index < BUCKET_COUNT - 1 and index % MERGED_BUCKET_COUNT == 0:
            buckets.append((BOUNDS_MILLISECONDS[index] / 1000, reached))
    return [*buckets, (INFINITY, reached)]


def _read_processes(now: datetime) -> list[MetricFamily]:
    running = MetricFamily("mcp_running_calls", "gauge", "Running calls of a process.")
    busy = MetricFamily("mcp_busy_threads", "gauge", "Busy threads of a process.")
    threads = MetricFamily("mcp_max_threads", "gauge", "Maximum threads of a process.")
    queued = MetricFamily("mcp_queued_calls", "gauge", "Calls of a process that wait for a thread.")
    dropped = MetricFamily("mcp_dropped_records", "counter", "Records of calls that a process has dropped.")
    reported = MetricFamily(
        "mcp_process_last_report_timestamp_seconds", "gauge", "Time of the last report of a process.", "seconds"
    )
    alias = get_alias()
    for process in ServingProcess.objects.using(alias).order_by("name"):
        labels = {"process": process.name}
        running.add(labels, process.running)
        busy.add(labels, process.busy_threads)
        threads.add(labels, process.max_threads)
        queued.add(labels, process.queued)
        dropped.add(labels, process.dropped, process.started.timestamp())
        reported.add(labels, process.updated.timestamp())
    oldest = MetricFamily(
        "mcp_oldest_call_seconds", "gauge", "Age of the oldest running call; 0 without one.", "seconds"
    )
    started = LongCall.objects.using(alias).order_by("started").values_list("started", flat=True).first()
    oldest.add({}, 0.0 if started is None else max(0.0, (now - started).total_seconds()))
    return [running, busy, threads, queued, dropped, reported, oldest]


def _read_alerts() -> MetricFamily:
    family = MetricFamily("mcp_alert_active", "gauge", "1 for each active alert.")
    for alert in Alert._default_manager.using(get_alias()).filter(is_active=True).order_by("rule", "subject"):
        family.add({"rule": alert.rule, "subject": alert.subject}, 1)
    return family
