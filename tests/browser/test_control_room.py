"""The control room in a browser, under a strict policy: narrow and wide, light and dark, live."""

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import Page, Request, expect
from pytest_django.fixtures import Settings

from mcp_django.contrib import control_room, playground
from mcp_django.contrib.control_room.models import Alert
from mcp_django.contrib.control_room.recording.timeline import RecordedWait, Timeline
from tests.browser.accessibility import OF_DJANGO, check
from tests.browser.keyboard import Keyboard
from tests.browser.test_strict_policy import boss, page, site_url, strict_server
from tests.contrib.control_room.pages.test_running_calls import make_long_call, make_process
from tests.contrib.control_room.pages.test_streams import make_stream
from tests.contrib.control_room.test_rows import make_record, make_rollup, make_usage
from tests.support.waiting import wait_until

__all__ = ["boss", "page", "site_url", "strict_server"]
OWN = "#content-main"
ROOM = "/admin/mcp_control_room/controlroom/"
PLAYGROUND = "/admin/mcp_playground/playground/"
ACCESS = "/admin/mcp_django/access/"
HIDE = """hidden => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture
def room(page: Page, settings: Settings) -> Page:
    """The browser of an administrator, and calls of the last minutes."""
    for label, app in (("mcp_control_room", control_room), ("mcp_playground", playground)):
        static = Path(app.__file__).with_name("static") / label
        Path(settings.STATIC_ROOT, label).symlink_to(static, target_is_directory=True)
    now = timezone.now().replace(second=0, microsecond=0)
    for past in range(20):
        make_rollup(now - timedelta(minutes=past), count=past + 3, name=f"a_tool_with_a_long_name_{past % 3}")
    make_rollup(now - timedelta(minutes=2), count=2, outcome="bug")
    versions = {"package_version": "0.9.0", "python_version": "3.12.4", "django_version": "5.2.1"}
    make_process("web-1:1", age=-3600, **versions)  # it never falls silent in a slow test
    make_process("web-3:3", age=-3600)
    make_stream(process="web-1:1")
    make_process("web-2:2", age=60)
    make_long_call(process="web-1:1", progress=2, progress_total=3, client="a-client 1.0")
    make_usage(now.replace(minute=0), client="a-client", user_key="1")
    Alert._default_manager.create(rule="bugs", subject="default: b", is_active=True, since=now, checked=now)
    make_record(now, name="a_tool_with_a_long_name_0", reference="5d1f09c2")
    return page


def run_until(page: Page, is_reached: Callable[[], bool]) -> None:
    """Move the clock on until a condition holds, and stop it while the server answers, which takes real time.

    The page gives up requests by the same clock.
    """
    pending: list[Request] = []

    def add(request: Request) -> None:
        pending.append(request)

    def remove(request: Request) -> None:
        if request in pending:
            pending.remove(request)

    def step() -> bool:
        if not pending:
            page.clock.run_for(6000)
        return is_reached()

    handlers = {"request": add, "requestfinished": remove, "requestfailed": remove}
    for event, handler in handlers.items():
        page.on(event, handler)
    try:
        wait_until(step)
    finally:
        for event, handler in handlers.items():
            page.remove_listener(event, handler)


def test_the_control_room_is_usable_and_live(room: Page) -> None:
    room.clock.install()
    room.goto(ROOM)
    room.locator("#chart-1-table summary").click()
    check(room, ignored=OF_DJANGO, own=OWN)
    expect(room.get_by_role("alert").filter(has_text="web-2:2")).to_be_visible()
    room.get_by_role("link", name="a_tool_with_a_long_name_0").click()
    room.get_by_text("5d1f09c2").first.wait_for()
    check(room, ignored=OF_DJANGO, own=OWN)
    room.goto(ROOM)
    room.locator("#streams a[href*=end-stream]").click()
    room.wait_for_url("**/end-stream/**")
    check(room, ignored=OF_DJANGO, own=OWN)
    room.locator("#content-main input[type=submit]").click()
    expect(room.locator("#streams a[href*=end-stream]")).to_have_count(0)
    room.goto(f"{ACCESS}?server=default&users=boss")
    room.locator("#access summary").first.click()
    check(room, ignored=OF_DJANGO, own=OWN)
    for path in ("calllogentry/", "alert/"):
        room.goto(f"/admin/mcp_control_room/{path}")
        check(room, ignored=OF_DJANGO | {"label-title-only"})  # Django's field for searching
    room.goto(ROOM)
    room.locator("#chart-2-table summary").click()
    cancel = room.get_by_role("button", name="survey")
    cancel.focus()

    make_rollup(timezone.now().replace(second=0, microsecond=0), count=1000, process="b")
    run_until(room, lambda: "1.252" in room.locator("[data-tile=calls]").inner_text())
    assert room.locator("#chart-2-table").evaluate("it => it.open")
    expect(cancel).to_be_focused()
    tool = room.get_by_role("link", name="a_tool_with_a_long_name_1")
    tool.focus()
    make_rollup(timezone.now().replace(second=0, microsecond=0), count=1000, process="c")
    run_until(room, lambda: "2.252" in room.locator("[data-tile=calls]").inner_text())
    expect(tool).to_be_focused()

    live = room.locator("[data-live]")
    room.context.set_offline(True)
    run_until(room, lambda: live.get_attribute("class") == "room-live lost")
    room.clock.run_for(20_000)
    expect(live).to_contain_text(re.compile(r"\b([2-9]\d|\d{3}) s"))
    room.context.set_offline(False)
    run_until(room, lambda: live.get_attribute("class") == "room-live")

    requests = []
    room.on("request", lambda request: requests.append(request.url))
    room.evaluate(HIDE, True)
    room.clock.run_for(20_000)
    assert requests == []
    room.evaluate(HIDE, False)
    room.clock.run_for(1000)
    assert requests
    live.get_by_role("button").press("Enter")
    requests.clear()
    room.clock.run_for(20_000)
    assert requests == []


def test_the_playground_is_usable(room: Page, settings: Settings) -> None:
    settings.MCP = settings.MCP | {"PLAYGROUND": {"ENABLED": True}}
    room.goto(PLAYGROUND)
    room.locator(".playground-entries a").first.click()
    check(room, ignored=OF_DJANGO, own=OWN)
    room.locator(".playground-entry form").first.locator("input:visible, select, textarea").first.focus()
    Keyboard(room, OWN).to(room.locator("button[value=show]").inner_text()).press("Enter")
    expect(room.locator("#message")).to_contain_text('"method": "tools/call"')
    room.locator("summary", has_text="curl").click()
    check(room, ignored=OF_DJANGO, own=OWN)


def test_the_page_of_a_call_links_its_rounds(room: Page) -> None:
    now, conversation = timezone.now(), {"conversation": "c" * 32, "milliseconds": 900.0, "waited_milliseconds": 0.0}
    question = Timeline((RecordedWait("thread", 100.0, 400.0), RecordedWait("elicitation/create", 890.0, 890.0)))
    first = make_record(
        now, outcome="input_required", round=1, timeline=question.encode(), client="a-client 1.0", **conversation
    )
    make_record(now + timedelta(seconds=30), outcome="ok", round=2, **conversation)
    room.goto(f"/admin/mcp_control_room/calllogentry/{first.pk}/change/")
    expect(room.locator("#phases tbody tr")).to_have_count(7)
    bar = room.locator("#phases rect.call-thread")
    assert bar.evaluate("it => it.getBoundingClientRect().width > 20")
    check(room, ignored=OF_DJANGO)
    room.locator("#rounds a").click()
    expect(room.locator("#rounds tr[aria-current] td").first).to_have_text("2")
    check(room, ignored=OF_DJANGO)
