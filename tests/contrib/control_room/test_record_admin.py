"""Admin of recorded calls."""

import html
import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from mcp_django.admin.csv_response import format_csv_row
from mcp_django.contrib.control_room.export import iter_lines
from mcp_django.contrib.control_room.models import CallLogEntry
from mcp_django.contrib.control_room.recording.timeline import RecordedWait, Timeline
from tests.contrib.control_room.test_rows import make_record

pytestmark = pytest.mark.django_db
LIST = "admin:mcp_control_room_calllogentry_changelist"


@pytest.fixture
def record() -> CallLogEntry:
    ada = User.objects.create(username="ada")
    make_record(timezone.now() - timedelta(hours=1), name="slow", milliseconds=12_000, outcome="ok")
    return make_record(
        timezone.now(), user_key=str(ada.pk), reference="5d1f09c2", arguments='{"country": "Chad"}', client="Claude"
    )


def log_in(*permissions: str, **values: Any) -> Client:
    user = User.objects.create(username="staff", is_staff=True, **values)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    browser = Client()
    browser.force_login(user)
    return browser


def test_the_list_names_the_user_and_finds_a_reference(record: CallLogEntry) -> None:
    browser = log_in("view_calllogentry")
    page = browser.get(reverse(LIST), {"q": "5d1f09c2"}).content.decode()
    assert "ada" in page
    assert "5d1f09c2" in page
    assert "12,000" not in page


def test_the_list_has_one_query_for_all_user_names(record: CallLogEntry, django_assert_max_num_queries: Any) -> None:
    browser = log_in("view_calllogentry")
    for number in range(20):
        make_record(timezone.now(), user_key=str(User.objects.create(username=f"user{number}").pk))
    with django_assert_max_num_queries(20):
        assert "user7" in browser.get(reverse(LIST)).content.decode()


def test_calls_are_filtered_by_duration(record: CallLogEntry) -> None:
    page = log_in("view_calllogentry").get(reverse(LIST), {"longer": "10"}).content.decode()
    assert "slow" in page
    assert "5d1f09c2" not in page


def test_arguments_need_a_permission_of_their_own(record: CallLogEntry) -> None:
    url = reverse("admin:mcp_control_room_calllogentry_change", args=[record.pk])
    assert "Chad" not in log_in("view_calllogentry").get(url).content.decode()
    User.objects.get(username="staff").delete()
    assert "Chad" in log_in("view_calllogentry", "view_call_arguments").get(url).content.decode()


def open_call(record: CallLogEntry, *permissions: str) -> str:
    User.objects.filter(username="staff").delete()
    url = reverse("admin:mcp_control_room_calllogentry_change", args=[record.pk])
    return log_in("view_calllogentry", *permissions).get(url).content.decode()


def test_the_page_of_a_call_has_its_phases_as_a_table_with_bars(record: CallLogEntry) -> None:
    waits = [
        RecordedWait("thread", 100.0, 300.0),
        RecordedWait("server:wiki", 300.0, 600.0),
        RecordedWait("elicitation/create", 500.0, 800.0, "sure"),
    ]
    timeline = Timeline(tuple(waits), hidden=2)
    make = {"milliseconds": 1000.0, "waited_milliseconds": 700.0, "timeline": timeline.encode()}
    page = open_call(make_record(timezone.now(), **make))
    rows = re.findall(
        r'<td class="number">(\d\S*)\s.*?<th scope="row">(.*?)</th>.*? x="(.*?)".*? width="(.*?)"', page, re.S
    )
    assert rows == [
        ("0", "Received", "0.0", "6.0"),
        ("0", "Ran its own code", "0.0", "100.0"),
        ("100", "Waited for: a free thread", "100.0", "200.0"),
        ("300", "Waited for: the server wiki", "300.0", "300.0"),
        ("500", "Asked for: an answer of the user (sure)", "500.0", "300.0"),
        ("1.0", "Ended", "994.0", "6.0"),
    ]
    assert "2 later waits are not shown." in page
    assert "700.0 ms" in page
    assert "style=" not in page.partition('id="phases"')[2].partition("</table>")[0]
    page = open_call(record)
    assert "The waits of this call were not recorded." in page
    assert "Reference:" in page
    assert "Trace id:" not in page, "empty"


