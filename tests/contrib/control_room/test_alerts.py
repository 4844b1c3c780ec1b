"""Alerts: measurements, one notification for each change, hysteresis, mail, and the command."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any
from unittest.mock import Mock

import django
import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core import mail
from django.core.management import CommandError, call_command
from django.urls import reverse
from django.utils import timezone

from mcp_django import conf
from mcp_django.contrib.control_room import alert_rules
from mcp_django.contrib.control_room.alert_rules import Measurement, RuleDefinition, register_rules
from mcp_django.contrib.control_room.alerts import notification
from mcp_django.contrib.control_room.alerts.evaluation import AlertTimer, check_alerts, check_alerts_in_turn
from mcp_django.contrib.control_room.alerts.measurements import measure
from mcp_django.contrib.control_room.alerts.muting import (
    MUTED_MESSAGE,
    UNMUTED_MESSAGE,
    mute_alerts,
    unmute_alerts,
)
from mcp_django.contrib.control_room.models import Alert, LongCall, ServingProcess
from mcp_django.contrib.control_room.pages.alert_rows import describe_alert
from mcp_django.contrib.control_room.signals import alert_cleared, alert_raised
from mcp_django.contrib.tasks.rows import figures
from mcp_django.models import ClientHealth
from tests.contrib.control_room.test_record_admin import log_in
from tests.contrib.control_room.test_rows import make_rollup

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 5, 3, 10, 20, 30, tzinfo=UTC)
MINUTE = NOW.replace(second=0)
ADMINS: list[Any] = ["ada@example.com"] if django.VERSION >= (6, 0) else [("Ada", "ada@example.com")]


@pytest.fixture
def sent() -> Iterator[list[str]]:
    """Signals of alerts, in order."""
    sent: list[str] = []

    def on_raised(alert: Alert, **kwargs: Any) -> None:
        sent.append(f"raised {alert.rule} {alert.subject}")

    def on_cleared(alert: Alert, **kwargs: Any) -> None:
        sent.append(f"cleared {alert.rule} {alert.subject}")

    alert_raised.connect(on_raised)
    alert_cleared.connect(on_cleared)
    yield sent
    alert_raised.disconnect(on_raised)
    alert_cleared.disconnect(on_cleared)


def change_alerts(settings: Any, **options: Any) -> None:
    settings.MCP = {"AUTH": "none", "ALERTS": options}


def read_values(now: datetime = NOW) -> dict[tuple[str, str], float]:
    return {(each.rule, each.subject): each.value for each in measure(now)}


@pytest.fixture
def own_rules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Rules that a test registers, removed after the test."""
    for name in ("_RULES", "_MEASURES"):
        monkeypatch.setattr(alert_rules, name, dict(getattr(alert_rules, name)))
    conf.clear_cache()
    yield
    conf.clear_cache()


@pytest.mark.usefixtures("own_rules")
def test_another_app_registers_a_rule_with_its_limit(settings: Any, sent: list[str]) -> None:
    change_alerts(settings, LIMITS={"bugs": 1})
    assert check_alerts(NOW) == []

    rule = RuleDefinition(name="stock", label="Missing books", limit=2.0)
    register_rules(lambda now: [Measurement("stock", "Oslo", 3.0), Measurement("stock", "Bergen", 2.0)], rule)
    [alert] = check_alerts(NOW)
    assert (alert.rule, alert.subject, alert.value, alert.limit) == ("stock", "Oslo", 3.0, 2.0)
    assert sent == ["raised stock Oslo"]
    assert str(alert) == "Oslo: Missing books: 3 > 2"
    change_alerts(settings, LIMITS={"stock": None})
    assert ("stock", "Oslo") not in read_values()

    with pytest.raises(ValueError, match="already in use"):
        register_rules(lambda now: (), RuleDefinition(name="stock", label="Other books", limit=1.0))


