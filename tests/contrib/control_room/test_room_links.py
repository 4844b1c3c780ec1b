"""Links and overviews of the control room: pages that the user may open, and facts that need attention."""

from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from mcp_django.contrib.control_room.models import Alert
from mcp_django.contrib.control_room.pages.alert_rows import describe_alert
from mcp_django.contrib.control_room.pages.callers import load_callers, load_stream_counts
from mcp_django.contrib.control_room.pages.figures import CallTarget
from mcp_django.contrib.control_room.templatetags.room_figures import ago
from mcp_django.contrib.tasks.models import TaskWorker
from mcp_django.models import ClientHealth, PersonalAccessToken, ResourceSubscription, Session, ToolPolicy
from mcp_django.runtime.events.event_log import EventDraft, EventLog
from mcp_django.runtime.sessions import activity
from tests.contrib.control_room.pages.test_room import read_tiles
from tests.contrib.control_room.pages.test_running_calls import make_process
from tests.contrib.control_room.test_record_admin import log_in
from tests.contrib.control_room.test_rows import make_record, make_rollup, make_usage

pytestmark = pytest.mark.django_db
ROOM = "admin:mcp_control_room_controlroom_changelist"
TARGET = "admin:mcp_control_room_controlroom_target"


def open_page(*permissions: str, page_name: str = ROOM, **query: Any) -> str:
    """Return a page as staff with some permissions and no others sees it."""
    User.objects.filter(username="staff").delete()
    page = log_in("view_controlroom", *permissions).get(reverse(page_name), query)
    assert page.status_code == 200
    return str(page.content.decode().replace("\N{NO-BREAK SPACE}", " "))


def make_session(owner: str, **values: Any) -> Session:
    now = timezone.now()
    row = Session(owner=owner, server="default", revision="2025-11-25", **values)
    row.client_info, row.expires, row.last_seen = {"name": "claude", "version": "2"}, now + timedelta(days=1), now
    row.generate_key()
    row.save()
    return row


def test_sessions_are_ended_and_tokens_revoked_on_their_own_pages_with_their_own_permission() -> None:
    ada = User.objects.create_user("ada")
    token = PersonalAccessToken.issue(user=ada, name="CI job", scopes=[], expires=None)[0]
    owner = f"django|{ada.pk}|token:{token.pk}"
    make_usage(timezone.now(), principal=owner, user_key=str(ada.pk), client=f"token:{token.pk}")
    make_usage(timezone.now(), principal="django|9|")
    session = make_session(owner)
    for _ in range(6):
        make_session(owner)
    end = reverse("admin:mcp_django_session_end", args=[session.pk])
    revoke = reverse("admin:mcp_django_personalaccesstoken_revoke", args=[token.pk])

    page = open_page()
    assert "claude 2 (2025-11-25)" in page
    assert "CI job" in page
    assert "2 more" in page
    assert "without session" in page
    assert read_tiles(page)["callers"] == ["2", "callers", "1 with a session", "1 without"]
    assert "/end/" not in page
    assert revoke not in page

    Session.objects.filter(owner=owner).exclude(pk=session.pk).delete()
    page = open_page("change_session", "change_personalaccesstoken")
    assert end in page
    assert revoke in page
    token.revoke()
    [row] = [row for row in load_callers(timezone.now()).rows if row.principal == owner]
    assert row.credential is not None
    assert row.credential.token is not None
    assert row.credential.token.revoked_at is not None
    assert "CI job (revoked)" in open_page("change_personalaccesstoken")


def test_streams_and_subscriptions_of_sessions_are_counted_by_server() -> None:
    first, second = make_session("a"), make_session("b")
    ResourceSubscription.objects.create(session=first, uri="notes://a")
    report = {"by": "one", "sessions": {str(first.pk): [1, 2], str(second.pk): [0, 1]}}
    EventLog().append([EventDraft(activity.ACTIVITY_TOPIC, activity.ACTIVITY_KIND, report)])
    counts = load_stream_counts()
    assert (counts.streams, counts.subscriptions) == (3, 1)
    counts = load_stream_counts("other")
    assert (counts.streams, counts.subscriptions) == (0, 0)


def test_remote_servers_and_tasks_are_shown_to_those_who_may_see_them(settings: Any) -> None:
    settings.MCP = settings.MCP | {"CLIENTS": {"wiki": {"URL": "https://wiki.example/mcp"}}}
    now = timezone.now()
    values = {"error": "ConnectError", "error_text": "No route", "error_at": now}
    ClientHealth.objects.create(process="a", alias="wiki", updated=now, **values)
    TaskWorker.objects.create(host="w", pid=1, concurrency=2)
    page = open_page()
    assert "wiki" not in page
    assert "Worker processes alive" not in page

    page = open_page("view_clienthealth", "change_clienthealth", "view_task")
    assert "No route" in page
    assert 'class="room-state bad">fails<' in page
    assert f'action="{reverse("admin:mcp_django_clienthealth_check", args=["wiki"])}"' in page
    assert "<dt>Worker processes alive</dt><dd>1</dd>" in page


