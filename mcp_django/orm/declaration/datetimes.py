"""Dates, times and durations of clients: ISO 8601, in the current time zone."""

import datetime as dt
from collections.abc import Callable
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime, parse_duration

MAX_DURATION = dt.timedelta(days=100_000 * 366)
"""Maximum duration.

Databases without an interval type store microseconds in 64 bits.
"""


def format_datetime(value: dt.datetime) -> str:
    """Format a point in time in the current time zone."""
    return create_datetime_formatter()(value)


def create_datetime_formatter() -> Callable[[dt.datetime], str]:
    """Return a function that formats many points in time with one time zone lookup."""
    zone = timezone.get_current_timezone()

    def shown(value: dt.datetime) -> str:
        known = value.tzinfo
        return (value if known is None or known is zone else value.astimezone(zone)).isoformat()

    return shown


def parse_datetime_value(value: Any) -> dt.datetime:
    """Parse a point in time; without a time zone the current one applies.

    Raises:
        ValueError: the value is malformed or out of range.
    """
    expected = "give a date and time in ISO 8601, YYYY-MM-DDTHH:MM:SSZ"
    moment = _parse_value(lambda text: parse_datetime(text) or parse_date(text), value, expected)
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


def parse_date_value(value: Any) -> dt.date:
    """Parse a date.

    Raises:
        ValueError: the value is malformed.
    """
    date: dt.date = _parse_value(parse_date, value, "give a date in ISO 8601, YYYY-MM-DD")
    return date


def parse_time_value(value: Any) -> dt.time:
    """Parse a time of day.

    Raises:
        ValueError: the value is malformed or has a time zone.
    """
    expected = "give a time of day such as '14:30', without a time zone"
    time: dt.time = _parse_value(dt.time.fromisoformat, value, expected)
    if time.tzinfo is not None:
        raise ValueError(expected)
    return time


def parse_duration_value(value: Any) -> dt.timedelta:
    """Parse a duration.

    Raises:
        ValueError: the value is malformed or too long.
    """
    duration: dt.timedelta = _parse_value(parse_duration, value, "give a duration such as 'P1DT2H' or '02:30:00'")
    if abs(duration) > MAX_DURATION:
        raise ValueError("out of range")
    return duration


def _parse_value(parse: Callable[[str], Any], value: Any, expected: str) -> Any:
    if type(value) is not str or len(value) > 100:
        raise ValueError(expected)
    try:
        parsed = parse(value)
    except (ValueError, OverflowError):  # well formed, but nonexistent, such as February 30
        parsed = None
    if parsed is None:
        raise ValueError(expected)
    return parsed
