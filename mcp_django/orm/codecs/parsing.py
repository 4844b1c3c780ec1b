"""Values to compare with, parsed from JSON.

Dates, times and durations are ISO 8601, in the current time zone.
"""

import datetime as dt
import ipaddress
import math
import re
import uuid
from collections.abc import Callable
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime, parse_duration

MAX_DURATION = dt.timedelta(days=100_000 * 366)
"""Maximum duration.

Databases without an interval type store microseconds in 64 bits.
"""
MAX_TEXT_CHARACTERS = 1000
"""Maximum length in characters of a text to compare with."""
MAX_SAFE_INTEGER = (1 << 53) - 1
"""Largest integer that every JSON client reads exactly (RFC 7493, section 2.2)."""
_INTEGER_BOUND = 1 << 63
_INTEGER_TEXT = re.compile(r"-?[0-9]{1,19}")


def parse_text_value(value: object) -> str:
    """Return a text to compare with.

    Raises:
        ValueError: the value is not text, too long, or contains NUL.
    """
    if type(value) is not str:
        raise ValueError("give a text")
    if len(value) > MAX_TEXT_CHARACTERS:
        raise ValueError(f"longer than {MAX_TEXT_CHARACTERS} characters")
    if "\0" in value:
        raise ValueError("a text cannot contain a NUL character")
    return value


def parse_integer_value(value: object) -> int:
    """Return an integer of 64 bits.

    Raises:
        ValueError: the value is not an integer, or out of range.
    """
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int:
        raise ValueError("give an integer")
    if not -_INTEGER_BOUND <= value < _INTEGER_BOUND:
        raise ValueError("out of range of 64 bits")
    return value


def parse_big_integer_value(value: object) -> int:
    """Return an integer of 64 bits, given as such or as its decimal text.

    Raises:
        ValueError: the value is neither, or out of range.
    """
    if type(value) is str and _INTEGER_TEXT.fullmatch(value):
        value = int(value)
    return parse_integer_value(value)


def parse_boolean_value(value: object) -> bool:
    """Return a boolean.

    Raises:
        ValueError: the value is not a boolean.
    """
    if type(value) is not bool:
        raise ValueError("give true or false")
    return value


def parse_datetime_value(value: object) -> dt.datetime:
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


def parse_date_value(value: object) -> dt.date:
    """Parse a date.

    Raises:
        ValueError: the value is malformed.
    """
    date: dt.date = _parse_value(parse_date, value, "give a date in ISO 8601, YYYY-MM-DD")
    return date


def parse_time_value(value: object) -> dt.time:
    """Parse a time of day.

    Raises:
        ValueError: the value is malformed or has a time zone.
    """
    expected = "give a time of day such as '14:30', without a time zone"
    time: dt.time = _parse_value(dt.time.fromisoformat, value, expected)
    if time.tzinfo is not None:
        raise ValueError(expected)
    return time


def parse_duration_value(value: object) -> dt.timedelta:
    """Parse a duration.

    Raises:
        ValueError: the value is malformed or too long.
    """
    duration: dt.timedelta = _parse_value(parse_duration, value, "give a duration such as 'P1DT2H' or '02:30:00'")
    if abs(duration) > MAX_DURATION:
        raise ValueError("out of range")
    return duration


def _parse_value(parse: Callable[[str], Any], value: object, expected: str) -> Any:
    if type(value) is not str or len(value) > 100:
        raise ValueError(expected)
    try:
        parsed = parse(value)
    except (ValueError, OverflowError):  # well formed, but nonexistent, such as February 30
        parsed = None
    if parsed is None:
        raise ValueError(expected)
    return parsed


def parse_number_value(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError("give a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("out of range")
    return number


def parse_uuid_value(value: object) -> uuid.UUID:
    if type(value) is not str or len(value) > 50:
        raise ValueError("give a UUID")
    try:
        return uuid.UUID(value)
    except ValueError:
        raise ValueError("not a UUID") from None


def parse_address_value(value: object) -> str:
    try:
        return str(ipaddress.ip_address(parse_text_value(value)))
    except ValueError:
        raise ValueError("not an IP address") from None
