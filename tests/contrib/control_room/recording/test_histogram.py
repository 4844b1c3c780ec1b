"""Buckets of durations, and percentiles of their sums."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_django.contrib.control_room.recording.histogram import (
    BOUNDS_MILLISECONDS,
    BUCKET_COUNT,
    HistogramSum,
    estimate_percentile,
    find_bucket,
    merge,
    pack,
    unpack,
)

durations = st.lists(st.floats(min_value=0, max_value=1e7), min_size=1, max_size=60)


def count_all(milliseconds: list[float]) -> list[int]:
    counts = [0] * BUCKET_COUNT
    for value in milliseconds:
        counts[find_bucket(value)] += 1
    return counts


@given(st.floats(min_value=0, max_value=1e7))
def test_a_duration_lies_within_the_bounds_of_its_bucket(milliseconds: float) -> None:
    bucket = find_bucket(milliseconds)
    assert bucket == BUCKET_COUNT - 1 or milliseconds <= BOUNDS_MILLISECONDS[bucket] * (1 + 1e-9)
    assert bucket == 0 or milliseconds > BOUNDS_MILLISECONDS[bucket - 1] * (1 - 1e-9)


@given(durations, durations)
def test_merged_histograms_equal_the_histogram_of_all_calls(first: list[float], second: list[float]) -> None:
    merged = merge([pack(count_all(first)), pack(count_all(second))])
    assert merged == count_all(first + second)


@given(durations, st.sampled_from([0.5, 0.95, 0.99]))
def test_a_percentile_lies_in_the_bucket_of_the_true_one(milliseconds: list[float], share: float) -> None:
    ordered = sorted(milliseconds)
    wanted = share * len(ordered)
    true = next(value for index, value in enumerate(ordered, 1) if index >= wanted)
    estimate = estimate_percentile(count_all(milliseconds), share)
    assert estimate is not None
    if find_bucket(true) < BUCKET_COUNT - 1:
        assert find_bucket(estimate) == find_bucket(true)


def test_damaged_bytes_are_an_empty_histogram() -> None:
    assert unpack(b"damaged") == (0,) * BUCKET_COUNT
    assert estimate_percentile(unpack(b""), 0.5) is None


@pytest.mark.parametrize("milliseconds", [0.0, 1e12])
def test_extreme_durations_have_a_bucket(milliseconds: float) -> None:
    assert 0 <= find_bucket(milliseconds) < BUCKET_COUNT


def test_a_sum_of_packed_histograms_equals_their_merge_beyond_32_bits() -> None:
    rows = [[number * bucket for bucket in range(BUCKET_COUNT)] for number in (1, 20, 300)]
    rows += [[0] * 5 + [2**32 - 1] + [0] * (BUCKET_COUNT - 6)] * 3
    total = HistogramSum()
    for row in rows:
        total.add(pack(row), sum(row))
    total.add(b"damaged", 7)
    assert total.counts == merge(map(pack, rows))
    assert total.counts[5] > 2**33
