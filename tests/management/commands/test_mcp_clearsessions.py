from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.test import override_settings
from django.utils import timezone

from mcp_django.management.commands import mcp_clearsessions
from mcp_django.models import OnceResult, Session, SpentState, StreamEvent
from mcp_django.runtime.events.event_log import EventDraft, EventLog

pytestmark = pytest.mark.django_db


def session(*, seen: float = 0, lasts: float = 1e6) -> Session:
    now = timezone.now()
    row = Session(
        owner="o",
        server="default",
        revision="r",
        last_seen=now - timedelta(seconds=seen),
        expires=now + timedelta(seconds=lasts),
    )
    row.generate_key()
    row.save()
    return row


def clear() -> str:
    out = StringIO()
    call_command("mcp_clearsessions", stdout=out)
    return out.getvalue()


def test_ended_and_expired_sessions_are_deleted_and_live_ones_kept() -> None:
    assert clear() == "Deleted 0 sessions, 0 events and 0 expired rows.\n"

    live, ended = session(), session()
    session(seen=4000)
    session(lasts=-1)
    Session.objects.filter(pk=ended.pk).end("client")
    assert clear() == "Deleted 3 sessions, 0 events and 0 expired rows.\n"
    assert list(Session.objects.all()) == [live]


@override_settings(MCP={"LIMITS": {"SESSION_IDLE": 10}})
def test_the_setting_decides_when_a_session_is_idle() -> None:
    session(seen=11)
    assert clear() == "Deleted 1 session, 0 events and 0 expired rows.\n"


def test_more_rows_than_one_batch_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_clearsessions, "BATCH_SIZE", 2)
    for _ in range(5):
        session(seen=4000)
    assert clear() == "Deleted 5 sessions, 0 events and 0 expired rows.\n"


def test_old_events_and_expired_rows_are_deleted_and_others_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_clearsessions, "BATCH_SIZE", 2)
    StreamEvent.objects.all().delete()  # threads of earlier tests may have committed some
    now = timezone.now()
    for name, moment in (("old", now - timedelta(hours=1)), ("new", now + timedelta(hours=1))):
        for number in range(3):
            OnceResult.objects.create(key_hash=f"{name} {number}", owner="o", expires=moment)
            SpentState.objects.create(digest=f"{name} {number}", expires=moment)
    EventLog().append([EventDraft("topic", "kind")] * 5)
    StreamEvent.objects.filter(seq__lte=EventLog().head() - 2).update(created=now - timedelta(hours=1))
    assert clear() == "Deleted 0 sessions, 3 events and 6 expired rows.\n"
    assert StreamEvent.objects.count() == 2
    left = {row.key_hash[:3] for row in OnceResult.objects.all()} | {row.digest[:3] for row in SpentState.objects.all()}
    assert left == {"new"}
