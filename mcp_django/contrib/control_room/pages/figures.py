"""Figures of calls, read from the counts of minutes and hours."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.db import models
from django.db.models import Max

from mcp_django.contrib.control_room.models import CallRollup, OutcomeChoices, Period, ServerRollup
from mcp_django.contrib.control_room.pages.time_spans import TimeSpan
from mcp_django.contrib.control_room.recording.entries import FAILED_OUTCOMES
from mcp_django.contrib.control_room.recording.histogram import HistogramSum, estimate_percentile
from mcp_django.contrib.control_room.recording.writer import get_alias

FAILED = frozenset(outcome.value for outcome in FAILED_OUTCOMES)
TOOL_METHOD = "tools/call"
_CHARTED = -1
"""Index of rows whose hours are in the chart already."""
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
_PLACE_FIELDS = ("server", "method", "name")
_VALUE_FIELDS = ("outcome", "count", "milliseconds_sum", "milliseconds_max", "histogram")


@dataclass(slots=True)
class Figures:
    """Counts and durations of some calls."""

    outcomes: Counter[str] = field(default_factory=Counter)
    """Number of calls by outcome."""
    milliseconds_sum: float = 0.0
    milliseconds_max: float = 0.0
    durations: HistogramSum = field(default_factory=HistogramSum)

    def add(self, outcome: str, count: int, total: float, longest: float, packed: bytes | memoryview) -> None:
        """Add a row. `total` and `longest` are milliseconds, and `packed` is its histogram."""
        self.outcomes[outcome] += count
        self.milliseconds_sum += total
        if longest > self.milliseconds_max:
            self.milliseconds_max = longest
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
    """Read the figures of a time span.

    `filters` are lookups of `CallRollup`. Runs at most three statements.
    """
    starts = span.get_starts()
    points = [Figures() for _start in starts]
    if span.period == Period.MINUTE:
        wanted, charted_until = models.Q(period=Period.MINUTE, start__gte=starts[0]), starts[0]
    elif filters.keys() <= {"server"}:
        charted_until = _read_servers(dict(zip(starts, points, strict=True)), filters)
        wanted = _select_targets(starts[0], charted_until)
    else:
        wanted, charted_until = _select_hours(starts[0]), starts[0]

    targets: dict[tuple[str, str, str], Figures] = defaultdict(Figures)
    rows = CallRollup.objects.using(get_alias()).filter(wanted, **filters, start__lt=starts[-1] + span.step)
    numbered = rows.order_by().annotate(point=_number_points(span, starts, charted_until))
    for point, server, method, name, *row in numbered.values_list("point", *_PLACE_FIELDS, *_VALUE_FIELDS).iterator():
        if point != _CHARTED:
            points[point].add(*row)
        targets[server, method, name].add(*row)

    total = Figures()
    for figures in points:
        total.merge(figures)
    return SpanFigures(
        total,
        dict(zip(starts, points, strict=True)),
        {CallTarget(*place): figures for place, figures in targets.items()},
    )


def _number_points(span: TimeSpan, starts: Sequence[datetime], charted_until: datetime) -> models.Case:
    """Return an expression for the index of the point of a row.

    It is `_CHARTED` for a row before `charted_until`. The database compares times, because a datetime for each row
    takes longer than all the rest.
    """
    cases = [models.When(start__lt=charted_until, then=models.Value(_CHARTED))]
    for index, start in enumerate(starts[:-1]):
        if start >= charted_until:
            cases.append(models.When(start__lt=start + span.step, then=models.Value(index)))
    return models.Case(*cases, default=models.Value(len(starts) - 1), output_field=models.IntegerField())


def _read_servers(points: Mapping[datetime, Figures], filters: dict[str, Any]) -> datetime:
    """Add the summed hours of servers to the points of a chart.

    Return the end of the last one, from which on minutes count.
    """
    end = min(points)
    rows = ServerRollup.objects.using(get_alias()).filter(start__in=points, **filters).order_by()
    for start, *row in rows.values_list("start", *_VALUE_FIELDS):
        points[start].add(*row)
        end = max(end, start + HOUR)
    return end


def _select_targets(since: datetime, summed_until: datetime) -> models.Q:
    """Return the condition of the fewest rows.

    These are days, the hours around them, and the minutes after the last sum.
    """
    wanted = models.Q(period=Period.MINUTE, start__gte=summed_until)
    for day in _list_days(since, summed_until):
        wanted |= models.Q(period=Period.DAY, start=day)
        if since < day:
            wanted |= models.Q(period=Period.HOUR, start__gte=since, start__lt=day)
        since = day + DAY
    return wanted | models.Q(period=Period.HOUR, start__gte=since, start__lt=summed_until)


def _list_days(since: datetime, until: datetime) -> list[datetime]:
    """Return the starts of the summed days that lie within a time."""
    first = since.replace(hour=0) if not since.hour else since.replace(hour=0) + DAY
    if first + DAY > until:
        return []
    days = CallRollup.objects.using(get_alias()).filter(period=Period.DAY, start__gte=first, start__lte=until - DAY)
    return list(days.order_by("start").values_list("start", flat=True).distinct())


def _select_hours(since: datetime) -> models.Q:
    """Return the condition of the summed hours, and the minutes after the last one."""
    hours = CallRollup.objects.using(get_alias()).filter(period=Period.HOUR, start__gte=since)
    last_hour = hours.aggregate(last=Max("start"))["last"]
    minutes = models.Q(period=Period.MINUTE, start__gte=since if last_hour is None else last_hour + HOUR)
    return minutes | models.Q(period=Period.HOUR, start__gte=since)
