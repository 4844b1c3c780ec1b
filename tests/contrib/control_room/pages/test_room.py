"""The page of the control room: its figures, its statements and its permission."""

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from mcp_django.contrib.control_room.models import CallRollup, Period
from mcp_django.contrib.control_room.pages.figures import load_figures
from mcp_django.contrib.control_room.pages.line_charts import LineChart, Series
from mcp_django.contrib.control_room.pages.time_spans import SPANS
from mcp_django.contrib.control_room.recording.counts import ProcessCounts
from mcp_django.contrib.control_room.recording.entries import CallGroup
from mcp_django.contrib.control_room.recording.maintenance import merge_rollups
from mcp_django.contrib.control_room.recording.writer import RowWriter
from mcp_django.observability import Outcome
from tests.contrib.control_room.conftest import make_caller
from tests.contrib.control_room.test_record_admin import log_in
from tests.contrib.control_room.test_rows import make_rollup

pytestmark = pytest.mark.django_db
ROOM = "admin:mcp_control_room_controlroom_changelist"
FIGURES = "admin:mcp_control_room_controlroom_figures"
RUNNING = "admin:mcp_control_room_controlroom_running"
ADA, BOB = make_caller("ada"), make_caller("bob")


def write_calls(calls: Iterable[tuple[float, CallGroup, float]], process: str = "a") -> None:
    """Write calls, given by time, group and duration in seconds."""
    counts = ProcessCounts()
    for at, group, seconds in calls:
        counts.add(at, group, [seconds])
    RowWriter(process).write(counts, [])


def build_call(number: int, at: float) -> tuple[float, CallGroup, float]:
    """A call out of 1,000: every 50th fails, every 100th with a bug; the durations are 1 to 1000 ms."""
    outcome = Outcome.OK if number % 50 else Outcome.TOOL_ERROR if number % 100 else Outcome.BUG
    tool = "greet" if number <= 700 else "search"
    caller = ADA if number % 4 else BOB
    group = CallGroup("default", "tools/call", tool, outcome, caller.key, client="cli")
    return at, group, number / 1000


def read_tiles(page: str) -> dict[str, list[str]]:
    """Return value, label and details of each tile."""
    tiles = re.findall(r'<li data-tile="([\w-]+)"[^>]*>(.*?)</li>', page)
    return {name: [text.strip() for text in re.split(r"<[^>]*>", tile) if text.strip()] for name, tile in tiles}


def read_rows(page: str, name: str) -> list[list[str]]:
    table = re.search(rf'<div class="room-scroll"[^>]* id="{name}"><table[^>]*>(.*?)</table>', page, re.DOTALL)
    assert table is not None
    rows = re.findall(r"<tr>(.*?)</tr>", table[1], re.DOTALL)[1:]
    return [[re.sub(r"<[^>]*>", "", cell).strip() for cell in re.split(r"</t[hd]>", row)[:-1]] for row in rows]


def test_known_calls_equal_tiles_charts_tools_and_callers() -> None:
    now = timezone.now().timestamp()
    write_calls(build_call(number, now) for number in range(1, 501))
    write_calls((build_call(number, now - 60) for number in range(501, 1001)), "b")
    page = log_in("view_controlroom").get(reverse(ROOM)).content.decode().replace("\N{NO-BREAK SPACE}", " ")

    tiles = read_tiles(page)
    assert [tiles["failed"], tiles["callers"], tiles["processes"]] == [
        ["2.0 %", "failed", "20 calls", "10 bugs"],
        ["2", "callers", "0 with a session", "2 without"],
        ["0", "processes"],
    ]
    assert tiles["calls"][:2] == ["17", "calls a minute"]
    assert tiles["calls"][2].startswith("1,000 calls since ")
    durations = [float(text.split()[-2]) for text in (tiles["durations"][0], tiles["durations"][2])]
    assert 362 < durations[0] <= 512  # the bounds of the bucket of 500 ms
    assert 724 < durations[1] <= 1024
    assert [row[:4] for row in read_rows(page, "tools")] == [
        ["greet", "700", "14 (2.0 %)", "7"],
        ["search", "300", "6 (2.0 %)", "3"],
    ]
    assert [row[3:5] for row in read_rows(page, "callers")] == [["750", "10 (1.3 %)"], ["250", "10 (4.0 %)"]]
    table = re.findall(r'<tr><th scope="row">[\d:]+</th>(.*?)</tr>', page)[:2]
    assert [re.findall(r">([\d,]+)<", row) for row in table] == [["490", "5", "5"], ["490", "5", "5"]]


