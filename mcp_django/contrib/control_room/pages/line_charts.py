"""Line charts as SVG, drawn on the server, so that pages need no script and no inline style."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

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
class PointTitle:
    """Column of the chart that shows the values of a point while the pointer is over it."""

    x: str
    text: str


@dataclass(frozen=True, slots=True)
class LineChart:
    """Chart with the values of several series at the same times."""

    title: Any
    labels: Sequence[str]
    """Times of the points."""
    series: Sequence[Series]
    decimals: int = 0

    width = 560
    height = 190
    left = 56
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
        values = _find_round_values(self._maximum)
        return [
            GridLine(f"{self._get_y(value):.1f}", f"{self._get_y(value) + 4:.1f}", self._format(value))
            for value in values
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

    @property
    def _maximum(self) -> float:
        return max((value for series in self.series for value in series.values if value is not None), default=0.0)

    @property
    def _step(self) -> float:
        return (self.right - self.left) / max(len(self.labels), 1)

    def _get_x(self, index: int) -> float:
        return self.left + self._step * (index + 0.5)

    def _get_y(self, value: float) -> float:
        top = _find_round_values(self._maximum)[-1]
        return self.bottom - self.inner_height * value / top

    def _build_path(self, values: Sequence[float | None]) -> str:
        parts, draws = [], False
        for index, value in enumerate(values):
            if value is None:
                draws = False
                continue
            point = f"{self._get_x(index):.1f} {self._get_y(value):.1f}"
            is_single = not draws and (index + 1 == len(values) or values[index + 1] is None)
            parts.append(f"{'L' if draws else 'M'}{point}" + ("h.1" if is_single else ""))
            draws = True
        return "".join(parts)

    def _describe_point(self, index: int) -> str:
        values = [f"{series.label}: {self._format(series.values[index])}" for series in self.series]
        return "\n".join([self.labels[index], *values])

    def _format(self, value: float | None) -> str:
        return "-" if value is None else figure(value, self.decimals)


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
