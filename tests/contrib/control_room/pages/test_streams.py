"""Streams of clients without a session: their rows, their end from another process, and their place on the page."""

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from mcp_django.contrib.control_room.models import ReportedStream, ServingProcess
from mcp_django.contrib.control_room.pages.streams import load_streams, mark_ended
from mcp_django.contrib.control_room.recording import process_reports, stream_reports
from mcp_django.contrib.control_room.recording.maintenance import remove_user
from mcp_django.contrib.control_room.recording.process_reports import ProcessReporter
from mcp_django.models import PersonalAccessToken
from tests.contrib.control_room.pages.test_room import FIGURES, ROOM, read_rows, read_tiles
from tests.contrib.control_room.pages.test_running_calls import make_process, served
from tests.contrib.control_room.test_record_admin import log_in
from tests.contrib.control_room.test_room_links import open_page
from tests.runtime.test_calls import CallServer
from tests.server.listening import ListenClient, taken

pytestmark = pytest.mark.django_db
END = "admin:mcp_control_room_controlroom_end_stream"


def make_stream(key: str = "k", process: str = "a", **values: Any) -> ReportedStream:
    row = {"server": "default", "principal": "django|1|", "client": "Claude 2", "revision": "2026-07-28"}
    row |= {"lists": "tools,prompts", "started": timezone.now(), "resources": 2, "others": 0}
    return ReportedStream.objects.create(key=key, process=process, **{**row, **values})


def test_an_open_stream_is_written_once_ended_from_elsewhere_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_reports, "REPORT_SECONDS", 0.0)
    monkeypatch.setattr(process_reports, "HEARTBEAT_SECONDS", 0.0)

    async def run() -> None:
        site, client = CallServer(), ListenClient()
        site.lifecycle.add_server(client.server)
        monkeypatch.setattr(process_reports.wiring, "get_services", lambda: served(site.lifecycle))
        report = sync_to_async(ProcessReporter("a").report)
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["note://open"]}
        stream = await client.listen(client={"name": "Claude", "version": "2"}, **wanted)
        await report(0)
        await report(0)
        [row] = (await sync_to_async(load_streams)()).rows
        assert (row.stream.process, row.stream.principal) == ("a", stream.principal.key)
        assert (row.stream.client, row.stream.revision) == ("Claude 2", "2026-07-28")
        assert [str(subject) for subject in row.subjects] == ["list of tools", "1 resource"]
        assert (await ServingProcess.objects.aget()).streams == 1

        assert await sync_to_async(mark_ended)(row.stream.key)
        assert not await sync_to_async(mark_ended)(row.stream.key)
        await report(0)
        while not stream.is_closed:
            await taken(stream)
        await report(0)
        assert not await ReportedStream.objects.aexists()
        assert (await ServingProcess.objects.aget()).streams == 0

    async_to_sync(run)()


def test_the_rows_of_a_process_that_ends_or_falls_silent_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_reports.wiring, "get_services", lambda: served(CallServer().lifecycle))
    reporter = ProcessReporter("a")
    reporter.report(0)
    make_stream("1", "a")
    make_process("old", age=process_reports.FORGET_SECONDS + 1)
    make_stream("2", "old")
    assert [row.stream.key for row in load_streams().rows] == ["1"]
    reporter.remove()
    process_reports.delete_lost_processes()
    assert not ReportedStream.objects.exists()


def test_streams_are_on_the_page_and_in_the_tile() -> None:
    make_process(streams=2)
    ada = User.objects.create_user("ada")
    token = PersonalAccessToken.issue(user=ada, name="CI job", scopes=[], expires=None)[0]
    owner = {"principal": f"django|{ada.pk}|token:{token.pk}", "user_key": str(ada.pk)}
    make_stream("1", started=timezone.now() - timedelta(days=1), **owner)
    make_stream("2", lists="", resources=0, others=1, ended=timezone.now())
    page = open_page()
    rows = read_rows(page, "streams")
    assert [row[0] for row in rows] == ["ada", "django|1|"]
    assert [row[1] for row in rows] == ["Claude 2 (2026-07-28)"] * 2
    assert [row[3:] for row in rows] == [["list of tools, list of prompts, 2 resources", "a"], ["1 other subject", "a"]]
    assert read_tiles(page)["streams"][:4] == ["2", "open streams", "0 with a session", "2 without"]
    assert "end-stream" not in page
    assert reverse("admin:mcp_django_personalaccesstoken_revoke", args=[token.pk]) in open_page(
        "change_personalaccesstoken"
    )
    assert not load_streams("other").rows
    remove_user(str(ada.pk))
    assert ReportedStream.objects.get(key="1").client == ""


def test_ending_a_stream_needs_a_permission_and_a_confirmation_and_leaves_an_entry() -> None:
    make_process()
    stream = make_stream()
    url = f"{reverse(END)}?key={stream.key}"
    assert log_in("view_controlroom").post(url).status_code == 403
    User.objects.all().delete()

    browser = log_in("view_controlroom", "end_stream")
    assert f"key={stream.key}" in browser.get(reverse(FIGURES)).content.decode()
    question = browser.get(url).content.decode()
    assert "django|1|, Claude 2" in question
    stream.refresh_from_db()
    assert stream.ended is None

    assert browser.post(url)["Location"].startswith(reverse(ROOM))
    stream.refresh_from_db()
    assert stream.ended is not None
    assert "ending…" in browser.get(reverse(FIGURES)).content.decode()
    browser.post(url)  # it is being ended already
    entry = LogEntry.objects.get()
    assert (entry.object_repr, entry.change_message) == ("django|1|, Claude 2", "Ended the stream.")