def test_hours_that_are_not_summed_yet_come_from_their_minutes() -> None:
    now = timezone.now().timestamp()
    for hours in (0, 1, 5):
        write_calls([build_call(1, now - 3600 * hours)], f"process{hours}")
    assert load_figures(SPANS["week"]).total.count == 3  # without any sum
    hour = timezone.now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=20)
    make_rollup(hour, count=7, period=Period.HOUR, process="")
    merge_rollups()
    CallRollup.objects.filter(period=Period.MINUTE, start__lt=timezone.now() - timedelta(hours=2)).delete()
    for filters in ({}, {"server": "default"}, {"server": "default", "method": "tools/call", "name": "greet"}):
        figures = load_figures(SPANS["week"], **filters)
        assert [point.count for point in figures.points.values() if point.count] == [7, 1, 1, 1]
        assert [(target.name, row.count) for target, row in figures.targets.items()] == [("greet", 10)]
        assert sum(figures.total.histogram) == sum(figures.list_targets(tools=True)[0][1].histogram) == 10
    assert not load_figures(SPANS["week"], server="other").total.count


def test_whole_days_of_a_week_come_from_their_sums() -> None:
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    for hours in range(1, 24 * 8):
        make_rollup(hour - timedelta(hours=hours), period=Period.HOUR, process="")
    merge_rollups()
    days = CallRollup.objects.filter(period=Period.DAY)
    for lost_days in (0, 2):
        days.filter(pk__in=days.order_by("start")[2 : 2 + lost_days].values("pk")).delete()
        figures = load_figures(SPANS["week"])
        assert [point.count for point in figures.points.values()] == [1] * 167 + [0]  # the current hour has no sum
        assert [row.count for row in figures.targets.values()] == [167]

    summed = days.order_by("start").last()
    assert summed is not None
    CallRollup.objects.filter(
        period=Period.HOUR, start__gte=summed.start, start__lt=summed.start + timedelta(days=1)
    ).delete()
    assert [row.count for row in load_figures(SPANS["week"]).targets.values()] == [167]


def test_the_page_reads_a_bounded_number_of_statements(django_assert_max_num_queries: Any) -> None:
    now = timezone.now().timestamp()
    users = [User.objects.create(username=f"user{number}") for number in range(20)]
    write_calls(
        (now, CallGroup("default", "tools/call", f"tool{number}", Outcome.OK, str(number), str(user.pk)), 0.1)
        for number, user in enumerate(users)
    )
    browser = Client()
    browser.force_login(User.objects.create_superuser("boss"))  # sees all parts
    for url, statements in ((FIGURES, 14), (RUNNING, 5), (ROOM, 16)):
        with django_assert_max_num_queries(statements):
            page = browser.get(reverse(url), {"span": "week"}).content.decode()
        assert ("user19" in page) == ("tool19" in page) == (url != RUNNING)
    assert re.match(r"20 calls since \w{3} \d\d:\d\d$", read_tiles(page)["calls"][2])  # a week ago is another day


def test_the_pages_need_their_permission() -> None:
    browser = log_in("view_calllogentry")
    assert browser.get(reverse(ROOM)).status_code == 403
    assert browser.get(reverse(FIGURES)).status_code == 403
    assert Client().get(reverse(ROOM)).status_code == 302


def test_made_up_names_and_values_of_the_address_change_nothing() -> None:
    page = log_in("view_controlroom").get(reverse(ROOM), {"span": "<year>", "server": "<none>"}).content.decode()
    assert "&lt;year" not in page
    assert "&lt;none" not in page
    assert 'data-seconds="5"' in page


def test_a_chart_has_round_values_gaps_and_a_text_for_each_point() -> None:
    chart = LineChart("Calls", ["10:00", "10:01", "10:02"], [Series("first", "OK", [3, None, 7])])
    assert [line.label for line in chart.grid] == ["0", "2", "4", "6", "8"]
    assert chart.paths[0][1].count("M") == 2
    assert [dot.series.name for dot in chart.dots] == ["first", "first"]  # lines cannot show values between gaps
    assert LineChart("Calls", ["10:00", "10:01"], [Series("first", "OK", [3, 7])]).dots == []
    assert chart.points[1].text == "10:01\nOK: -"
    assert chart.rows == [("10:02", ["7"]), ("10:00", ["3"])]
    assert [line.label for line in LineChart("Calls", [], [Series("first", "OK", [])]).grid] == ["0", "1"]
