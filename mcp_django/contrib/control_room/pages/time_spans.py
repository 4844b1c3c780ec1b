"""Time spans of the pages: from 15 minutes to a week, and the rows that each of them reads."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext_lazy as _

from mcp_django.contrib.control_room.models import Period

DEFAULT_SPAN = "hour"


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Span of time that ends now."""

    name: str
    """Value in URLs."""
    label: Any
    period: Period
    """Period of one point of a chart."""
    point_count: int
    poll_seconds: int
    """Seconds between two updates of an open page."""
    label_format: str
    """Format of the time of a point, as of Django's template filter `date`."""

    @property
    def step(self) -> timedelta:
        """Length of one point."""
        return timedelta(seconds=self.period)

    def get_starts(self, now: datetime | None = None) -> list[datetime]:
        """Return the starts of all points in UTC. The last one is the current period."""
        seconds = int((now or timezone.now()).timestamp())
        last = datetime.fromtimestamp(seconds - seconds % self.period, UTC)
        return [last - self.step * past for past in range(self.point_count - 1, -1, -1)]

    def count_minutes(self, now: datetime | None = None) -> float:
        """Return the minutes from the first point until now."""
        now = now or timezone.now()
        return max((now - self.get_starts(now)[0]).total_seconds() / 60, 1.0)

    def format_start(self, start: datetime) -> str:
        """Return the time of a point in the current time zone."""
        return date_format(timezone.localtime(start), self.label_format)


SPANS = {
    span.name: span
    for span in (
        TimeSpan("quarter", _("15 min"), Period.MINUTE, 15, 5, "H:i"),
        TimeSpan("hour", _("Hour"), Period.MINUTE, 60, 5, "H:i"),
        TimeSpan("day", _("Day"), Period.HOUR, 24, 15, "H:i"),
        TimeSpan("week", _("Week"), Period.HOUR, 168, 60, "D H:i"),
    )
}
"""Time spans by their names."""


def get_span(name: str | None) -> TimeSpan:
    """Return a time span by its name; the default one for an unknown name."""
    return SPANS.get(name or DEFAULT_SPAN, SPANS[DEFAULT_SPAN])
