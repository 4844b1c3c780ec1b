"""Compaction: rows of all processes become one, late rows are added, and no call counts twice."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from mcp_django.contrib.control_room.models import CallLogEntry, CallRollup, Period, UsageRollup
from mcp_django.contrib.control_room.recording import compaction, counts, writer
from mcp_django.contrib.control_room.recording.chain.verification import verify_chain
from mcp_django.contrib.control_room.recording.histogram import unpack
from mcp_django.contrib.control_room.recording.maintenance import remove_user
from mcp_django.contrib.control_room.recording.recorder import CallRecorder
from mcp_django.contrib.control_room.recording.writer import RowWriter
from tests.contrib.control_room.conftest import BlockingClient, set_recorder_time
from tests.contrib.control_room.test_rows import make_rollup, make_usage
from tests.support.waiting import WAIT_SECONDS, wait_until

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 5, 3, 10, 20, tzinfo=UTC)
MINUTE = NOW - timedelta(minutes=12)


def compact(process: str, now: datetime = NOW, *, final_before: datetime = NOW) -> int:
    """Compact the rows of a process that writes no row of before a time again."""
    return compaction.compact_rows(process, final_before.timestamp(), final_before.timestamp(), now)


def test_the_processes_of_a_minute_become_one_row() -> None:
    make_rollup(MINUTE, count=2)
    make_rollup(MINUTE, count=3, process="b")
    CallRollup.objects.filter(process="b").update(milliseconds_max=9.0)
    make_rollup(MINUTE, count=4, outcome="bug")
    assert (compact("a"), compact("b")) == (2, 1)

    row = CallRollup.objects.get(outcome="ok")
    assert (row.process, row.count, row.milliseconds_sum, row.milliseconds_max) == ("", 5, 10.0, 9.0)
    assert unpack(row.histogram)[3] == 5
    assert CallRollup.objects.get(outcome="bug").count == 4


def test_a_late_row_is_added_and_repetition_changes_nothing() -> None:
    make_rollup(MINUTE, count=2)
    compact("a")
    make_rollup(MINUTE, count=5)
    assert compact("a") == 1
    assert compact("a") == 0
    assert CallRollup.objects.get().count == 7


def test_a_period_is_compacted_after_its_end_and_not_when_it_is_old() -> None:
    kept = [NOW - timedelta(minutes=9), NOW - timedelta(hours=7)]
    for start in kept:
        make_rollup(start)
    make_rollup(MINUTE, period=Period.HOUR)
    assert compact("a") == 0
    assert CallRollup.objects.filter(process="a").count() == 3


def test_rows_that_their_process_may_write_again_are_not_compacted() -> None:
    make_rollup(MINUTE)
    assert compact("a", final_before=MINUTE) == 0
    assert compact("b") == 0
    after = NOW + timedelta(minutes=counts.MAX_PERIODS - 2)
    assert compact("b", after) == 0
    assert compact("b", after + timedelta(minutes=1)) == 1


def test_the_callers_of_an_hour_become_one_row_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MAX_STATEMENT_KEYS", 1)
    hour = NOW.replace(minute=0) - timedelta(hours=2)
    for process in ("a", "b"):
        make_usage(hour, process=process, client="token", user_key="1")
        make_usage(hour, process=process, principal="django|2|")
        assert compact(process) == 2
    row = UsageRollup.objects.get(principal="django|1|")
    assert (row.process, row.count, row.client, row.user_key) == ("", 2, "token", "1")
    assert UsageRollup.objects.count() == 2


@contextmanager
def commit_and_fail(using: str) -> Iterator[None]:
    """Commit, and lose the connection before the answer."""
    with transaction.atomic(using=using):
        yield
    raise DatabaseError("The connection was lost during the commit")


@pytest.mark.parametrize("minutes", [11, 119, 300])
def test_a_write_that_failed_after_its_commit_counts_no_call_twice(
    caller: BlockingClient,
    recorder: CallRecorder,
    change: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    minutes: int,
) -> None:
    change(CHAIN=True)
    recorder.queue.forget_settings()
    now = NOW.timestamp()
    set_recorder_time(monkeypatch, lambda: now)

    caller.call("greet")
    caller.call("fail")
    with monkeypatch.context() as patch:
        patch.setattr(writer, "transaction", SimpleNamespace(atomic=commit_and_fail))
        assert not recorder.flush()
    compact("another", NOW + timedelta(minutes=minutes))
    now += minutes * 60
    caller.call("fail")
    assert recorder.flush()
    compact("another", NOW + timedelta(minutes=minutes))
    monkeypatch.setattr(recorder.schedule, "_compacted_at", 0.0)
    recorder.schedule.run()
    rows = CallRollup.objects.filter(period=Period.MINUTE)
    found = {(row.name, (row.start - NOW).total_seconds() // 60): row.count for row in rows}
    assert found == {("greet", 0): 1, ("fail", 0): 1, ("fail", minutes): 1}
    assert [row.at - NOW for row in CallLogEntry.objects.order_by("pk")] == [timedelta(), timedelta(minutes=minutes)]
    assert list(verify_chain("default")) == []


def test_counts_that_waited_too_long_are_dropped(
    caller: BlockingClient, recorder: CallRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = NOW.timestamp()
    set_recorder_time(monkeypatch, lambda: now)

    def refuse(*args: Any) -> None:
        raise DatabaseError("away")

    for _ in range(2):
        caller.call("greet")
        recorder.flush()
    with monkeypatch.context() as patch:
        patch.setattr(RowWriter, "write", refuse)
        caller.call("greet")
        recorder.flush()
        now += (counts.MAX_PERIODS + 1) * 60
        caller.call("greet")
        recorder.flush()
    assert recorder.flush()
    assert sorted(CallRollup.objects.values_list("count", flat=True)) == [1, 2]
    assert recorder._counts.dropped == 1
    assert sum(UsageRollup.objects.values_list("count", flat=True)) == 4


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_processes_that_compact_at_the_same_time_lose_no_call() -> None:
    names = [f"web-{number}" for number in range(4)]
    minutes = [MINUTE - timedelta(minutes=age) for age in range(10)]
    for name in names:
        for start in minutes:
            make_rollup(start, process=name)
    barrier = threading.Barrier(len(names))

    def run(name: str) -> None:
        barrier.wait(60)
        try:
            compact(name)
        finally:
            connection.close()

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(run, names))
    assert list(CallRollup.objects.values_list("process", "count")) == [("", len(names))] * len(minutes)


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_a_removal_during_a_compaction_finds_the_new_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The removal waits for rows that the compaction then deletes."""
    make_usage(NOW.replace(minute=0) - timedelta(hours=2), process="a", client="token", user_key="1")
    save_rows, is_saved, may_commit = compaction.save_rows, threading.Event(), threading.Event()

    def save_and_wait(*args: Any) -> None:
        save_rows(*args)
        if args[0]:
            is_saved.set()
            assert may_commit.wait(WAIT_SECONDS)

    def run(function: Callable[[str], int], argument: str) -> int:
        try:
            return function(argument)
        finally:
            connection.close()

    def is_removal_blocked() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            return cursor.fetchone() is not None

    monkeypatch.setattr(compaction, "save_rows", save_and_wait)
    with ThreadPoolExecutor(2) as pool:
        compacting = pool.submit(run, compact, "a")
        assert is_saved.wait(WAIT_SECONDS)
        removing = pool.submit(run, remove_user, "1")
        wait_until(is_removal_blocked)
        may_commit.set()
        assert compacting.result() == 1
        removing.result()
    row = UsageRollup.objects.get()
    assert (row.process, row.user_key, row.client) == ("", "", "")
    assert row.principal.startswith("removed:")