def test_the_page_of_a_round_shows_and_links_the_others(record: CallLogEntry) -> None:
    now = timezone.now()
    asked = Timeline((RecordedWait("elicitation/create", 5.0, 5.0, "", True),)).encode()
    values = {"conversation": "c" * 32, "timeline": asked, "milliseconds": 1000.0}
    first = make_record(now - timedelta(seconds=60), outcome="input_required", round=1, **values)
    last = make_record(now, outcome="bug", round=3, conversation="c" * 32, milliseconds=1000.0)
    page = open_call(last).partition('id="rounds"')[2]
    link = reverse("admin:mcp_control_room_calllogentry_change", args=[first.pk])
    assert f'href="{link}"' in page
    assert page.index(link) < page.index('aria-current="true"')
    assert "an answer of the user" in page
    assert "59\N{NO-BREAK SPACE}s" in page
    assert "Some rounds have no row" in page
    assert 'id="rounds"' not in open_call(record)


def test_the_links_of_a_call_are_those_that_the_user_may_follow(record: CallLogEntry, settings: Any) -> None:
    settings.MCP = {
        "AUTH": "none",
        "PLAYGROUND": {"ENABLED": True},
        "RECORD": {"TRACE_URL": "https://traces.example/t/{trace_id}?x=1"},
    }
    CallLogEntry.objects.update(trace_id="0af7", actor_key=str(User.objects.create(username="operator").pk))
    page = open_call(record)
    assert 'href="https://traces.example/t/0af7?x=1"' in page
    assert "operator" in page
    assert f"?user_key={record.user_key}" in page
    assert "playground" not in page.partition('class="object-tools"')[2]

    rights = ["view_controlroom", "use_playground", "use_playground_as", "view_call_arguments"]
    links = html.unescape(open_call(record, *rights)).partition('class="object-tools"')[2]
    assert "?server=default&method=tools%2Fcall&name=greet" in links
    query = f"?server=default&kind=tools&name=greet&as=ada&call={record.pk}"
    assert query in links
    assert not any("Chad" in url for url in re.findall(r'href="([^"]*)"', links))
    assert "&call=" not in open_call(record, *rights[:3])


def test_the_list_names_both_people_of_a_call_from_the_playground(record: CallLogEntry) -> None:
    CallLogEntry.objects.filter(pk=record.pk).update(actor_key=str(User.objects.create(username="operator").pk))
    assert "ada, by operator" in log_in("view_calllogentry").get(reverse(LIST)).content.decode()


def test_an_export_needs_a_permission_and_is_logged(record: CallLogEntry) -> None:
    data = {"action": "export_csv", "_selected_action": [record.pk]}
    browser = log_in("view_calllogentry")
    assert not hasattr(browser.post(reverse(LIST), data), "streaming_content")
    assert not LogEntry.objects.exists()

    User.objects.get(username="staff").delete()
    browser = log_in("view_calllogentry", "export_calllogentry")
    response: Any = browser.post(reverse(LIST), data)
    lines = b"".join(response.streaming_content).decode().splitlines()
    assert len(lines) == 2
    assert "Chad" not in lines[1]
    assert LogEntry.objects.get().change_message == "Exported as csv."


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
@pytest.mark.parametrize("before", ["", " ", "\u3000", ";", " ; ", ","])
def test_no_spreadsheet_runs_a_value_of_an_export(start: str, before: str) -> None:
    line = format_csv_row([f"{before}{start}1+1", None, 5, "x;=1+1", 'a"b'])
    assert line.startswith("\"'")
    assert line.endswith(',"","5","x;=1+1","a""b"\r\n')


def test_an_export_escapes_invisible_characters_and_keeps_their_meaning(record: CallLogEntry) -> None:
    hostile = "Ch\u202ead\u200b\x1b[31m\r\n\ud800\u2800"
    escaped = r"Ch\u202ead\u200b\x1b[31m\r\n\ud800\u2800"
    assert format_csv_row([hostile, [hostile]]) == f'"{escaped}","[\'{escaped}\']"\r\n'
    record.client = hostile
    [line] = iter_lines([record], "jsonl", with_arguments=False)
    assert json.loads(line)["client"] == hostile
    assert line.rstrip("\n").isprintable()


def test_ordinary_values_of_an_export_are_unchanged() -> None:
    assert format_csv_row(["greet", "2026-11-28", -1.5, "a = b"]) == '"greet","2026-11-28","-1.5","a = b"\r\n'


def test_the_page_of_a_call_shows_no_invisible_characters(record: CallLogEntry) -> None:
    CallLogEntry.objects.filter(pk=record.pk).update(arguments='{"country": "Ch\u202ead\u200b\x1b[31m"}')
    url = reverse("admin:mcp_control_room_calllogentry_change", args=[record.pk])
    page = html.unescape(log_in("view_calllogentry", "view_call_arguments").get(url).content.decode())
    assert '{"country": "Chad[31m"}' in page
    assert not set("\u202e\u200b\x1b") & set(page)
