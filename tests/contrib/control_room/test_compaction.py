"""Compaction: rows of all processes become one, late rows are added, and sums stay the same."""

from datetime import UTC, datetime, timedelta

import pytest

from mcp_django.contrib.control_room.models import CallRollup, Period, UsageRollup
from mcp_django.contrib.control_room.recording import compaction
from mcp_django.contrib.control_room.recording.histogram import unpack
from tests.contrib.control_room.test_rows import make_rollup, make_usage

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 5, 3, 10, 20, tzinfo=UTC)
MINUTE = NOW - timedelta(minutes=12)


def test_the_processes_of_a_minute_become_one_row() -> None:
    make_rollup(MINUTE, count=2)
    make_rollup(MINUTE, count=3, process="b")
    CallRollup.objects.filter(process="b").update(milliseconds_max=9.0)
    make_rollup(MINUTE, count=4, outcome="bug")
    assert compaction.compact_rows(NOW) == 3

    row = CallRollup.objects.get(outcome="ok")
    assert (row.process, row.count, row.milliseconds_sum, row.milliseconds_max) == ("", 5, 10.0, 9.0)
    assert unpack(row.histogram)[3] == 5
    assert CallRollup.objects.get(outcome="bug").count == 4


def test_a_late_row_is_added_and_repetition_changes_nothing() -> None:
    make_rollup(MINUTE, count=2)
    compaction.compact_rows(NOW)
    make_rollup(MINUTE, count=5, process="late")
    assert compaction.compact_rows(NOW) == 1
    assert compaction.compact_rows(NOW) == 0
    assert CallRollup.objects.get().count == 7


def test_a_period_is_compacted_after_its_end_and_not_when_it_is_old() -> None:
    kept = [NOW - timedelta(minutes=9), NOW - timedelta(hours=5)]
    for start in kept:
        make_rollup(start)
    make_rollup(MINUTE, period=Period.HOUR)
    assert compaction.compact_rows(NOW) == 0
    assert CallRollup.objects.filter(process="a").count() == 3


def test_the_callers_of_an_hour_become_one_row_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MAX_STATEMENT_KEYS", 2)
    hour = NOW.replace(minute=0) - timedelta(hours=2)
    for process in ("a", "b"):
        make_usage(hour, process=process, client="token", user_key="1")
        make_usage(hour, process=process, principal="django|2|")
    assert compaction.compact_rows(NOW) == 4
    row = UsageRollup.objects.get(principal="django|1|")
    assert (row.process, row.count, row.client, row.user_key) == ("", 2, "token", "1")
    assert UsageRollup.objects.count() == 2
