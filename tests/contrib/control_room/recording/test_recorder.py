"""Recording of calls: counts, rows of single calls, limits, and a database that is away."""

import gc
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import DatabaseError, connections

from mcp_django import Server
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.contrib.control_room.models import OTHER_NAMES, UNKNOWN_NAME, CallLogEntry, CallRollup, UsageRollup
from mcp_django.contrib.control_room.recording import counts, record_queue
from mcp_django.contrib.control_room.recording.histogram import merge
from mcp_django.contrib.control_room.recording.recorder import CallRecorder
from mcp_django.contrib.control_room.recording.writer import RowWriter, get_alias
from mcp_django.protocol.errors import MCPError
from tests.contrib.control_room.conftest import BlockingClient, make_caller, set_recorder_time
from tests.server.client import HANDSHAKE, PipelineClient
from tests.support.waiting import WAIT_SECONDS

CANARY = "swordfish"


@pytest.fixture(autouse=True)
def _a_minute_ends(recorder: CallRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a minute end after the first call of each test. Counts have a row for each minute."""
    minute_end = (time.time() // 60 + 1) * 60
    readings = itertools.count(1)
    set_recorder_time(monkeypatch, lambda: minute_end + (-1 if next(readings) == 1 else 1))


def call_ignoring_errors(client: BlockingClient, method: str, params: dict[str, Any]) -> None:
    try:
        client.request(method, params)
    except MCPError:
        pass


def count_calls(**conditions: Any) -> int:
    return sum(row.count for row in CallRollup.objects.filter(**conditions))


def test_calls_are_counted_by_method_name_and_outcome(caller: BlockingClient, recorder: CallRecorder) -> None:
    for _ in range(3):
        caller.call("greet")
    caller.call("fail")
    caller.request("tools/list")
    assert recorder.flush()

    assert count_calls(method="tools/call", name="greet", outcome="ok") == 3
    assert count_calls(name="fail", outcome="tool_error") == 1
    assert count_calls(method="tools/list", name="", outcome="ok") == 1
    rows = CallRollup.objects.filter(name="greet")
    assert sum(merge([row.histogram for row in rows])) == 3
    assert all(row.milliseconds_max <= row.milliseconds_sum for row in rows)


def test_writing_again_replaces_the_total_of_the_process(caller: BlockingClient, recorder: CallRecorder) -> None:
    caller.call("greet")
    recorder.flush()
    caller.call("greet")
    recorder.flush()
    recorder.flush()
    assert count_calls(name="greet") == 2


def test_two_processes_have_rows_of_their_own(server: Server, recorder: CallRecorder) -> None:
    BlockingClient(server).call("greet")
    recorder.flush()
    recorder.reset_after_fork()
    BlockingClient(server).call("greet")
    recorder.flush()
    assert CallRollup.objects.filter(name="greet").count() == 2
    assert count_calls(name="greet") == 2


def test_usage_names_the_caller_and_its_client(server: Server, recorder: CallRecorder, django_user_model: Any) -> None:
    user = django_user_model.objects.create(username="ada")
    client = BlockingClient(server, make_caller(user=user))
    client.call("greet")
    client.call("fail")
    recorder.flush()
    rows = {row.name: row for row in UsageRollup.objects.all()}
    assert (rows["greet"].user_key, rows["greet"].client, rows["greet"].failed) == (str(user.pk), "cli", 0)
    assert rows["fail"].failed == 1

    plain = PipelineClient(server, version=HANDSHAKE, principal=DjangoPrincipal(issuer="tests", subject="bob"))
    async_to_sync(plain.request)("tools/call", {"name": "greet", "arguments": {}})
    recorder.flush()
    assert UsageRollup.objects.filter(client="tests 1").count() == 1  # without an OAuth client, the name that it sent


def test_only_failed_and_slow_calls_have_rows_by_default(
    caller: BlockingClient, recorder: CallRecorder, change: Callable[..., None]
) -> None:
    caller.call("greet")
    caller.call("fail")
    recorder.flush()
    assert [(row.name, row.outcome) for row in CallLogEntry.objects.all()] == [("fail", "tool_error")]

    change(SLOW=1e-9)
    recorder.queue.forget_settings()
    caller.call("greet")
    recorder.flush()
    assert CallLogEntry.objects.filter(name="greet", outcome="ok").count() == 1


def test_a_tool_may_have_a_selection_of_its_own(
    caller: BlockingClient, recorder: CallRecorder, change: Callable[..., None]
) -> None:
    change(TOOLS={"greet": {"CALLS": "all"}, "fail": {"CALLS": "none"}})
    recorder.queue.forget_settings()
    caller.call("greet")
    caller.call("fail")
    recorder.flush()
    assert [row.name for row in CallLogEntry.objects.all()] == ["greet"]


def test_a_record_has_the_facts_of_the_call(caller: BlockingClient, recorder: CallRecorder) -> None:
    call_ignoring_errors(caller, "tools/call", {"name": "break_down", "arguments": {}})
    recorder.flush()
    record = CallLogEntry.objects.get()
    assert (record.outcome, record.error_code, record.revision) == ("bug", None, "2026-07-28")
    assert record.reference
    assert record.principal == make_caller().key
    assert record.call_id
    assert abs((datetime.now(UTC) - record.at).total_seconds()) < 600


def test_no_argument_is_kept_by_default(caller: BlockingClient, recorder: CallRecorder) -> None:
    for tool in ("fail", "break_down", CANARY):
        call_ignoring_errors(caller, "tools/call", {"name": tool, "arguments": {"secret": CANARY}})
    call_ignoring_errors(caller, f"no/{CANARY}", {})
    call_ignoring_errors(caller, "resources/read", {"uri": f"notes://{CANARY}"})
    recorder.flush()
    rows = [
        *CallLogEntry.objects.values(),
        *CallRollup.objects.values(),
        *UsageRollup.objects.values(),
    ]
    assert len(rows) > 8
    assert CANARY not in repr(rows)


def test_only_the_allowed_arguments_of_a_tool_are_kept(
    caller: BlockingClient, recorder: CallRecorder, change: Callable[..., None]
) -> None:
    change(TOOLS={"fail": {"ARGUMENTS": ["country", "absent"]}})
    recorder.queue.forget_settings()
    caller.call("fail", country="Chad", secret=CANARY)
    caller.call("fail", country="x" * 5000)
    recorder.flush()
    first, second = CallLogEntry.objects.order_by("pk")
    assert json.loads(first.arguments) == {"country": "Chad"}
    assert json.loads(second.arguments) == {"country": "(5002 characters)"}


def test_names_that_the_server_does_not_know_share_one_count(caller: BlockingClient, recorder: CallRecorder) -> None:
    for number in range(20):
        call_ignoring_errors(caller, "tools/call", {"name": f"made_up_{number}"})
        call_ignoring_errors(caller, f"made/up{number}", {})
        call_ignoring_errors(caller, "resources/read", {"uri": f"notes://{number}"})
    recorder.flush()
    names: Counter[tuple[str, str]] = Counter()
    for row in CallRollup.objects.all():
        names[row.method, row.name] += row.count
    assert names == {
        ("tools/call", UNKNOWN_NAME): 20,
        (UNKNOWN_NAME, ""): 20,
        ("resources/read", "notes://{name}"): 20,
    }


def test_above_the_limit_of_names_calls_are_counted_together(
    caller: BlockingClient, recorder: CallRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_recorder_time(monkeypatch, lambda: 1_800_000_000.0)  # The limit is one of each minute.
    monkeypatch.setattr(counts, "MAX_KEYS", 1)
    caller.call("greet")
    caller.call("fail")
    recorder.flush()
    assert {row.name for row in CallRollup.objects.all()} == {"greet", OTHER_NAMES}


def test_a_full_queue_drops_the_oldest_calls_and_counts_them(
    caller: BlockingClient, recorder: CallRecorder, change: Callable[..., None]
) -> None:
    change(BUFFER=3)
    recorder.queue.forget_settings()
    caller.request("tools/list")
    for _ in range(4):
        caller.call("greet")
    recorder.flush()
    assert recorder.dropped == 2
    assert (count_calls(name="greet"), count_calls(method="tools/list")) == (3, 0)


def test_rows_of_calls_are_bounded_each_minute(
    caller: BlockingClient, recorder: CallRecorder, change: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_recorder_time(monkeypatch, lambda: 1_800_000_000.0)
    change(CALLS_PER_MINUTE=2)
    recorder.queue.forget_settings()
    for _ in range(5):
        caller.call("fail")
    recorder.flush()
    assert CallLogEntry.objects.count() == 2
    assert recorder.dropped == 3
    assert count_calls(name="fail") == 5


def test_a_database_outage_fails_no_call_and_loses_no_count(
    caller: BlockingClient, recorder: CallRecorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: Any) -> None:
        raise DatabaseError("away")

    with monkeypatch.context() as patch:
        patch.setattr(RowWriter, "_insert_records", refuse)
        for _ in range(3):
            caller.call("fail")
            assert not recorder.flush()
    assert [record.message for record in caplog.records if record.name == "mcp_django.records"] == [
        "Records of calls could not be written; they are kept and written later"
    ]

    caller.call("greet")
    assert recorder.flush()
    assert CallLogEntry.objects.count() == 3
    assert (count_calls(name="fail"), count_calls(name="greet")) == (3, 1)


def test_a_call_after_its_minute_was_closed_counts_in_the_next_one(
    caller: BlockingClient, recorder: CallRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = 1_800_000_000.0
    now = [start]
    set_recorder_time(monkeypatch, lambda: now[0])
    caller.call("greet")
    recorder.flush()
    now[0] = start + 90
    recorder.flush()
    now[0] = start
    caller.call("greet")
    recorder.flush()
    rows = CallRollup.objects.order_by("start")
    assert [(row.start.timestamp() - start, row.count) for row in rows] == [(0, 1), (60, 1)]


def test_callers_are_forgotten_after_their_hour_and_no_call_is_lost(
    server: Server, recorder: CallRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_800_000_000.0
    set_recorder_time(monkeypatch, lambda: now)
    monkeypatch.setattr(record_queue, "MAX_GROUPS", 3)
    callers = [BlockingClient(server, make_caller(str(number))) for number in range(5)]
    for hours in range(3):
        for step, number in enumerate((0, 1, 1, 2, 3, 4)):
            callers[number].call("greet")
            if step % 2:
                recorder.flush()
        now += 3600
        assert count_calls(name="greet") == 6 * (hours + 1)
    assert sum(UsageRollup.objects.filter(principal=make_caller("1").key).values_list("count", flat=True)) == 6
    for _ in range(2):
        now += 3600
        recorder.flush()
    assert not recorder.queue._groups
    assert not recorder.queue._numbers


def test_a_call_that_comes_after_its_group_is_dropped_alone(caller: BlockingClient, recorder: CallRecorder) -> None:
    """Its thread slept for so long."""
    caller.call("greet")
    at, _number, seconds, _detail = recorder.queue._entries[0]
    recorder.queue._entries.appendleft((at, -1, seconds, None))
    assert recorder.flush()
    assert (recorder.dropped, count_calls(name="greet")) == (1, 1)


def test_calls_that_wait_give_the_garbage_collector_no_work(caller: BlockingClient, recorder: CallRecorder) -> None:
    caller.call("greet")
    gc.collect()
    assert [gc.is_tracked(entry) for entry in recorder.queue._entries] == [False]


def test_nothing_is_recorded_when_it_is_switched_off(
    caller: BlockingClient, recorder: CallRecorder, change: Callable[..., None]
) -> None:
    change(ROLLUPS=False, CALLS="none")
    recorder.queue.forget_settings()
    caller.call("fail")
    recorder.flush()
    assert not CallRollup.objects.exists()
    assert not CallLogEntry.objects.exists()


def test_a_failure_of_the_recorder_harms_no_call(
    caller: BlockingClient, recorder: CallRecorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(record_queue, "perf_counter", lambda: 1 / 0)
    assert (caller.call("greet"))["content"][0]["text"] == "hello you"
    assert "could not be recorded" in caplog.text


def test_after_an_unexpected_error_the_thread_has_another_connection(
    recorder: CallRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one before may be in the middle of a transaction, with locks."""
    used: list[Any] = []

    def fail() -> bool:
        used.append(connections[get_alias()])
        if len(used) > 1:
            raise SystemExit
        used[0].ensure_connection()
        recorder._thread._wake.set()
        raise RuntimeError("in the middle of a transaction")

    monkeypatch.setattr(recorder, "flush", fail)
    recorder._thread._wake.set()

    def run() -> None:
        with pytest.raises(SystemExit):
            recorder._thread._run()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(WAIT_SECONDS)
    assert used[1] is not used[0]
    assert used[0].connection is None
