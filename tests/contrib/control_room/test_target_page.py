"""The page of one tool: its figures, histogram, outcomes and recorded calls."""

from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from mcp_django.contrib.control_room.pages.figures import CallTarget
from tests.contrib.control_room.pages.test_room import build_call, read_rows, read_tiles, write_calls
from tests.contrib.control_room.test_record_admin import log_in
from tests.contrib.control_room.test_rows import make_record

pytestmark = pytest.mark.django_db
TARGET = "admin:mcp_control_room_controlroom_target"
SEARCH = CallTarget("default", "tools/call", "search")


@pytest.fixture(autouse=True)
def calls() -> None:
    now = timezone.now().timestamp()
    write_calls(build_call(number, now) for number in range(1, 1001))
    make_record(timezone.now(), name="search", reference="5d1f09c2")
    make_record(timezone.now(), name="greet", reference="0ther")


def open_page(*permissions: str, **query: Any) -> str:
    page = log_in("view_controlroom", *permissions).get(reverse(TARGET), query or SEARCH._asdict())
    assert page.status_code == 200
    return str(page.content.decode())


def test_the_figures_are_those_of_the_tool_alone() -> None:
    page = open_page("view_calllogentry")
    assert read_tiles(page)["calls"][2].startswith("300 calls")
    assert "5d1f09c2" in page
    assert "0ther" not in page
    assert [row[3] for row in read_rows(page, "callers")] == ["225", "75"]
    assert "up to 724" in page
    assert "up to 1.0" in page
    assert "up to 362" not in page


def test_recorded_calls_need_their_permission() -> None:
    assert "5d1f09c2" not in open_page()


def test_the_room_links_to_the_page_and_an_address_without_a_method_is_not_found() -> None:
    browser = log_in("view_controlroom")
    room = browser.get(reverse("admin:mcp_control_room_controlroom_changelist")).content.decode()
    assert f"{reverse(TARGET)}?span=hour&amp;{SEARCH.query.replace('&', '&amp;')}" in room
    assert browser.get(reverse(TARGET)).status_code == 404
