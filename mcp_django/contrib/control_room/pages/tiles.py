"""Tiles of the pages: a large value with its label and details, and a link to its list."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.formats import date_format
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mcp_django.contrib.control_room.models import OutcomeChoices
from mcp_django.contrib.control_room.pages.callers import CallerList, StreamCounts
from mcp_django.contrib.control_room.pages.figures import FAILED, Figures
from mcp_django.contrib.control_room.pages.links import RoomLinks
from mcp_django.contrib.control_room.pages.running_calls import RunningCalls
from mcp_django.contrib.control_room.templatetags.room_figures import duration, figure, percent
from mcp_django.models import Session

MAX_MINUTES_WITHOUT_DAY = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """Value of a page."""

    name: str
    value: str
    label: Any
    details: Sequence[str] = ()
    url: str = ""
    """Link to the list behind the value; empty without one."""
    is_bad: bool = False


def build_figure_tiles(total: Figures, since: datetime, minutes: float, calls: Mapping[str, str]) -> Iterator[Tile]:
    """Yield the tiles of all calls in some minutes. `calls` has the URLs of lists of calls, by tile."""
    count = ngettext("%s call", "%s calls", total.count) % figure(total.count)
    yield Tile(
        name="calls",
        value=_format_rate(total.count / minutes),
        label=_("calls a minute"),
        details=[_("%(calls)s since %(time)s") % {"calls": count, "time": _format_since(since, minutes)}],
        url=calls.get("calls", ""),
    )
    yield Tile(
        name="failed",
        value=percent(total.failed_percent),
        label=_("failed"),
        details=list(_describe_failures(total)),
        url=calls.get("failed", "") if total.failed else "",
        is_bad=total.bugs > 0,
    )
    yield Tile(
        name="durations",
        value=duration(total.median),
        label=_("half are faster"),
        details=[
            _("95 %%: %(time)s") % {"time": duration(total.percentile_95)},
            _("99 %%: %(time)s") % {"time": duration(total.percentile_99)},
        ],
        url=calls.get("durations", ""),
    )


def build_call_urls(links: RoomLinks, total: Figures, since: datetime, **filters: str) -> dict[str, str]:
    """Return the URLs of the lists of recorded calls behind the tiles."""
    lookups = {**filters, "at__gte": since.isoformat()}
    slow = total.percentile_95 or 0
    return {
        "calls": links.find_calls(**lookups),
        "failed": links.find_calls(**lookups, outcome__in=",".join(sorted(FAILED))),
        "durations": links.find_calls(**lookups, milliseconds__gte=f"{slow:.0f}"),
    }


def build_caller_tile(callers: CallerList) -> Tile:
    """Return the tile of the callers: their number, with and without a session."""
    return Tile(
        name="callers",
        value=figure(callers.total),
        label=ngettext("caller", "callers", callers.total),
        details=[
            _("%(number)s with a session") % {"number": figure(callers.with_session)},
            _("%(number)s without") % {"number": figure(callers.total - callers.with_session)},
        ],
        url="#callers" if callers.rows else "",
    )


def build_stream_tile(streams: StreamCounts, without_session: int, links: RoomLinks) -> Tile:
    """Return the tile of the open streams, with and without a session."""
    subscriptions = ngettext("%s subscription of a session", "%s subscriptions of sessions", streams.subscriptions)
    sessions = links.find(Session)
    if without_session:
        url = "#streams"
    else:
        url = f"{sessions}?activity=open" if sessions else ""
    total = streams.streams + without_session
    return Tile(
        name="streams",
        value=figure(total),
        label=ngettext("open stream", "open streams", total),
        details=[
            _("%(number)s with a session") % {"number": figure(streams.streams)},
            _("%(number)s without") % {"number": figure(without_session)},
            subscriptions % figure(streams.subscriptions),
        ],
        url=url,
    )


def build_running_tiles(running: RunningCalls) -> Iterator[Tile]:
    """Yield the tiles of the running calls and the processes."""
    oldest = [_("oldest: %s") % duration(running.calls[0].milliseconds)] if running.calls else []
    yield Tile(
        name="running",
        value=figure(running.running),
        label=ngettext("running call", "running calls", running.running),
        details=oldest or [_("none older than a second") if running.server else _("all younger than a second")],
        url="#running-title",
    )
    silent = len(running.silent)
    busy = sum(process.busy_threads for process in running.processes)
    threads = sum(process.max_threads for process in running.processes)
    usage = {"busy": figure(busy), "all": figure(threads)}
    details = [_("%(busy)s of %(all)s threads busy") % usage] if running.processes else []
    if silent:
        details.append(ngettext("%s is silent", "%s are silent", silent) % figure(silent))
    if running.queued:
        waiting = ngettext("%s call waits for a thread", "%s calls wait for a thread", running.queued)
        details.append(waiting % figure(running.queued))
    yield Tile(
        name="processes",
        value=figure(len(running.processes)),
        label=ngettext("process", "processes", len(running.processes)),
        details=details,
        url="#processes" if running.processes or silent else "",
        is_bad=silent > 0 or running.queued > 0,
    )


def _describe_failures(total: Figures) -> Iterator[str]:
    """Yield the number of failed calls, and the kinds for which the server is responsible."""
    yield ngettext("%s call", "%s calls", total.failed) % figure(total.failed)
    bugs, timeouts = total.bugs, total.outcomes[OutcomeChoices.TIMEOUT]
    refused = total.outcomes[OutcomeChoices.OVERLOADED]
    if bugs:
        yield ngettext("%s bug", "%s bugs", bugs) % figure(bugs)
    if timeouts:
        yield ngettext("%s timeout", "%s timeouts", timeouts) % figure(timeouts)
    if refused:
        yield ngettext("%s refused by a limit", "%s refused by a limit", refused) % figure(refused)


def _format_since(since: datetime, minutes: float) -> str:
    """Return the start of a time span, with its day if it may be another one."""
    return date_format(localtime(since), "H:i" if minutes <= MAX_MINUTES_WITHOUT_DAY else "D H:i")


def _format_rate(rate: float) -> str:
    """Return a number with more decimals the smaller it is."""
    if 0 < rate < 10:
        return figure(rate, 2 if rate < 1 else 1)
    return figure(rate, 0)
