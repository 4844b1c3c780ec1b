"""Template filters for numbers and durations, in the format of the current language."""

from datetime import datetime

from django import template
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.timesince import timesince
from django.utils.translation import gettext as _

MAX_MILLISECONDS = 1000.0
"""Durations from here on are shown in seconds."""
MAX_FINE_VALUE_COUNT = 10
"""Values below it are shown with one decimal."""
JUST_NOW_SECONDS = 60
"""Times within the last seconds are "just now"."""

register = template.Library()


@register.filter
def figure(value: float, decimals: int = 0) -> str:
    """Return a number with separators and some decimals.

    1234.5 is "1,234.5" in English and "1.234,5" in German.
    """
    return number_format(round(value, decimals), decimal_pos=decimals, force_grouping=True)


@register.filter
def duration(milliseconds: float | None) -> str:
    """Return a duration in milliseconds or seconds; a dash for None."""
    if milliseconds is None:
        return "-"
    is_long = milliseconds >= MAX_MILLISECONDS
    value = milliseconds / MAX_MILLISECONDS if is_long else milliseconds
    return _append_unit(value, _("s") if is_long else _("ms"))


@register.filter
def percent(value: float) -> str:
    """Return a share in percent."""
    return _append_unit(value, "%")


@register.filter
def ago(time: datetime) -> str:
    """Return the time since then, or "just now" within the first minute."""
    now = timezone.now()
    if (now - time).total_seconds() < JUST_NOW_SECONDS:
        return _("just now")
    return _("%(time)s ago") % {"time": timesince(time, now)}


def _append_unit(value: float, unit: str) -> str:
    """Return a number and its unit, which no line break parts."""
    return f"{figure(value, 1 if 0 < value < MAX_FINE_VALUE_COUNT else 0)}\N{NO-BREAK SPACE}{unit}"
