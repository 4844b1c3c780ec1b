"""Dates, times and durations of clients: ISO 8601, in the current time zone."""

import datetime as dt
from collections.abc import Callable
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime, parse_duration

LONGEST = dt.timedelta(days=100_000 * 366)
"""Maximum duration.

Databases without an interval type store microseconds in 64 bits.
"""


def shown_moment(value: dt.datetime) -> str:
    """Format a point in time in the current time zone."""
    return shown_moments()(value)


def shown_moments() -> Callable[[dt.datetime], str]:
    """Return a function that formats many points in time with one time zone lookup."""
    zone = timezone.get_current_timezone()

    def shown(value: dt.datetime) -> str:
        known = value.tzinfo
        return (value if known is None or known is zone else value.astimezone(zone)).isoformat()

    return shown


def as_moment(value: Any) -> dt.datetime:
    """Parse a point in time; without a time zone the current one applies.

    Raises:
        ValueError: the value is malformed or out of range.
    """
    wanted = "give a date and time in ISO 8601, YYYY-MM-DDTHH:MM:SSZ"
    moment = _parsed(lambda text: parse_datetime(text) or parse_date(text), value, wanted)
    if not isinstance(moment, dt.datetime):
        moment = dt.datetime.combine(moment, dt.time())
    try:
        if timezone.is_aware(timezone.now()):
            aware = timezone.make_aware(moment) if moment.tzinfo is None else moment
            return aware.astimezone(dt.UTC)
        # Without USE_TZ all datetimes are naive, in the project's time zone.
        return moment if moment.tzinfo is None else timezone.make_naive(moment, timezone.get_default_timezone())
    except OverflowError:
        raise ValueError("out of range") from None


def as_date(value: Any) -> dt.date:
    """Parse a date.

    Raises:
        ValueError: the value is malformed.
    """
    found: dt.date = _parsed(parse_date, value, "give a date in ISO 8601, YYYY-MM-DD")
    return found


def as_time(value: Any) -> dt.time:
    """Parse a time of day.

    Raises:
        ValueError: the value is malformed or has a time zone.
    """
    wanted = "give a time of day such as '14:30', without a time zone"
    found: dt.time = _parsed(dt.time.fromisoformat, value, wanted)
    if found.tzinfo is not None:
        raise ValueError(wanted)
    return found


def as_duration(value: Any) -> dt.timedelta:
    """Parse a duration.

    Raises:
        ValueError: the value is malformed or too long.
    """
    found: dt.timedelta = _parsed(parse_duration, value, "give a duration such as 'P1DT2H' or '02:30:00'")
    if abs(found) > LONGEST:
        raise ValueError("out of range")
    return found


def _parsed(parse: Callable[[str], Any], value: Any, wanted: str) -> Any:
    if type(value) is not str or len(value) > 100:
        raise ValueError(wanted)
    try:
        found = parse(value)
    except (ValueError, OverflowError):  # well formed, but nonexistent, such as February 30
        found = None
    if found is None:
        raise ValueError(wanted)
    return found