def test_tasks_without_a_worker_raise_an_alert_of_their_own(
    settings: Any, monkeypatch: pytest.MonkeyPatch, sent: list[str]
) -> None:
    change_alerts(settings, LIMITS={"oldest_task": 60})
    monkeypatch.setattr(figures, "read_figures", lambda: Mock(oldest_waiting_seconds=61.0))
    [alert] = check_alerts(NOW)
    assert sent == ["raised oldest_task "]
    assert describe_alert(alert).startswith("the oldest task has waited for ")


def test_the_values_of_tools_come_from_the_counts_of_the_window() -> None:
    make_rollup(MINUTE, count=70)
    make_rollup(MINUTE, count=20, outcome="tool_error")
    make_rollup(MINUTE - timedelta(minutes=1), count=6, outcome="bug")
    make_rollup(MINUTE, count=4, outcome="error", process="b")
    make_rollup(MINUTE, count=9, outcome="overloaded", name="other")
    make_rollup(MINUTE - timedelta(minutes=10), count=900, outcome="bug")
    values = read_values()
    assert values["errors", "default: greet"] == pytest.approx(0.26)
    assert values["bugs", "default: greet"] == 6
    assert 0 < values["slow", "default: greet"] < 0.01
    assert values["refusals", "default"] == 9
    assert ("errors", "default: other") not in values, "too few calls"


def test_a_failing_remote_counts_its_processes() -> None:
    for process, reached in (("a", None), ("b", None), ("c", NOW)):
        ClientHealth.objects.create(
            process=process, alias="files", error_at=NOW - timedelta(minutes=1), reached=reached, updated=NOW
        )
    assert read_values()["remote", "files"] == 2


def make_process(name: str = "a", **values: Any) -> ServingProcess:
    row = {"started": NOW, "updated": NOW, "running": 0, "busy_threads": 0, "max_threads": 4, "queued": 0, "dropped": 0}
    return ServingProcess.objects.update_or_create(name=name, defaults={**row, **values})[0]


def make_long_call(**values: Any) -> LongCall:
    row = {"process": "a", "server": "default", "method": "tools/call", "name": "greet", "principal": "p"}
    return LongCall.objects.create(key=values.pop("key"), revision="x", **{**row, **values})


def test_the_values_of_processes_come_from_their_reports() -> None:
    make_process("a", queued=3, dropped=2)
    make_process("b", updated=NOW - timedelta(seconds=45))
    make_long_call(key="1", started=NOW - timedelta(seconds=400))
    make_long_call(key="2", started=NOW - timedelta(seconds=5), name="other")
    values = read_values()
    assert values["silent_process", "b"] == 45
    assert values["thread_queue", "a"] == 3
    assert values["dropped", "a"] == 2
    assert values["oldest_call", "default: greet"] == 400
    assert ("oldest_call", "default: other") not in values


def test_a_queue_has_to_last_for_a_minute(settings: Any, sent: list[str]) -> None:
    change_alerts(settings, LIMITS={"silent_process": None})
    make_process(queued=3)
    assert check_alerts(NOW) == []
    make_process(queued=0)
    assert check_alerts(NOW + timedelta(seconds=30)) == []
    make_process(queued=3)
    assert check_alerts(NOW + timedelta(seconds=31)) == []
    make_process(updated=NOW + timedelta(seconds=90), queued=1)
    (alert,) = check_alerts(NOW + timedelta(seconds=91))
    assert (alert.rule, alert.value) == ("thread_queue", 1)


def test_dropped_records_raise_an_alert_when_more_are_dropped(settings: Any, sent: list[str]) -> None:
    change_alerts(settings, LIMITS={"silent_process": None})
    make_process(dropped=5)
    check_alerts(NOW)
    for seconds in (30, 160):
        check_alerts(NOW + timedelta(seconds=seconds))
    assert sent == ["raised dropped a", "cleared dropped a"]
    make_process(dropped=6)
    (alert,) = check_alerts(NOW + timedelta(seconds=190))
    assert alert.value == 1