@pytest.mark.parametrize(("seconds", "text"), [(0, "just now"), (59, "just now"), (61, "1\xa0minute ago")])
def test_times_within_a_minute_are_not_counted(seconds: float, text: str) -> None:
    assert ago(timezone.now() - timedelta(seconds=seconds)) == text


def test_silent_processes_and_waiting_calls_are_marked() -> None:
    make_process("web-1", busy_threads=16, queued=3)
    make_process("web-2", age=60)
    page = open_page()
    assert read_tiles(page)["processes"][2:] == [
        "16 of 16 threads busy",
        "1 is silent",
        "3 calls wait for a thread",
    ]
    assert 'class="room-state warning">busy<' in page
    assert 'class="room-state bad">silent<' in page


def test_processes_of_a_deployment_show_their_versions_and_that_they_are_mixed() -> None:
    versions = {"package_version": "0.9.0", "python_version": "3.12.4", "django_version": "5.2.1"}
    make_process("web-1", **versions)
    make_process("web-2", **versions)
    make_process("old", age=60)  # silent, and so no part of the mix
    page = open_page()
    assert page.count("mcp-django 0.9.0, Python 3.12.4, Django 5.2.1") == 2
    assert "mixed-versions" not in page
    make_process("web-3", **{**versions, "python_version": "3.13.0"})
    assert "mixed-versions" in open_page()


def test_links_of_tiles_and_alerts_lead_to_the_recorded_calls() -> None:
    now = timezone.now()
    make_rollup(now.replace(second=0, microsecond=0), count=3, outcome="bug")
    make_record(now, reference="5d1f09c2")
    make_record(now, outcome="ok", reference="f1ne")
    values = {"value": 3, "limit": 0, "checked": now, "since": now}
    Alert._default_manager.create(rule="bugs", subject="default: greet", is_active=True, **values)
    browser = log_in("view_controlroom", "view_calllogentry")
    page = browser.get(reverse(ROOM)).content.decode()
    for mark in ('data-tile="failed"', "3 bugs"):
        url = next(part for part in page.partition(mark)[2].split('href="')[1:] if "outcome__in" in part)
        calls = browser.get(unescape(url.partition('"')[0])).content.decode()
        assert "5d1f09c2" in calls
        assert "f1ne" not in calls
    assert reverse("admin:mcp_control_room_calllogentry_changelist") not in open_page()


@pytest.mark.parametrize(
    ("rule", "value", "text"),
    [
        ("errors", 0.12, "12 % of the calls failed (limit: 5.0 %)"),
        ("bugs", 1, "1 bug"),
        ("slow", 20, "95 % of the calls took up to 20 s (limit: 50 ms)"),
        ("refusals", 2, "2 calls were refused by a limit"),
        ("later", 2, "later: 2 > 0.05"),
    ],
)
def test_an_alert_is_described_in_words(rule: str, value: float, text: str) -> None:
    alert = Alert(rule=rule, value=value, limit=0.05, is_active=True)
    assert describe_alert(alert).replace("\N{NO-BREAK SPACE}", " ") == text


def test_without_any_call_the_page_explains_how_to_connect(settings: Any) -> None:
    page = unescape(open_page())
    assert "claude mcp add-json" in page
    assert '"url": "http://testserver/mcp' in page
    assert "MCP_TOKEN" not in page

    settings.MCP = settings.MCP | {"AUTH": "token"}
    assert "Bearer ${MCP_TOKEN}" in unescape(open_page())
    make_rollup(timezone.now() - timedelta(days=1))
    page = open_page()
    assert "claude mcp" not in page
    assert "No call in this time" in page


def test_the_page_of_a_tool_has_its_policies_and_a_link_to_try_it(settings: Any) -> None:
    settings.MCP = settings.MCP | {"PLAYGROUND": {"ENABLED": True}}
    policy = ToolPolicy.objects.create(tool="gr*", rate="1/m")
    ToolPolicy.objects.create(tool="greet", server="other", rate="2/m")
    query = CallTarget("default", "tools/call", "greet")._asdict()
    page = open_page("view_toolpolicy", "use_playground", page_name=TARGET, **query)
    assert reverse("admin:mcp_django_toolpolicy_change", args=[policy.pk]) in page
    assert "rate: 1/m" in page
    assert "2/m" not in page
    playground = reverse("admin:mcp_playground_playground_changelist")
    assert f"{playground}?server=default&amp;kind=tools&amp;name=greet" in page
    page = open_page(page_name=TARGET, **query)
    assert "gr*" not in page
    assert 'id="try"' not in page
