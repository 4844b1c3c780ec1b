"""Compaction: one row for all processes in place of one row for each, once a period is over.

Pages read a fraction of the rows then. After a failed write, a process writes the total of its period again. If its
row had become a part of the common one, the calls would count twice. Therefore a process compacts its own rows only,
and only those that it will not write again. Rows of other processes are compacted when they are older than any process
writes: those of processes that ended.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import models, transaction
from django.db.models import Q
from django.utils import timezone

from mcp_django.contrib.control_room.models import CallRollup, Period, UsageRollup
from mcp_django.contrib.control_room.recording.counts import HOUR_SECONDS, MAX_PERIODS, MINUTE_SECONDS
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
"""Time from the end of a period until its rows are compacted.

The clocks of hosts differ by less.
"""
SEARCH_TIME = timedelta(hours=4)
"""Time after which rows are not compacted any more, so that few rows are searched."""
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


def compact_rows(
    process: str, final_minutes_before: float, final_hours_before: float, now: datetime | None = None
) -> int:
    """Compact the minutes of calls and the hours of usage; return the number of deleted rows.

    The arguments name the process that calls this, and the times before which its rows are final, in seconds since the
    epoch.
    """
    now = now or timezone.now()
    minutes = CallRollup.objects.using(get_alias()).filter(period=Period.MINUTE)
    hours = UsageRollup.objects.using(get_alias()).all()
    minute, hour = (
        _Compaction(minutes, timedelta(seconds=MINUTE_SECONDS), ROLLUP_KEY, ROLLUP_VALUES),
        _Compaction(hours, timedelta(seconds=HOUR_SECONDS), USAGE_KEY, USAGE_VALUES),
    )
    return minute.compact(process, final_minutes_before, now) + hour.compact(process, final_hours_before, now)


def merge_values(rows: Sequence[Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the values of a row that replaces all of `rows`."""
    return {name: _MERGES[name]([getattr(row, name) for row in rows]) for name in names}


@dataclass(frozen=True, slots=True)
class _Compaction:
    """Compaction of the rows of one length."""

    rows: "models.QuerySet[Any]"
    length: timedelta
    key: Sequence[str]
    values: Sequence[str]

    def compact(self, process: str, final_before: float, now: datetime) -> int:
        """Compact the rows of a process, and those of ended processes; return the number of deleted rows."""
        end = now - COMPACTION_DELAY - self.length
        final = datetime.fromtimestamp(final_before, UTC)
        own = self.rows.filter(process=process, start__lte=end, start__lt=final, start__gt=end - SEARCH_TIME)
        old = end - MAX_PERIODS * self.length
        ended = self.rows.exclude(process="").filter(start__lte=old, start__gt=old - SEARCH_TIME)
        return self._compact(own) + self._compact(ended)

    def _compact(self, chosen: "models.QuerySet[Any]") -> int:
        starts = chosen.order_by("start").values_list("start", flat=True).distinct()
        return sum(self._compact_period(start, chosen.filter(start=start)) for start in list(starts))

    def _compact_period(self, start: datetime, chosen: "models.QuerySet[Any]") -> int:
        """Add the chosen rows of one period to the common ones, in one transaction.

        The first statement locks all rows of the period, so that processes take turns. The second one reads the
        result of the process before.
        """
        group_fields = [name for name in self.key if name != "process"]
        with transaction.atomic(using=self.rows.db):
            all_rows = self.rows.filter(start=start).order_by("pk")
            list(all_rows.select_for_update().values_list("pk", flat=True))
            groups: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
            for row in all_rows.filter(Q(process="") | Q(pk__in=chosen.values("pk"))):
                groups[tuple(getattr(row, name) for name in group_fields)].append(row)

            sums, old_keys = [], []
            for group_key, group in groups.items():
                if keys := [row.pk for row in group if row.process]:
                    fields = dict(zip(group_fields, group_key, strict=True))
                    sums.append(self.rows.model(**fields, process="", **merge_values(group, self.values)))
                    old_keys += keys

            save_rows(sums, self.key, self.values, self.rows.db)
            for first in range(0, len(old_keys), MAX_STATEMENT_KEYS):
                self.rows.filter(pk__in=old_keys[first : first + MAX_STATEMENT_KEYS])._raw_delete(self.rows.db)
        return len(old_keys)
