"""Running calls: their rows, their cancellation from another process, and processes that fall silent."""

import platform
import re
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import django
import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.urls import reverse
from django.utils import timezone

from mcp_django.conf.project import read_version
from mcp_django.contrib.control_room.models import Alert, LongCall, ServingProcess
from mcp_django.contrib.control_room.options import RecordSettings
from mcp_django.contrib.control_room.pages import running_calls
from mcp_django.contrib.control_room.pages.running_calls import load_running_calls, mark_cancelled
from mcp_django.contrib.control_room.recording import process_reports
from mcp_django.contrib.control_room.recording.process_reports import CANCELLED_MESSAGE, ProcessReporter
from mcp_django.runtime.shutdown import Lifecycle
from mcp_django.server.ports import Overloaded
from mcp_django.wiring.process import get_services
from tests.contrib.control_room.test_record_admin import log_in
from tests.runtime.test_calls import CallServer

pytestmark = pytest.mark.django_db
CANCEL = "admin:mcp_control_room_controlroom_cancel"
ROOM = "admin:mcp_control_room_controlroom_changelist"


def served(lifecycle: Lifecycle) -> SimpleNamespace:
    """The services of this process, with another registry of calls."""
    return SimpleNamespace(lifecycle=lifecycle, executor=get_services().executor)


def make_process(name: str = "a", *, age: float = 0, **values: Any) -> ServingProcess:
    now = timezone.now()
    state = {"running": 1, "busy_threads": 0, "max_threads": 16, "queued": 0, "dropped": 0}
    return ServingProcess.objects.create(
        name=name, started=now, updated=now - timedelta(seconds=age), **{**state, **values}
    )


def make_long_call(key: str = "k", process: str = "a", **values: Any) -> LongCall:
    row = {"server": "default", "method": "tools/call", "name": "survey", "principal": "django|1|", "revision": "r"}
    return LongCall.objects.create(key=key, process=process, started=timezone.now(), **{**row, **values})


def test_the_page_shows_calls_of_living_processes_and_names_silent_ones() -> None:
    make_process("alive", running=7)
    make_process("killed", age=process_reports.SILENT_SECONDS + 1)
    make_long_call("1", "alive", waits_for="elicitation/create", progress=3, progress_total=4)
    make_long_call("2", "killed", name="lost")
    values = {"value": 3, "limit": 0, "checked": timezone.now(), "since": timezone.now()}
    Alert._default_manager.create(rule="bugs", subject="default: survey", is_active=True, **values)
    Alert._default_manager.create(rule="bugs", subject="default: calm", **values)
    page = log_in("view_controlroom").get(reverse(ROOM)).content.decode()
    assert "survey" in page
    assert "an answer of the user" in page
    assert 'value="75.0"' in page
    assert '<span class="room-count">(1)</span>' in page
    assert "6 more calls are younger than a second." in page
    assert "lost</th>" not in page
    assert "3 bugs" in page
    assert "calm" not in page
    assert "The process killed has been silent" in page
    assert "cancel-1" not in page


def test_the_heading_counts_the_calls_of_the_list_and_the_note_counts_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running_calls, "MAX_SHOWN_CALLS", 2)
    make_process(running=5)
    make_long_call("1", server="other")
    browser = log_in("view_controlroom")
    for key, note in (("2", "3 more calls run, and are not listed"), ("3", "3 more calls run"), ("4", "3 more calls")):
        make_long_call(key)
        page = browser.get(reverse(ROOM)).content.decode()
        assert '<span class="room-count">(2)</span>' in page
        assert note in page
    calls = load_running_calls("default")  # processes count the short calls of all servers together
    assert (len(calls.calls), calls.running, calls.unlisted) == (2, 3, 1)
    calls = load_running_calls("other")
    assert (len(calls.calls), calls.running, calls.unlisted) == (1, 1, 0)


def test_a_process_reports_its_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_reports.wiring, "get_services", lambda: served(CallServer().lifecycle))
    ProcessReporter("a").report(0)
    process = ServingProcess.objects.get()
    assert process.versions == (read_version(), platform.python_version(), django.get_version())


def test_cancelling_needs_a_permission_and_leaves_an_entry() -> None:
    make_process()
    call = make_long_call()
    browser = log_in("view_controlroom")
    staff = User.objects.get(username="staff")
    assert browser.post(reverse(CANCEL), {"key": call.key}).status_code == 403
    assert browser.get(reverse(CANCEL)).status_code == 405

    staff.user_permissions.add(Permission.objects.get(codename="cancel_call"))
    assert "cancel-k" in browser.get(reverse(ROOM)).content.decode()
    for _ in range(2):  # the second time, it is cancelled already
        assert browser.post(reverse(CANCEL), {"key": call.key}).status_code == 302
    call.refresh_from_db()
    assert call.cancelled is not None
    entry = LogEntry.objects.get()
    assert (entry.user, entry.object_repr) == (staff, "tools/call survey (django|1|)")


def test_processes_that_are_silent_for_long_are_forgotten() -> None:
    make_process("old", age=process_reports.FORGET_SECONDS + 1)
    make_process("new", age=process_reports.SILENT_SECONDS + 1)
    make_long_call("1", "old")
    process_reports.delete_lost_processes()
    assert [process.name for process in ServingProcess.objects.all()] == ["new"]
    assert not LongCall.objects.exists()


def test_a_long_call_is_written_cancelled_from_elsewhere_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> Any:
        site = CallServer()
        monkeypatch.setattr(process_reports.wiring, "get_services", lambda: served(site.lifecycle))
        reporter = ProcessReporter("a")
        report = sync_to_async(reporter.report)
        flight = site.build_call("wait", may_stream=False)
        flight.start()
        await site.reached.wait()

        await report(0)
        assert await LongCall.objects.acount() == 0  # a short call is never written
        flight.call.started_at -= 30
        flight.call.record.start_wait("roots/list")
        await report(0)
        await report(0)
        [row] = (await sync_to_async(load_running_calls)()).calls
        assert (row.call.name, str(row.waits_for)) == ("wait", "the roots of the client")
        assert 30_000 <= row.milliseconds < 40_000

        marked = await sync_to_async(mark_cancelled)(row.call.key)
        assert marked is not None
        await report(0)
        result = await flight.wait_for_output(60)
        await report(0)
        assert await LongCall.objects.acount() == 0
        assert (await ServingProcess.objects.aget()).running == 0
        await sync_to_async(reporter.remove)()
        assert not await ServingProcess.objects.aexists()
        return result

    result = async_to_sync(run)()
    assert isinstance(result.error, Overloaded)
    assert str(result.error) == CANCELLED_MESSAGE


def test_an_idle_process_writes_a_heartbeat_only(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    monkeypatch.setattr(process_reports.wiring, "get_services", lambda: served(CallServer().lifecycle))
    reporter = ProcessReporter("a")
    reporter.report(3)
    assert ServingProcess.objects.get().dropped == 3
    with django_assert_num_queries(0):
        reporter.report(4)


def test_a_running_call_is_on_an_open_page_within_five_seconds() -> None:
    page = log_in("view_controlroom").get(reverse(ROOM)).content.decode()
    found = re.search(r'data-source="[^"]*/running/[^"]*" data-seconds="(\d+)"', page)
    assert found is not None
    assert process_reports.MIN_AGE_SECONDS + RecordSettings().flush + int(found[1]) <= 5
