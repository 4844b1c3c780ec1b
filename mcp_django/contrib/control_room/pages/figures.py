"""Figures of calls, read from the counts of minutes and hours."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.db import models
from django.db.models import Max

from mcp_django.contrib.control_room.models import CallRollup, OutcomeChoices, Period
from mcp_django.contrib.control_room.pages.time_spans import TimeSpan
from mcp_django.contrib.control_room.recording.entries import FAILED_OUTCOMES
from mcp_django.contrib.control_room.recording.histogram import HistogramSum, estimate_percentile
from mcp_django.contrib.control_room.recording.writer import get_alias

FAILED = frozenset(outcome.value for outcome in FAILED_OUTCOMES)
TOOL_METHOD = "tools/call"
_FIELDS = ("start", "server", "method", "name", "outcome", "count", "milliseconds_sum", "milliseconds_max", "histogram")


@dataclass(slots=True)
class Figures:
    """Counts and durations of some calls."""

    outcomes: Counter[str] = field(default_factory=Counter)
    """Number of calls by outcome."""
    milliseconds_sum: float = 0.0
    milliseconds_max: float = 0.0
    durations: HistogramSum = field(default_factory=HistogramSum)

    def add(self, outcome: str, count: int, milliseconds: tuple[float, float], packed: bytes | memoryview) -> None:
        """Add a row. `milliseconds` has the sum and the maximum, and `packed` is its histogram."""
        self.outcomes[outcome] += count
        self.milliseconds_sum += milliseconds[0]
        if milliseconds[1] > self.milliseconds_max:
            self.milliseconds_max = milliseconds[1]
        self.durations.add(packed, count)

    def merge(self, other: "Figures") -> None:
        """Add the calls of other figures."""
        self.outcomes.update(other.outcomes)
        self.milliseconds_sum += other.milliseconds_sum
        self.milliseconds_max = max(self.milliseconds_max, other.milliseconds_max)
        self.durations.merge(other.durations)

    @property
    def histogram(self) -> list[int]:
        """Number of calls in each bucket of durations."""
        return self.durations.counts

    @property
    def count(self) -> int:
        """Number of calls."""
        return self.outcomes.total()

    @property
    def failed(self) -> int:
        """Number of failed calls."""
        return sum(count for outcome, count in self.outcomes.items() if outcome in FAILED)

    @property
    def bugs(self) -> int:
        """Number of calls that ended with an unexpected exception."""
        return self.outcomes[OutcomeChoices.BUG]

    @property
    def failed_percent(self) -> float:
        """Share of failed calls in percent."""
        return 100 * self.failed / self.count if self.count else 0.0

    @property
    def median(self) -> float | None:
        """Milliseconds in which half of the calls ended."""
        return estimate_percentile(self.histogram, 0.5)

    @property
    def percentile_95(self) -> float | None:
        """Milliseconds in which 95 % of the calls ended."""
        return estimate_percentile(self.histogram, 0.95)

    @property
    def percentile_99(self) -> float | None:
        """Milliseconds in which 99 % of the calls ended."""
        return estimate_percentile(self.histogram, 0.99)

    @property
    def outcome_rows(self) -> list[tuple[Any, int]]:
        """Labels and numbers of the outcomes, the most frequent first."""
        labels = dict(OutcomeChoices.choices)
        return [(labels.get(outcome, outcome), count) for outcome, count in self.outcomes.most_common()]


class CallTarget(NamedTuple):
    """Server, method and name that calls have in common."""

    server: str
    method: str
    name: str

    @property
    def query(self) -> str:
        """Query of the address of the target's page."""
        return urlencode(self._asdict())

    @property
    def label(self) -> str:
        """Name of a tool; otherwise method and name."""
        return self.name if self.method == TOOL_METHOD else f"{self.method} {self.name}".strip()


@dataclass(slots=True)
class SpanFigures:
    """Figures of a time span: in all, by point of the charts, and by target."""

    total: Figures
    points: dict[datetime, Figures]
    """Figures by start, with an entry for each point of the span."""
    targets: dict[CallTarget, Figures]

    def list_targets(self, *, tools: bool) -> list[tuple[CallTarget, Figures]]:
        """Return the tools, or all other targets; those with the most calls first."""
        rows = [row for row in self.targets.items() if (row[0].method == TOOL_METHOD) is tools]
        return sorted(rows, key=lambda row: (-row[1].count, row[0]))


def load_figures(span: TimeSpan, **filters: Any) -> SpanFigures:
    """Read the figures of a time span; `filters` are lookups of `CallRollup`. Runs at most two statements."""
    starts = span.get_starts()
    figures = SpanFigures(Figures(), {start: Figures() for start in starts}, {})
    points: dict[datetime, Figures | None] = {}
    targets: dict[tuple[str, str, str], Figures] = {}
    for start, server, method, name, outcome, count, total, longest, packed in _iter_rows(span, starts[0], filters):
        if start not in points:
            first = start - timedelta(seconds=int(start.timestamp()) % span.period)
            points[start] = figures.points.get(first)
        point = points[start]
        if point is None:
            continue  # written by a process whose clock is ahead
        row = (outcome, count, (total, longest), packed)
        point.add(*row)
        place = (server, method, name)
        target = targets.get(place)
        if target is None:
            target = targets[place] = Figures()
        target.add(*row)

    for point in figures.points.values():
        figures.total.merge(point)
    figures.targets = {CallTarget(*place): target for place, target in targets.items()}
    return figures


def _iter_rows(span: TimeSpan, since: datetime, filters: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a span.

    Hours that have not been summed yet come from their minutes.
    """
    rows = CallRollup.objects.using(get_alias()).filter(**filters)
    wanted = models.Q(period=Period.MINUTE, start__gte=since)
    if span.period != Period.MINUTE:
        hours = CallRollup.objects.using(get_alias()).filter(period=Period.HOUR, start__gte=since)
        last_hour = hours.aggregate(last=Max("start"))["last"]
        if last_hour is not None:
            summed = models.Q(period=Period.HOUR, start__gte=since)
            wanted = summed | models.Q(period=Period.MINUTE, start__gte=last_hour + timedelta(hours=1))
    return rows.filter(wanted).order_by().values_list(*_FIELDS).iterator()
