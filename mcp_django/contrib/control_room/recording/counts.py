"""Counts of calls that a process has not finished: by minute, and by hour and caller.

A count stays in memory until its period is over and its row is written. The row has the total of the process, so
writing it again after a failure changes nothing. A period that was not written for too long is dropped, so that other
processes know when a row cannot change any more. One thread uses these objects.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from mcp_django.contrib.control_room.models import OTHER_NAMES
from mcp_django.contrib.control_room.recording.entries import FAILED_OUTCOMES, CallGroup
from mcp_django.contrib.control_room.recording.histogram import BUCKET_COUNT, find_bucket

MINUTE_SECONDS = 60
HOUR_SECONDS = 3600
MAX_KEYS = 5000
"""Maximum names and callers of a period that a process counts singly."""
MAX_PERIODS = 120
"""Age in periods above which counts that wait for a database are dropped."""
CLOSE_DELAY_SECONDS = 10
"""Seconds after its end until a period is closed. Later calls count in the next one."""
K = TypeVar("K", bound=tuple[Hashable, ...])


@dataclass(slots=True)
class CallCount:
    """Calls with the same key in the same period."""

    count: int = 0
    failed: int = 0
    milliseconds_sum: float = 0.0
    milliseconds_max: float = 0.0
    histogram: list[int] = field(default_factory=list)
    """Calls by duration; empty without durations."""
    client: str = ""
    user_key: str = ""
    changed: bool = False
    written: tuple[int, int, float] = (0, 0, 0.0)
    """Calls, failures and milliseconds that the row of this process has."""

    def add(self, milliseconds: Sequence[float], *, failed: bool) -> None:
        """Count calls with these durations."""
        self.count += len(milliseconds)
        self.failed += len(milliseconds) if failed else 0
        self.milliseconds_sum += sum(milliseconds)
        self.changed = True

    def add_durations(self, milliseconds: Sequence[float]) -> None:
        """Add durations to the maximum and to the histogram."""
        self.milliseconds_max = max(self.milliseconds_max, max(milliseconds))
        histogram = self.histogram = self.histogram or [0] * BUCKET_COUNT
        for each in milliseconds:
            histogram[find_bucket(each)] += 1

    def mark_written(self) -> None:
        """Note that the row has all of the calls."""
        self.changed = False
        self.written = (self.count, self.failed, self.milliseconds_sum)

    def forget_written(self) -> None:
        """Leave out the written calls, because their row belongs to no caller any more."""
        count, failed, milliseconds = self.written
        self.count -= count
        self.failed -= failed
        self.milliseconds_sum -= milliseconds
        self.written = (0, 0, 0.0)


class PeriodCounts(Generic[K]):
    """Counts of all open periods of one length."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self.dropped = 0
        """Calls whose counts were dropped while the database was away."""
        self._periods: dict[int, dict[K, CallCount]] = {}
        self._closed_before = 0

    def get(self, at: float, key: K, folded_key: K) -> CallCount:
        """Return the count for calls at a time.

        Above `MAX_KEYS` it is that of `folded_key`.
        """
        start = max(int(at) // self.seconds * self.seconds, self._closed_before)
        period = self._periods.setdefault(start, {})
        found = period.get(key)
        if found is None:
            found = period.setdefault(folded_key if len(period) >= MAX_KEYS else key, CallCount())
        return found

    def iter_changed(self) -> Iterator[tuple[int, K, CallCount]]:
        """Yield start, key and count of the rows to write."""
        for start, period in self._periods.items():
            for key, count in period.items():
                if count.changed:
                    yield start, key, count

    def confirm(self, written: Iterable[CallCount], now: float) -> None:
        """Mark counts as written, and forget the periods that are over."""
        for count in written:
            count.mark_written()
        self._closed_before = max(self._closed_before, int(now - CLOSE_DELAY_SECONDS) // self.seconds * self.seconds)
        for start in [start for start in self._periods if start < self._closed_before]:
            if not any(count.changed for count in self._periods[start].values()):
                del self._periods[start]

    def drop_old(self, now: float) -> None:
        """Drop the periods that are too old to be written."""
        oldest = now - MAX_PERIODS * self.seconds
        for start in [start for start in self._periods if start < oldest]:
            self.dropped += sum(count.count - count.written[0] for count in self._periods.pop(start).values())

    @property
    def final_before(self) -> int:
        """Start of the first period whose rows this process may write again."""
        return min([self._closed_before, *self._periods])


RollupKey = tuple[str, str, str, str]
"""Server, method, name, outcome."""
UsageKey = tuple[str, str, str, str]
"""Server, method, name, key of the principal."""


class ProcessCounts:
    """Counts of a process: calls by minute, and usage by caller and hour."""

    def __init__(self) -> None:
        self.calls: PeriodCounts[RollupKey] = PeriodCounts(MINUTE_SECONDS)
        self.usage: PeriodCounts[UsageKey] = PeriodCounts(HOUR_SECONDS)

    def add(self, at: float, group: CallGroup, seconds: Iterable[float]) -> None:
        """Count calls of a group, by their durations, in their minute and in the hour of their caller."""
        milliseconds = [each * 1000 for each in seconds]
        place, folded = (group.server, group.method, group.name), (group.server, group.method, OTHER_NAMES)
        failed, outcome = group.outcome in FAILED_OUTCOMES, group.outcome.value
        count = self.calls.get(at, (*place, outcome), (*folded, outcome))
        count.add(milliseconds, failed=failed)
        count.add_durations(milliseconds)

        usage = self.usage.get(at, (*place, group.principal), (*folded, OTHER_NAMES))
        if not usage.count:
            usage.client = group.client
            usage.user_key = group.user_key
        usage.add(milliseconds, failed=failed)

    def drop_old(self, now: float) -> None:
        """Drop the periods that are too old to be written. It bounds the memory while the database is away."""
        self.calls.drop_old(now)
        self.usage.drop_old(now)

    @property
    def dropped(self) -> int:
        """Calls that no row counts."""
        return self.calls.dropped
