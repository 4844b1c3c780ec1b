"""Compaction: one row for all processes in place of one row for each, once a period is over.

Pages read a fraction of the rows then. Rows that a process writes late are added by the next compaction. A process
writes the total of its period again only after a failed write, so a period is compacted some time after its end.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import models, transaction
from django.utils import timezone

from mcp_django.contrib.control_room.models import CallRollup, Period, UsageRollup
from mcp_django.contrib.control_room.recording.histogram import merge, pack
from mcp_django.contrib.control_room.recording.writer import (
    ROLLUP_KEY,
    ROLLUP_VALUES,
    USAGE_KEY,
    USAGE_VALUES,
    get_alias,
    save_rows,
)

COMPACTION_DELAY = timedelta(minutes=10)
"""Time from the end of a period until its rows are compacted."""
MAX_AGE = timedelta(hours=4)
"""Age above which rows are not compacted any more, so that few rows are searched."""
MAX_STATEMENT_KEYS = 500
"""Maximum primary keys in a statement that deletes rows."""
_MERGES: Mapping[str, Callable[[Iterable[Any]], Any]] = {
    "count": sum,
    "failed": sum,
    "milliseconds_sum": sum,
    "milliseconds_max": max,
    "histogram": lambda packed: pack(merge(packed)),
    "client": max,
    "user_key": max,
}


def compact_rows(now: datetime | None = None) -> int:
    """Compact the minutes of calls and the hours of usage; return the number of deleted rows.

    Any process may do so at any time. The rows of a period are locked, and another process finds them gone.
    """
    now = now or timezone.now()
    minutes = CallRollup.objects.using(get_alias()).filter(period=Period.MINUTE)
    hours = UsageRollup.objects.using(get_alias()).all()
    return _compact(_filter_ended(minutes, timedelta(minutes=1), now), ROLLUP_KEY, ROLLUP_VALUES) + _compact(
        _filter_ended(hours, timedelta(hours=1), now), USAGE_KEY, USAGE_VALUES
    )


def merge_values(rows: Sequence[Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the values of a row that stands for all of `rows`."""
    return {name: _MERGES[name]([getattr(row, name) for row in rows]) for name in names}


def _filter_ended(rows: "models.QuerySet[Any]", length: timedelta, now: datetime) -> "models.QuerySet[Any]":
    return rows.filter(start__lte=now - COMPACTION_DELAY - length, start__gt=now - MAX_AGE)


def _compact(rows: "models.QuerySet[Any]", key: Sequence[str], values: Sequence[str]) -> int:
    starts = rows.exclude(process="").order_by("start").values_list("start", flat=True).distinct()
    return sum(_compact_period(rows.filter(start=start), key, values) for start in list(starts))


def _compact_period(rows: "models.QuerySet[Any]", key: Sequence[str], values: Sequence[str]) -> int:
    """Replace the rows of one period in one transaction."""
    group_fields = [name for name in key if name != "process"]
    with transaction.atomic(using=rows.db):
        groups: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
        for row in rows.select_for_update().order_by("pk"):
            groups[tuple(getattr(row, name) for name in group_fields)].append(row)

        sums, old_keys = [], []
        for group_key, group in groups.items():
            if keys := [row.pk for row in group if row.process]:
                fields = dict(zip(group_fields, group_key, strict=True))
                sums.append(rows.model(**fields, process="", **merge_values(group, values)))
                old_keys += keys

        save_rows(sums, key, values, rows.db)
        for first in range(0, len(old_keys), MAX_STATEMENT_KEYS):
            rows.filter(pk__in=old_keys[first : first + MAX_STATEMENT_KEYS])._raw_delete(rows.db)
    return len(old_keys)
