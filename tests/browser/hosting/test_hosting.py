"""Apps in Chromium: the preview page and a strict host of the official bridge, with good and hostile views."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.accessibility import check
from tests.browser.hosting.conftest import HostingSite
from tests.browser.hosting.hosts import AppTestHost, PreviewTestHost, StrictTestHost
from tests.browser.hosting.strict import SECRET, StrictHostServer

pytestmark = [pytest.mark.browser, pytest.mark.integration]
MAP_WIDTH = 640


def test_a_view_gets_input_result_theme_size_and_teardown(any_host: AppTestHost) -> None:
    any_host.open("show_good", text="Grüezi")
    found = any_host.read_observations()
    assert found["theme"] == "light"
    assert (found["refused"] == "refused") is any_host.checks_visibility, "a view calls a tool that is for the model"
    expect(any_host.app.locator("#input")).to_have_text("Grüezi")
    expect(any_host.app.locator("#result")).to_have_text('{"text":"Grüezi","user":"demo"}')
    expect(any_host.outer_frame).to_have_css("height", "321px")
    any_host.set_theme("dark")
    expect(any_host.app.locator("body[data-theme=dark]")).to_be_visible()
    any_host.close()
    expect(any_host.outer_frame).to_have_count(0)
    assert any_host.violations == []


def test_the_demo_shows_airports_on_a_map(any_host: AppTestHost) -> None:
    any_host.open("nearest_airports", latitude=46.5, longitude=8.6, limit=3)  # A line of the grid is near the edge.
    expect(any_host.app.locator("circle.place")).to_have_count(3)
    expect(any_host.app.locator("path.known")).to_have_count(1)
    right_edges = any_host.app.locator("#map text").evaluate_all(
        "all => all.map((one) => one.getBBox().x + one.getBBox().width)"
    )
    assert max(right_edges) <= MAP_WIDTH
    any_host.app.locator("#list button").first.click()
    expect(any_host.app.locator("#details")).to_contain_text("km")
    any_host.set_theme("dark")
    expect(any_host.app.locator("html[data-theme=dark]")).to_have_count(1)
    any_host.close()
    expect(any_host.outer_frame).to_have_count(0)
    assert any_host.violations == []


def test_the_trip_editor_shows_an_error_and_then_saves_as_the_user(
    any_host: AppTestHost, hosting_site: HostingSite
) -> None:
    name = f"Alps, {type(any_host).__name__}"
    any_host.open("edit_trip")
    form = any_host.app
    form.get_by_label("Name").fill(name)
    form.get_by_label("Departure").fill("2030-05-01")
    form.get_by_label("Origin").fill("ZRH")
    form.get_by_label("Destination").fill("QQQ")
    form.get_by_role("button", name="Save the trip").click()
    expect(form.get_by_text("No airport has the code 'QQQ'.")).to_be_visible()
    expect(form.get_by_label("Destination")).to_be_focused()
    assert hosting_site.read_trips(name) == []
    form.get_by_label("Destination").fill("GVA")
    form.get_by_label("Destination").press("Enter")
    expect(form.locator(".saved")).to_contain_text("ZRH → GVA")
    assert hosting_site.read_trips(name) == [("demo", "2030-05-01")]
    assert any_host.violations == []


def test_rows_of_the_demo_are_shown_changed_and_deleted(
    open_host: Callable[[str], AppTestHost], hosting_site: HostingSite
) -> None:
    host, name = open_host("strict"), "Coast"
    view = host.app
    host.open("airport_list", filters={"country__name": "Switzerland"}, limit=3, fields=["icao", "name", "elevation"])
    expect(view.locator("tbody tr")).to_have_count(3)
    view.get_by_role("button", name="Elevation").click()
    expect(view.locator("th[aria-sort=ascending]")).to_contain_text("Elevation")
    view.get_by_role("button", name="Next").click()
    expect(view.get_by_text("Page 2")).to_be_visible()
    view.get_by_text("Filters").click()
    view.get_by_label("Field").select_option("name")
    view.get_by_label("Value").fill("geneva")
    view.get_by_role("button", name="Filter", exact=True).click()
    expect(view.locator("tbody tr")).to_have_count(1)
    expect(view.get_by_text("1 in all")).to_be_visible()
    view.locator("tbody button").click()
    expect(view.get_by_role("heading")).to_have_text("LSGG")
    view.get_by_role("button", name="Back").click()
    expect(view.locator("tbody tr")).to_have_count(1)

    host.open("trip_create_form", values={"name": name})
    expect(view.get_by_label("Name *")).to_have_value(name)
    view.get_by_role("button", name="Save").click()
    expect(view.locator("[data-mcp-field=origin]")).to_contain_text("required")
    for field, code in (("Origin *", "LSZH"), ("Destination *", "LSGG")):
        view.get_by_label(field).press_sequentially(code)
        option = view.locator(f"datalist#{view.get_by_label(field).get_attribute('list')} option").first
        view.get_by_label(field).fill(option.get_attribute("value") or "")
    view.get_by_label("Departure").fill("2031-02-03")
    view.get_by_role("button", name="Save").click()
    expect(view.get_by_role("status")).to_have_text("Saved.")
    view.get_by_role("button", name="Change").click()
    expect(view.get_by_label("Departure")).to_have_value("2031-02-03")
    view.get_by_label("Departure").fill("2031-02-04")
    view.get_by_label("Departure").press("Enter")
    expect(view.locator("dd", has_text="Feb 4, 2031")).to_be_visible()
    assert hosting_site.read_trips(name) == [("demo", "2031-02-04")]

    host.open("trip_delete", pk=hosting_site.find_trip(name))
    question = view.get_by_role("group")
    expect(question).to_contain_text(name)
    question.get_by_role("button", name="Decline").click()
    expect(view.get_by_text("The user did not agree, and nothing was changed")).to_be_visible()
    assert hosting_site.read_trips(name)
    host.open("trip_delete", pk=hosting_site.find_trip(name))
    question.get_by_role("button", name="Confirm").click()
    expect(question).to_have_count(0)
    expect(view.locator("#result")).to_contain_text('"deleted"')
    assert hosting_site.read_trips(name) == []
    assert host.violations == []


def test_rows_of_the_demo_are_summed_in_a_chart(open_host: Callable[[str], AppTestHost]) -> None:
    host = open_host("preview")
    view = host.app
    host.open("airport_aggregate", group_by=["country"])
    expect(view.locator("#chart canvas")).to_be_visible()
    expect(view.locator("#chart .u-legend")).to_have_text("count")
    view.get_by_text("Values").click()
    expect(view.locator("details tbody tr")).to_have_count(2)
    view.get_by_label("Group by").select_option("timezone")
    expect(view.locator("details th", has_text="Europe/Zurich")).to_have_count(1)
    host.set_theme("dark")
    expect(view.locator("html[data-theme=dark] #chart canvas")).to_be_visible()
    expect(host.page.get_by_text("ResizeObserver loop")).to_have_count(0)
    assert host.violations == []


def test_loads_from_undeclared_origins_are_violations(host: AppTestHost) -> None:
    host.open("show_careless")
    found = host.read_observations()
    assert (found["eval"], found["fetch"]) == ("EvalError", "TypeError")
    for origin in ("images.invalid", "styles.invalid", "api.invalid"):
        assert any(origin in text for text in host.violations), origin


def test_a_hostile_view_gets_nothing(any_host: AppTestHost, strict_server: StrictHostServer) -> None:
    any_host.open("show_hostile")
    address = any_host.page.url
    found = any_host.read_observations()
    attempts = {name: value for name, value in found.items() if name not in ("done", "closing", "method")}
    assert len(attempts) >= 18
    assert {name: value for name, value in attempts.items() if value not in ("refused", "nothing")} == {}
    if any_host.keeps_frame:
        any_host.app.locator("body").evaluate("() => navigate()")
        any_host.page.evaluate("new Promise(requestAnimationFrame)")
    assert SECRET not in str(found)
    assert strict_server.collected == []
    assert any_host.page.url == address
    assert len(any_host.context.pages) == 1


def test_the_collector_notices_a_view_without_a_policy(
    open_host: Callable[[str], AppTestHost], strict_server: StrictHostServer
) -> None:
    host = open_host("strict")
    assert isinstance(host, StrictTestHost)
    host.sandbox = "lax.html"
    host.open("show_hostile")
    found = host.read_observations()
    assert found["fetchElsewhere"] == "got opaque"
    assert {"GET /collect/fetch", "GET /collect/image"} <= set(strict_server.collected)
    strict_server.collected.clear()


def test_the_document_of_a_view_has_an_opaque_origin_in_a_tab_as_well(
    open_host: Callable[[str], AppTestHost],
) -> None:
    host = open_host("preview")
    host.open("show_good", text="hello")
    address = host.outer_frame.evaluate("frame => frame.src")
    host.page.goto(address)
    assert host.page.evaluate("[origin, parent === self]") == ["null", True]


def test_the_preview_is_usable_on_a_phone_and_in_both_schemes(open_host: Callable[[str], AppTestHost]) -> None:
    host = open_host("preview")
    host.open("show_good", text="hello")
    check(host.page, ignored=())


def test_the_preview_is_usable_by_keyboard(open_host: Callable[[str], AppTestHost]) -> None:
    host = open_host("preview")
    assert isinstance(host, PreviewTestHost)
    host.page.goto(f"{host.site}/mcp/apps/?tool=show_careless")
    page = host.page
    page.get_by_label("Arguments").fill("[1]")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("This is not a JSON object.")
    expect(page.get_by_label("Arguments")).to_be_focused()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.type('{"text": "typed"}')
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    host.read_observations()
    assert "typed" in host.preview.read_answer()
    assert len(host.preview.read_problems()) == 4
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("The app is closed.")