def test_an_alert_notifies_once_when_raised_and_once_when_cleared(settings: Any, sent: list[str]) -> None:
    settings.ADMINS = ADMINS
    make_rollup(MINUTE, outcome="bug")
    for seconds in (0, 30, 60):
        (alert,) = check_alerts(NOW + timedelta(seconds=seconds))
    assert (alert.rule, alert.subject, alert.value, alert.since) == ("bugs", "default: greet", 1, NOW)
    assert sent == ["raised bugs default: greet"]
    (message,) = mail.outbox
    assert message.to == ["ada@example.com"]
    assert "default: greet" in message.subject

    # The window has passed: calm, but not for long enough.
    calm = NOW + timedelta(minutes=7)
    assert check_alerts(calm) != []
    assert check_alerts(calm + timedelta(seconds=119)) != []
    assert len(sent) == 1
    assert check_alerts(calm + timedelta(seconds=121)) == []
    assert check_alerts(calm + timedelta(seconds=151)) == []
    assert sent[1:] == ["cleared bugs default: greet"]
    assert len(mail.outbox) == 2


def test_a_value_that_comes_back_before_the_calm_time_is_the_same_alert(sent: list[str]) -> None:
    make_rollup(MINUTE, outcome="bug")
    check_alerts(NOW)
    check_alerts(NOW + timedelta(minutes=7))
    make_rollup(MINUTE + timedelta(minutes=8), outcome="bug")
    check_alerts(NOW + timedelta(minutes=8))
    make_rollup(MINUTE + timedelta(minutes=9), outcome="bug")
    (alert,) = check_alerts(NOW + timedelta(minutes=10))
    assert (alert.since, alert.calm_since) == (NOW, None)
    assert sent == ["raised bugs default: greet"]


def test_an_alert_that_comes_back_later_is_a_new_one(sent: list[str]) -> None:
    make_rollup(MINUTE, outcome="bug")
    check_alerts(NOW)
    for minutes in (7, 10):
        check_alerts(NOW + timedelta(minutes=minutes))
    later = NOW + timedelta(hours=1)
    make_rollup(later.replace(second=0), outcome="bug")
    (alert,) = check_alerts(later)
    assert (alert.since, alert.cleared) == (later, None)
    assert [text.split()[0] for text in sent] == ["raised", "cleared", "raised"]


def test_one_process_checks_in_each_interval(sent: list[str]) -> None:
    make_rollup(MINUTE, outcome="bug")
    check_alerts_in_turn(NOW)
    first = Alert.objects.get(rule="bugs").checked
    check_alerts_in_turn(NOW + timedelta(seconds=29))
    assert Alert.objects.get(rule="bugs").checked == first
    check_alerts_in_turn(NOW + timedelta(seconds=31))
    assert Alert.objects.get(rule="bugs").checked > first
    assert len(sent) == 1


def test_a_process_checks_at_intervals(sent: list[str]) -> None:
    timer = AlertTimer()
    timer.check()
    make_rollup(timezone.now().replace(second=0, microsecond=0), outcome="bug")
    Alert.objects.update(checked=NOW)
    timer.check()
    assert sent == []
    AlertTimer().check()
    assert sent == ["raised bugs default: greet"]


def test_without_alerts_nothing_is_checked(settings: Any, sent: list[str]) -> None:
    change_alerts(settings, ENABLED=False)
    make_rollup(timezone.now(), outcome="bug")
    AlertTimer().check()
    assert not Alert.objects.exists()


def test_limits_can_be_changed_and_switched_off(settings: Any) -> None:
    make_rollup(MINUTE, outcome="bug", count=2)
    change_alerts(settings, LIMITS={"bugs": 2})
    assert check_alerts(NOW) == []
    change_alerts(settings, LIMITS={"bugs": None})
    assert "bugs" not in {rule for rule, _subject in read_values()}


