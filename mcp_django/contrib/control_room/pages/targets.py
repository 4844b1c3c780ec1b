"""Figures of one tool, prompt or resource: charts, outcomes, durations, callers and recent calls."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import Http404, QueryDict
from django.utils.translation import gettext as _

from mcp_django.contrib.control_room.added_links import LinkSubject
from mcp_django.contrib.control_room.models import CallLogEntry
from mcp_django.contrib.control_room.pages.callers import CallerList, load_callers, load_user_names
from mcp_django.contrib.control_room.pages.figures import (
    FAILED,
    TOOL_METHOD,
    CallTarget,
    Figures,
    SpanFigures,
    load_figures,
)
from mcp_django.contrib.control_room.pages.links import RoomLinks
from mcp_django.contrib.control_room.pages.tiles import build_call_urls, build_figure_tiles
from mcp_django.contrib.control_room.pages.time_spans import TimeSpan
from mcp_django.contrib.control_room.recording.histogram import BOUNDS_MILLISECONDS
from mcp_django.contrib.control_room.recording.writer import get_alias
from mcp_django.contrib.control_room.templatetags.room_figures import duration
from mcp_django.models import ToolPolicy

MAX_SHOWN_CALLS = 10


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
    failed: list[tuple[CallLogEntry, str]]
    """Recorded calls that failed, with the names of their users, the latest first."""
    slowest: list[tuple[CallLogEntry, str]]
    """Recorded calls, the longest first."""

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
    since = min(figures.points)
    failed, slowest = _load_calls(since, filters) if with_calls else ([], [])
    names = load_user_names(entry.user_key for entry in (*failed, *slowest))

    def name_users(entries: list[CallLogEntry]) -> list[tuple[CallLogEntry, str]]:
        return [(entry, names.get(entry.user_key) or entry.user_key or entry.principal) for entry in entries]

    return TargetFigures(
        target, figures, load_callers(since, **filters), failed=name_users(failed), slowest=name_users(slowest)
    )


def build_target_links(target: CallTarget, figures: SpanFigures, span: TimeSpan, links: RoomLinks) -> dict[str, Any]:
    """Return the tiles and the policies of a target, and its links to other pages."""
    since = min(figures.points)
    filters = {name: value for name, value in target._asdict().items() if value}
    urls = build_call_urls(links, figures.total, since, **filters)
    policies = links.find_admin(ToolPolicy) if target.method == TOOL_METHOD else None
    return {
        "tiles": list(build_figure_tiles(figures.total, since, span.count_minutes(), urls)),
        "policies": [] if policies is None else list(_list_policies(target, policies)),
        "policies_url": links.find(ToolPolicy) if policies is not None else "",
        "added_links": links.build_added(LinkSubject(target.server, target.method, target.name)),
        "own_calls_url": links.find_calls(**filters),
    }


def _list_policies(target: CallTarget, policies: Any) -> Iterator[tuple[str, str, str]]:
    """Yield pattern, effect and URL of each policy that applies. `policies` is their admin."""
    for row in policies.find_policies(target.server, target.name):
        yield row.tool, policies.effect(row), policies.get_url("change", row.pk)


def _load_calls(since: datetime, filters: dict[str, Any]) -> tuple[list[CallLogEntry], list[CallLogEntry]]:
    """Return the latest failed calls and the longest calls. Runs two statements."""
    rows = CallLogEntry.objects.using(get_alias()).filter(at__gte=since, **filters)
    failed = rows.filter(outcome__in=FAILED).order_by("-at")[:MAX_SHOWN_CALLS]
    return list(failed), list(rows.order_by("-milliseconds")[:MAX_SHOWN_CALLS])


def _build_bar(total: Figures, index: int) -> HistogramBar:
    if index == len(BOUNDS_MILLISECONDS):
        label = _("more than %s") % duration(BOUNDS_MILLISECONDS[-1])
    else:
        label = _("up to %s") % duration(BOUNDS_MILLISECONDS[index])
    return HistogramBar(label, total.histogram[index])
