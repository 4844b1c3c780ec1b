"""Admin of recorded calls."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from mcp_django.contrib.control_room.models import CallLogEntry
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