def test_mail_goes_to_the_addresses_of_the_setting(settings: Any) -> None:
    settings.ADMINS = ADMINS
    change_alerts(settings, MAIL=["oncall@example.com"])
    make_rollup(MINUTE, outcome="bug")
    check_alerts(NOW)
    assert [message.to for message in mail.outbox] == [["oncall@example.com"]]


def test_a_mail_has_one_clean_line_for_each_value(settings: Any) -> None:
    settings.ADMINS = ADMINS
    make_rollup(MINUTE, outcome="bug", name="to\u202eol\x1b\nBcc: all@example.com")
    check_alerts(NOW)
    [message] = mail.outbox
    assert "tool Bcc: all@example.com" in message.subject
    assert "Subject: default: tool Bcc: all@example.com\n" in message.body
    assert all(line.isprintable() for line in message.body.splitlines())


def test_a_mail_server_that_fails_does_not_stop_the_check(
    settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings.ADMINS = ADMINS
    monkeypatch.setattr(notification, "mail_admins", Mock(side_effect=OSError))
    make_rollup(MINUTE, outcome="bug")
    assert len(check_alerts(NOW)) == 1
    assert "The mail about an alert could not be sent" in caplog.text


@pytest.mark.parametrize(
    "options",
    [
        {"LIMITS": {"error": 0.1}},
        {"LIMITS": {"errors": 5}},
        {"LIMITS": {"bugs": -1}},
        {"LIMITS": {"bugs": "0"}},
        {"LIMITS": {"slow": float("nan")}},
        {"LIMITS": ["bugs"]},
        {"MAIL": "ada@example.com"},
        {"MAIL": ["ada"]},
        {"INTERVAL": 0},
    ],
)
def test_a_wrong_value_is_reported_by_the_checks(settings: Any, options: dict[str, Any]) -> None:
    change_alerts(settings, **options)
    assert any("ALERTS" in str(problem) for problem in conf.get_problems())


def run_health(*args: str) -> str:
    out = StringIO()
    call_command("mcp_health", *args, stdout=out)
    return out.getvalue()


def test_the_command_prints_alerts_and_fails_for_the_named_rules() -> None:
    assert run_health("--fail-on", "any") == "No alert is active.\n"
    make_rollup(timezone.now().replace(second=0, microsecond=0), outcome="bug")
    assert "bugs: default: greet" in run_health()
    assert run_health("--fail-on", "remote", "--fail-on", "errors")
    for rule in ("bugs", "any"):
        with pytest.raises(CommandError, match="default: greet: Bugs: 1 > 0"):
            run_health("--fail-on", rule)
    found = json.loads(run_health("--json"))
    assert [alert["rule"] for alert in found["alerts"]] == ["bugs"]
    assert {"rule": "bugs", "subject": "default: greet", "value": 1} in found["measurements"]


def test_the_admin_lists_alerts_for_those_who_may_see_them(client: Any) -> None:
    make_rollup(MINUTE, outcome="bug")
    check_alerts(NOW)
    staff = User.objects.create_user("staff", is_staff=True)
    client.force_login(staff)
    url = reverse("admin:mcp_control_room_alert_changelist")
    assert client.get(url).status_code == 403
    staff.user_permissions.add(
        Permission.objects.get(codename="view_alert", content_type__app_label="mcp_control_room")
    )
    page = client.get(url, {"state": "active"})
    assert "default: greet" in page.content.decode()
    assert "default: greet" not in client.get(url, {"state": "cleared"}).content.decode()


def raise_alert(settings: Any, now: datetime = NOW) -> Alert:
    settings.ADMINS = ADMINS
    make_rollup(now.replace(second=0), outcome="bug")
    check_alerts(now)
    return Alert._default_manager.get(rule="bugs")


def find_alerts() -> Any:
    return Alert._default_manager.filter(rule="bugs")


def test_a_muted_alert_sends_signals_only_and_its_mute_ends_by_itself(settings: Any, sent: list[str]) -> None:
    raise_alert(settings)
    assert mute_alerts(find_alerts(), NOW) == 1
    mail.outbox.clear()

    check_alerts(NOW + timedelta(minutes=10))  # calm from here on
    check_alerts(NOW + timedelta(minutes=20))
    make_rollup(MINUTE + timedelta(minutes=30), outcome="bug")
    check_alerts(NOW + timedelta(minutes=30))
    assert [text.partition(" ")[0] for text in sent] == ["raised", "cleared", "raised"]
    assert mail.outbox == []

    make_rollup(MINUTE + timedelta(minutes=59), outcome="bug")
    check_alerts(NOW + timedelta(minutes=60))
    check_alerts(NOW + timedelta(minutes=61))
    assert [message.subject.partition(":")[0] for message in mail.outbox] == ["[Django] MCP alert is no longer muted"]
    assert len(sent) == 3


def test_a_mute_that_ends_in_calm_is_forgotten(settings: Any) -> None:
    raise_alert(settings)
    mute_alerts(find_alerts(), NOW)
    mail.outbox.clear()
    for minutes in (10, 20, 61):
        check_alerts(NOW + timedelta(minutes=minutes))
    assert find_alerts().get().muted_until is None
    assert mail.outbox == []
    assert mute_alerts(find_alerts(), NOW) == 0, "only active alerts"


def test_a_muted_alert_fails_no_health_check(settings: Any) -> None:
    raise_alert(settings, timezone.now())
    mute_alerts(find_alerts())
    output = StringIO()
    call_command("mcp_health", "--fail-on", "any", stdout=output)
    assert ", muted until " in output.getvalue()
    output = StringIO()
    call_command("mcp_health", "--json", stdout=output)
    assert json.loads(output.getvalue())["alerts"][0]["muted_until"]
    unmute_alerts(find_alerts())
    with pytest.raises(CommandError):
        call_command("mcp_health", "--fail-on", "bugs", stdout=StringIO())


def test_muting_needs_a_permission_and_leaves_entries(settings: Any) -> None:
    alert = raise_alert(settings, timezone.now())
    room = reverse("admin:mcp_control_room_controlroom_changelist")
    mute = reverse("admin:mcp_control_room_controlroom_mute")
    browser = log_in("view_controlroom", "view_alert")
    assert f"mute-{alert.pk}" not in browser.get(room).content.decode()
    assert browser.post(mute, {"alert": alert.pk}).status_code == 403
    assert browser.get(mute).status_code == 405

    staff = User.objects.get(username="staff")
    staff.user_permissions.add(Permission.objects.get(codename="mute_alert"))
    assert f"mute-{alert.pk}" in browser.get(room).content.decode()
    page = browser.post(mute, {"alert": alert.pk, "act": "mute"}, follow=True).content.decode()
    assert "muted until" in page
    assert 'value="unmute"' in page
    browser.post(mute, {"alert": alert.pk, "act": "unmute"})
    assert not find_alerts().get().is_muted()
    for key in ("0", "x", ""):
        assert "has changed meanwhile" in browser.post(mute, {"alert": key}, follow=True).content.decode()

    changelist = reverse("admin:mcp_control_room_alert_changelist")
    browser.post(changelist, {"action": "mute", "_selected_action": [alert.pk]})
    assert "bugs" in browser.get(changelist, {"state": "muted"}).content.decode().lower()
    browser.post(changelist, {"action": "unmute", "_selected_action": [alert.pk]})
    assert [entry.get_change_message() for entry in LogEntry.objects.order_by("pk")] == [
        MUTED_MESSAGE,
        UNMUTED_MESSAGE,
        MUTED_MESSAGE,
        UNMUTED_MESSAGE,
    ]
