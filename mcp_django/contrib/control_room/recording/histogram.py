"""Histograms of durations, with buckets of half powers of two.

Histograms of the same buckets can be added, so percentiles of an hour come from the minutes of all processes.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence

BUCKET_COUNT = 40
"""Number of buckets. The last one has no upper bound."""
MIN_BOUND_MILLISECONDS = 0.25
"""Upper bound of the first bucket in milliseconds."""
_FORMAT = struct.Struct(f"<{BUCKET_COUNT}I")
_MAX_COUNT = 0xFFFFFFFF
BOUNDS_MILLISECONDS = tuple(MIN_BOUND_MILLISECONDS * 2 ** (index / 2) for index in range(BUCKET_COUNT - 1))
"""Upper bounds of all buckets except the last, in milliseconds."""


def find_bucket(milliseconds: float) -> int:
    """Return the index of the bucket of a duration."""
    return bisect_left(BOUNDS_MILLISECONDS, milliseconds)


def pack(counts: Sequence[int]) -> bytes:
    """Return a histogram as bytes: an unsigned number of 32 bits for each bucket."""
    return _FORMAT.pack(*(min(count, _MAX_COUNT) for count in counts))


def unpack(packed: bytes | memoryview) -> tuple[int, ...]:
    """Return the counts of a packed histogram. Damaged bytes count as empty."""
    data = bytes(packed)
    return _FORMAT.unpack(data) if len(data) == _FORMAT.size else (0,) * BUCKET_COUNT


def merge(packed: Iterable[bytes | memoryview]) -> list[int]:
    """Return the sum of packed histograms."""
    total = [0] * BUCKET_COUNT
    for data in packed:
        for index, count in enumerate(unpack(data)):
            total[index] += count
    return total


class HistogramSum:
    """Sum of many packed histograms.

    A packed histogram is added as one large number, which takes a tenth of the time of `merge`. A bucket has 32 bits,
    so before a sum of more calls could flow into the next bucket, it is moved to a list.
    """

    __slots__ = ("_count", "_number", "_totals")

    def __init__(self) -> None:
        self._count = 0
        self._number = 0
        self._totals = [0] * BUCKET_COUNT

    def add(self, packed: bytes | memoryview, count: int) -> None:
        """Add the packed histogram of `count` calls. Damaged bytes count as empty."""
        if len(packed) != _FORMAT.size:
            return
        if self._count + count > _MAX_COUNT:
            self._move_to_totals()
        self._number += int.from_bytes(packed, "little")
        self._count += count

    def merge(self, other: "HistogramSum") -> None:
        """Add another sum."""
        self._totals = [mine + calls for mine, calls in zip(self._totals, other.counts, strict=True)]

    @property
    def counts(self) -> list[int]:
        """Number of calls in each bucket."""
        self._move_to_totals()
        return list(self._totals)

    def _move_to_totals(self) -> None:
        if self._count:
            added = unpack(self._number.to_bytes(_FORMAT.size, "little"))
            self._totals = [total + calls for total, calls in zip(self._totals, added, strict=True)]
        self._number = 0
        self._count = 0


def estimate_percentile(counts: Sequence[int], share: float) -> float | None:
    """Return the duration in which `share` of the calls ended.

    In milliseconds; None without calls. The estimate lies in the right bucket. Within it, durations count as evenly
    spread.
    """
    total = sum(counts)
    if not total:
        return None
    wanted, reached = share * total, 0
    for index, count in enumerate(counts):
        if count and reached + count >= wanted:
            lower = BOUNDS_MILLISECONDS[index - 1] if index else 0.0
            upper = BOUNDS_MILLISECONDS[index] if index < BUCKET_COUNT - 1 else 2 * lower
            return lower + (upper - lower) * max(wanted - reached, 0.0) / count
        reached += count
    return BOUNDS_MILLISECONDS[-1]
