"""Questions of a running call in a browser, on a server that answers them: the handshake era under ASGI."""

import mimetypes
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import django.contrib.admin
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from mcp_django.contrib import control_room
from mcp_django.protocol.revisions import HANDSHAKE_VERSIONS
from tests.browser.test_strict_policy import OF_DJANGO, check
from tests.servers.harness import serve

SITE = "tests.servers.site.room_settings"
STATIC = {
    "mcp_control_room": Path(control_room.__file__).with_name("static"),
    "admin": Path(django.contrib.admin.__file__).with_name("static"),
}


def send_static_file(route: Route) -> None:
    """Send a file of the package or of the admin, because the server has none."""
    path = urlsplit(route.request.url).path.partition("/static/")[2]
    kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
    route.fulfill(body=(STATIC[path.partition("/")[0]] / path).read_bytes(), content_type=kind)


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    with serve("uvicorn", site=SITE) as server:
        context = chromium.new_context(base_url=f"http://127.0.0.1:{server.port}")
        page, problems = context.new_page(), list[str]()
        page.on("pageerror", lambda problem: problems.append(str(problem)))
        page.route("**/static/**", send_static_file)
        yield page
        context.close()
        server.terminate()
        assert problems == []


def test_a_question_is_answered_during_the_call(page: Page) -> None:
    page.goto("/admin/mcp_control_room/playground/?name=ask")
    page.locator("[name=argument-tag]").first.fill("browser")
    page.locator("#playground-confirmed").check()
    page.locator("#playground-revision").select_option(HANDSHAKE_VERSIONS[-1])
    page.locator("button[value=send]").click()
    answer = page.locator("[name=question-1-argument-value]")
    answer.select_option("")
    check(page, ignored=OF_DJANGO)
    page.locator("button[value=reply]").press("Enter")
    expect(page.locator(".playground-questions .errorlist")).to_be_visible()
    answer.select_option("true")
    page.locator("button[value=reply]").press("Enter")
    expect(page.locator("#answer")).to_contain_text('"text": "accept"')
    expect(page.locator(".playground-questions")).to_have_count(0)
    messages = page.locator("[data-part=rounds] summary")
    assert messages.evaluate_all(
        "all => all.map((it) => it.childNodes[0].textContent + it.childNodes[2].textContent)"
    ) == [
        "→ initialize ",
        "← result ",
        "→ notifications/initialized ",
        "→ logging/setLevel ",
        "← result ",
        "→ tools/call ",
        "← elicitation/create ",
        "→ result ",
        "← result ",
    ]
