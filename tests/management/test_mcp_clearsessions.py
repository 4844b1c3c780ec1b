from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.test import override_settings
from django.utils import timezone

from mcp_django.management.commands import mcp_clearsessions
from mcp_django.models import Session

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
    row.mint()
    row.save()
    return row


def clear() -> str:
    out = StringIO()
    call_command("mcp_clearsessions", stdout=out)
    return out.getvalue()


def test_ended_and_expired_sessions_are_deleted_and_live_ones_stay() -> None:
    live, ended = session(), session()
    session(seen=4000)
    session(lasts=-1)
    Session.objects.filter(pk=ended.pk).end("client")
    assert clear() == "Deleted 3 sessions.\n"
    assert list(Session.objects.all()) == [live]


def test_there_may_be_nothing_to_do() -> None:
    assert clear() == "Deleted 0 sessions.\n"


@override_settings(MCP={"LIMITS": {"SESSION_IDLE": 10}})
def test_what_is_idle_is_the_project_s_decision() -> None:
    session(seen=11)
    assert clear() == "Deleted 1 session.\n"


def test_more_than_a_slice_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_clearsessions, "SLICE", 2)
    for _ in range(5):
        session(seen=4000)
    assert clear() == "Deleted 5 sessions.\n"
