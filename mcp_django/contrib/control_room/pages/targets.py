"""Figures of one tool, prompt or resource: charts, outcomes, durations, callers and recent calls."""

from dataclasses import dataclass
from typing import Any

from django.http import Http404, QueryDict
from django.utils.translation import gettext as _

from mcp_django.contrib.control_room.models import CallLogEntry
from mcp_django.contrib.control_room.pages.callers import CallerList, load_callers, load_user_names
from mcp_django.contrib.control_room.pages.figures import CallTarget, Figures, SpanFigures, load_figures
from mcp_django.contrib.control_room.pages.time_spans import TimeSpan
from mcp_django.contrib.control_room.recording.histogram import BOUNDS_MILLISECONDS
from mcp_django.contrib.control_room.recording.writer import get_alias
from mcp_django.contrib.control_room.templatetags.room_figures import duration

MAX_RECENT_ROWS = 20


@dataclass(frozen=True, slots=True)
class HistogramBar:
    """Calls whose durations lie between two bounds."""

    label: str
    count: int


@dataclass(frozen=True, slots=True)
class TargetFigures:
    """Figures of one target in a time span."""

    target: CallTarget
    figures: SpanFigures
    callers: CallerList
    recent: list[tuple[CallLogEntry, str]]
    """Recorded calls with the names of their users, the latest first."""

    @property
    def bars(self) -> list[HistogramBar]:
        """Bars of the histogram, from the shortest to the longest duration."""
        counts = self.figures.total.histogram
        used = [index for index, count in enumerate(counts) if count]
        return [_build_bar(self.figures.total, index) for index in range(used[0], used[-1] + 1)] if used else []

    @property
    def largest_bar(self) -> int:
        """Number of calls in the largest bar."""
        return max(self.figures.total.histogram)


def parse_target(query: QueryDict) -> CallTarget:
    """Return the target that the address of a page names. Raises Http404 without one."""
    server, method, name = (str(query.get(key, "")) for key in CallTarget._fields)
    if not method:
        raise Http404
    return CallTarget(server, method, name)


def load_target(target: CallTarget, span: TimeSpan, *, with_calls: bool) -> TargetFigures:
    """Read the figures of a target. `with_calls` includes the recorded calls."""
    filters = target._asdict()
    figures = load_figures(span, **filters)
    entries = _load_recent(filters) if with_calls else []
    names = load_user_names(entry.user_key for entry in entries)
    recent = [(entry, names.get(entry.user_key) or entry.user_key or entry.principal) for entry in entries]
    return TargetFigures(target, figures, load_callers(min(figures.points), **filters), recent)


def _load_recent(filters: dict[str, Any]) -> list[CallLogEntry]:
    rows = CallLogEntry.objects.using(get_alias()).filter(**filters)
    return list(rows.order_by("-at")[:MAX_RECENT_ROWS])


def _build_bar(total: Figures, index: int) -> HistogramBar:
    if index == len(BOUNDS_MILLISECONDS):
        label = _("more than %s") % duration(BOUNDS_MILLISECONDS[-1])
    else:
        label = _("up to %s") % duration(BOUNDS_MILLISECONDS[index])
    return HistogramBar(label, total.histogram[index])
