"""Sums of hours and days, deletion by age, removal of users, and the router."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.utils import timezone

from mcp_django import Server
from mcp_django.contrib.control_room.models import CallLogEntry, CallRollup, Period, ServerRollup, UsageRollup
from mcp_django.contrib.control_room.options import RecordRouter
from mcp_django.contrib.control_room.recording import maintenance as rows
from mcp_django.contrib.control_room.recording import schedule
from mcp_django.contrib.control_room.recording.histogram import BUCKET_COUNT, pack, unpack
from mcp_django.contrib.control_room.recording.recorder import CallRecorder
from tests.contrib.control_room.conftest import BlockingClient, make_caller

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 5, 3, 10, 20, tzinfo=UTC)


def make_rollup(start: datetime, *, count: int = 1, period: Period = Period.MINUTE, **values: Any) -> CallRollup:
    row = {"server": "default", "method": "tools/call", "name": "greet", "outcome": "ok", "process": "a"}
    histogram = [0] * BUCKET_COUNT
    histogram[3] = count
    return CallRollup.objects.create(
        period=period,
        start=start,
        count=count,
        milliseconds_sum=2.0 * count,
        milliseconds_max=3.0,
        histogram=pack(histogram),
        **{**row, **values},
    )


def make_server_rollup(start: datetime, **values: Any) -> ServerRollup:
    row = {"server": "default", "outcome": "ok", "count": 1, "milliseconds_sum": 2.0, "milliseconds_max": 2.0}
    return ServerRollup.objects.create(start=start, histogram=pack([1] + [0] * (BUCKET_COUNT - 1)), **{**row, **values})


def make_record(at: datetime, **values: Any) -> CallLogEntry:
    row: dict[str, Any] = {
        "server": "default",
        "method": "tools/call",
        "name": "greet",
        "outcome": "bug",
        "principal": "django|1|",
    }
    row["milliseconds"] = 1.0
    return CallLogEntry.objects.create(at=at, revision="2026-07-28", process="a", **{**row, **values})


def make_usage(start: datetime, **values: Any) -> UsageRollup:
    row = {"server": "default", "method": "tools/call", "name": "greet", "principal": "django|1|", "process": "a"}
    return UsageRollup.objects.create(start=start, count=1, failed=0, milliseconds_sum=1, **{**row, **values})


def test_hours_and_days_are_the_sums_of_all_processes() -> None:
    hour = NOW.replace(minute=0) - timedelta(hours=1)
    make_rollup(hour, count=2)
    make_rollup(hour + timedelta(minutes=59), count=3, process="b")
    make_rollup(hour + timedelta(minutes=60), count=100)
    make_rollup(hour - timedelta(days=1), count=7, period=Period.HOUR, process="")
    rows.merge_rollups(NOW)
    rows.merge_rollups(NOW)

    summed = CallRollup.objects.get(period=Period.HOUR, start=hour)
    assert (summed.count, summed.milliseconds_sum, summed.process) == (5, 10.0, "")
    assert unpack(summed.histogram)[3] == 5
    day = CallRollup.objects.get(period=Period.DAY)
    assert (day.start, day.count) == (NOW.replace(hour=0, minute=0) - timedelta(days=1), 7)


def test_the_sums_of_a_server_have_all_names_and_methods_by_outcome() -> None:
    hour = NOW.replace(minute=0) - timedelta(hours=1)
    make_rollup(hour, count=2)
    make_rollup(hour, count=3, method="tools/list", name="", process="b")
    make_rollup(hour, count=4, outcome="bug")
    make_rollup(hour, count=5, server="other")
    rows.merge_rollups(NOW)
    rows.merge_rollups(NOW)
    sums = ServerRollup.objects.order_by("count").values_list("start", "server", "outcome", "count")
    assert list(sums) == [(hour, "default", "bug", 4), (hour, "default", "ok", 5), (hour, "other", "ok", 5)]
    assert unpack(ServerRollup.objects.get(server="default", outcome="ok").histogram)[3] == 5


def test_all_hours_and_days_since_the_last_sums_are_summed_after_a_pause() -> None:
    hour = NOW.replace(minute=0)
    make_rollup(hour - timedelta(hours=30))
    rows.merge_rollups(NOW - timedelta(hours=29))
    make_rollup(hour - timedelta(hours=28, minutes=-7), count=3)
    make_rollup(hour - timedelta(days=9), period=Period.HOUR, process="")
    make_rollup(hour - timedelta(days=4), count=5, period=Period.HOUR, process="")
    ServerRollup.objects.all().delete()  # as in a project that ran a version without them
    rows.merge_rollups(NOW)
    hours = CallRollup.objects.filter(period=Period.HOUR, start=hour - timedelta(hours=28))
    assert [row.count for row in hours] == [3]
    days = CallRollup.objects.filter(period=Period.DAY).order_by("start").values_list("start", "count")
    midnight = hour.replace(hour=0)
    assert list(days) == [(midnight - timedelta(days=4), 5), (midnight - timedelta(days=1), 1 + 3)]
    servers = ServerRollup.objects.order_by("start").values_list("start", "count")
    assert [(hour - start, count) for start, count in servers] == [
        (timedelta(days=4), 5),
        (timedelta(hours=30), 1),
        (timedelta(hours=28), 3),
    ]


def test_late_minutes_are_added_to_their_hour() -> None:
    hour = NOW.replace(minute=0) - timedelta(hours=2)
    make_rollup(hour)
    rows.merge_rollups(NOW)
    make_rollup(hour, process="late")
    rows.merge_rollups(NOW)
    assert CallRollup.objects.get(period=Period.HOUR).count == 2


def test_pruning_deletes_old_rows_of_each_kind_in_batches(
    monkeypatch: pytest.MonkeyPatch, change: Callable[..., None]
) -> None:
    change(KEEP={"calls": 1, "minutes": 1, "hours": 1, "days": 1})
    monkeypatch.setattr(rows, "DELETION_ROWS", 2)
    now = timezone.now()
    old = now - timedelta(days=2)
    for _ in range(5):
        make_record(old)
    make_record(now)
    make_rollup(old)
    make_rollup(now)
    make_rollup(old, period=Period.DAY)
    make_server_rollup(old)
    make_usage(old)
    deleted = {step.kind: rows.delete_old_rows(step) for step in rows.iter_prune_steps()}
    minutes_and_hours = {"minutes": 1, "hours": 0, "server hours": 1}
    assert deleted == {"calls": 5, "chains": 0, **minutes_and_hours, "usage": 1, "days": 1}
    assert CallLogEntry.objects.count() == CallRollup.objects.count() == 1


def test_a_long_maintenance_leaves_time_for_writes(
    caller: BlockingClient, recorder: CallRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "DELETION_ROWS", 2)
    monkeypatch.setattr(schedule, "MAX_MAINTENANCE_SECONDS", 0.0)
    monkeypatch.setattr(recorder.schedule, "_maintained_at", 0.0)
    for age in range(40, 45):
        make_record(timezone.now() - timedelta(days=age), outcome="ok")
    caller.call("fail")
    left = []
    for _ in range(20):
        recorder.schedule.run()
        recorder.flush()
        left.append(CallLogEntry.objects.filter(outcome="ok").count())
    assert list(dict.fromkeys(left)) == [5, 3, 1, 0]
    assert CallLogEntry.objects.get().outcome == "tool_error"


def test_the_command_pauses_after_each_full_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(rows, "DELETION_ROWS", 2)
    monkeypatch.setattr(rows, "sleep", pauses.append)
    for options, count in (([], 2), (["--fast"], 0)):
        for _ in range(5):
            make_record(timezone.now() - timedelta(days=31))
        pauses.clear()
        call_command("mcp_prune", *options, stdout=StringIO())
        assert not CallLogEntry.objects.exists()
        assert len(pauses) == count
        assert all(0 < seconds <= rows.MAX_PAUSE_SECONDS for seconds in pauses)


def test_the_command_counts_before_it_deletes() -> None:
    make_record(timezone.now() - timedelta(days=31))
    output = StringIO()
    call_command("mcp_prune", "--dry-run", stdout=output)
    assert "calls: 1 would be deleted" in output.getvalue()
    assert CallLogEntry.objects.exists()
    call_command("mcp_prune", stdout=output)
    assert "calls: 1 deleted" in output.getvalue()
    assert not CallLogEntry.objects.exists()


def test_a_deleted_user_leaves_counts_without_a_name() -> None:
    ada = User.objects.create(username="ada")
    traces = {"principal": f"django|{ada.pk}|token:1", "user_key": str(ada.pk), "client": "Claude 1"}
    make_record(NOW, arguments='{"country": "Chad"}', timeline="{}", **traces)
    acted = make_record(NOW, actor_key=str(ada.pk), principal="django|99|")
    make_usage(NOW, **traces)
    make_usage(NOW, principal="django|99|")
    ada.delete()

    acted.refresh_from_db()
    assert acted.actor_key.startswith("removed:")
    assert acted.principal == "django|99|"
    calls = CallLogEntry.objects.exclude(pk=acted.pk)
    values = [*calls.values(), *UsageRollup.objects.filter(principal__startswith="removed:").values()]
    assert len(values) == 2
    assert not any(trace in repr(values) for trace in ("Chad", "Claude", traces["principal"]))
    assert UsageRollup.objects.filter(principal="django|99|").exists()


def test_two_principals_of_a_removed_user_do_not_collide() -> None:
    for number in (1, 2):
        make_usage(NOW, principal=f"django|7|token:{number}", user_key="7")
    call_command("mcp_forget", "7", stdout=StringIO())
    assert UsageRollup.objects.filter(user_key="").values("principal").distinct().count() == 2


def test_a_forgotten_user_who_keeps_calling_counts_once(server: Server, recorder: CallRecorder) -> None:
    ada = User.objects.create(username="ada")
    caller, other = BlockingClient(server, make_caller(user=ada)), BlockingClient(server, make_caller("bob"))
    for _ in range(2):
        caller.call("fail")
    other.call("greet")
    recorder.flush()
    for _ in range(2):
        call_command("mcp_forget", "ada", stdout=StringIO())
        caller.call("fail")
        other.call("greet")
        recorder.flush()
        recorder.flush()

    usage = UsageRollup.objects.order_by("pk")
    removed = usage.filter(principal__startswith="removed:")
    assert [(row.count, row.failed, row.user_key, row.client) for row in removed] == [(2, 2, "", ""), (1, 1, "", "")]
    assert [(row.count, row.failed) for row in usage.filter(user_key=ada.pk)] == [(1, 1)]
    assert usage.get(name="greet").count == 3
    assert CallLogEntry.objects.filter(user_key=ada.pk).count() == 1


def test_a_deleted_operator_whose_calls_were_written_later_is_removed() -> None:
    late = make_record(timezone.now(), actor_key="4711", principal="other|1|")
    rows.remove_deleted_users()
    late.refresh_from_db()
    assert late.actor_key.startswith("removed:")


def test_an_unknown_user_cannot_be_removed() -> None:
    with pytest.raises(CommandError, match="'nemo'"):
        call_command("mcp_forget", "nemo")


def test_the_router_keeps_the_tables_in_their_database(change: Callable[..., None]) -> None:
    router = RecordRouter()
    assert router.db_for_write(CallLogEntry) is None
    assert router.allow_migrate("default", "auth") is None

    change(DATABASE="records")
    assert (router.db_for_read(CallLogEntry), router.db_for_write(User)) == ("records", None)
    assert router.allow_migrate("records", "mcp_control_room")
    assert router.allow_migrate("default", "mcp_control_room") is False
    assert router.allow_migrate("records", "auth") is False
    assert router.allow_migrate("default", "auth") is None


def test_calls_are_exported_as_lines_since_a_time() -> None:
    make_record(datetime(2026, 1, 1, tzinfo=UTC))
    make_record(NOW, name="=cmd()", arguments='{"a": 1}')
    output = StringIO()
    call_command("mcp_calls", "--since", "2026-02-01", "--format", "csv", stdout=output)
    lines = output.getvalue().splitlines()
    assert len(lines) == 2
    assert "'=cmd()" in lines[1]
    assert "arguments" not in lines[0]

    output = StringIO()
    call_command("mcp_calls", "--since", "2026-02-01T00:00", "--arguments", stdout=output)
    assert '"arguments": "{\\"a\\": 1}"' in output.getvalue()
    with pytest.raises(CommandError, match="yesterday"):
        call_command("mcp_calls", "--since", "yesterday")
