"""Line charts as SVG, drawn on the server, so that pages need no script and no inline style.

`build_charts` returns those of a time span.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor, log10
from typing import Any

from django.utils.translation import gettext as _

from mcp_django.contrib.control_room.models import Period
from mcp_django.contrib.control_room.pages.figures import SpanFigures
from mcp_django.contrib.control_room.pages.time_spans import TimeSpan
from mcp_django.contrib.control_room.templatetags.room_figures import figure

MAX_TIME_LABELS = 6
MAX_GRID_LINES = 5


@dataclass(frozen=True, slots=True)
class Series:
    """Line of a chart, with one value for each point; None leaves a gap."""

    name: str
    """Name of the style: `first`, `second` or `third`."""
    label: Any
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class GridLine:
    """Horizontal line with its value."""

    y: str
    text_y: str
    label: str


@dataclass(frozen=True, slots=True)
class TimeLabel:
    """Text below the chart."""

    x: str
    label: str


@dataclass(frozen=True, slots=True)
class ChartDot:
    """Value without a neighbour, which a line cannot show."""

    series: Series
    x: str
    y: str


@dataclass(frozen=True, slots=True)
class PointTitle:
    """Column of the chart that shows the values of a point while the pointer is over it."""

    x: str
    text: str


@dataclass(frozen=True)
class LineChart:
    """Chart with the values of several series at the same times.

    The class has no slots, because it caches its scale.
    """

    title: Any
    labels: Sequence[str]
    """Times of the points."""
    series: Sequence[Series]
    decimals: int = 0

    width = 560
    height = 190
    left = 66
    right = 552
    top = 10
    bottom = 166

    @property
    def inner_height(self) -> int:
        """Height between the first and the last grid line."""
        return self.bottom - self.top

    @property
    def column_width(self) -> str:
        """Distance of two points."""
        return f"{self._step:.2f}"

    @property
    def grid(self) -> list[GridLine]:
        """Horizontal lines at round values."""
        return [
            GridLine(f"{self._get_y(value):.1f}", f"{self._get_y(value) + 4:.1f}", self._format(value))
            for value in self._scale
        ]

    @property
    def times(self) -> list[TimeLabel]:
        """Labels of some points."""
        every = max(ceil(len(self.labels) / MAX_TIME_LABELS), 1)
        return [
            TimeLabel(f"{self._get_x(index):.1f}", self.labels[index]) for index in range(0, len(self.labels), every)
        ]

    @property
    def paths(self) -> list[tuple[Series, str]]:
        """Each series with its path."""
        return [(series, self._build_path(series.values)) for series in self.series]

    @property
    def dots(self) -> list[ChartDot]:
        """Values between two gaps."""
        return [
            ChartDot(series, f"{self._get_x(index):.1f}", f"{self._get_y(value):.1f}")
            for series in self.series
            for index, value in enumerate(series.values)
            if value is not None and _is_isolated(series.values, index)
        ]

    @property
    def points(self) -> list[PointTitle]:
        """Columns with the values of the points."""
        return [
            PointTitle(f"{self._get_x(index) - self._step / 2:.2f}", self._describe_point(index))
            for index in range(len(self.labels))
        ]

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        """Times and values of the table, without points that have no value; the latest first."""
        rows = [
            (label, [self._format(series.values[index]) for series in self.series])
            for index, label in enumerate(self.labels)
            if any(series.values[index] for series in self.series)
        ]
        return rows[::-1]

    @cached_property
    def _scale(self) -> list[float]:
        values = [value for series in self.series for value in series.values if value is not None]
        return _find_round_values(max(values, default=0.0))

    @property
    def _step(self) -> float:
        return (self.right - self.left) / max(len(self.labels), 1)

    def _get_x(self, index: int) -> float:
        return self.left + self._step * (index + 0.5)

    def _get_y(self, value: float) -> float:
        return self.bottom - self.inner_height * value / self._scale[-1]

    def _build_path(self, values: Sequence[float | None]) -> str:
        parts, draws = [], False
        for index, value in enumerate(values):
            if value is None:
                draws = False
                continue
            parts.append(f"{'L' if draws else 'M'}{self._get_x(index):.1f} {self._get_y(value):.1f}")
            draws = True
        return "".join(parts)

    def _describe_point(self, index: int) -> str:
        values = [f"{series.label}: {self._format(series.values[index])}" for series in self.series]
        return "\n".join([self.labels[index], *values])

    def _format(self, value: float | None) -> str:
        return "-" if value is None else figure(value, self.decimals)


def build_charts(figures: SpanFigures, span: TimeSpan) -> list[LineChart]:
    """Return the charts of a time span: calls by outcome, and durations."""
    labels = [span.format_start(start) for start in figures.points]
    points = list(figures.points.values())
    return [
        LineChart(
            _("Calls a minute, by outcome") if span.period == Period.MINUTE else _("Calls an hour, by outcome"),
            labels,
            [
                Series("first", _("Successful"), [point.count - point.failed for point in points]),
                Series("second", _("Failed"), [point.failed - point.bugs for point in points]),
                Series("third", _("Bugs"), [point.bugs for point in points]),
            ],
        ),
        LineChart(
            _("Durations in milliseconds"),
            labels,
            [
                Series("first", _("Half of the calls"), [point.median for point in points]),
                Series("second", _("95 %"), [point.percentile_95 for point in points]),
                Series("third", _("99 %"), [point.percentile_99 for point in points]),
            ],
        ),
    ]


def _is_isolated(values: Sequence[float | None], index: int) -> bool:
    """Return True if a value has a gap or an end on both sides."""
    has_left = index > 0 and values[index - 1] is not None
    has_right = index + 1 < len(values) and values[index + 1] is not None
    return not has_left and not has_right


def _find_round_values(maximum: float) -> list[float]:
    """Return 0 and a few round values, of which the last is not below `maximum`."""
    if maximum <= 0:
        return [0.0, 1.0]
    step = 10.0 ** floor(log10(maximum))
    for factor in (0.2, 0.5, 1.0, 2.0, 5.0):
        if maximum / (step * factor) <= MAX_GRID_LINES - 1:
            step *= factor
            break
    step = max(step, 1.0)
    return [step * number for number in range(ceil(maximum / step) + 1)]
