"""The control room of one process in a browser, and the calls of another from the official client.

The pages are German, in Kolkata, under a strict policy. The browser is used by keyboard.
"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import mcp_types as types
import pytest
from django.utils import translation
from django.utils.translation import gettext_lazy as _
from mcp import Client, MCPError
from playwright.sync_api import Browser, Page, expect

from mcp_django.contrib.control_room.pages.running_calls import WAIT_LABELS
from mcp_django.contrib.control_room.recording.process_reports import CANCELLED_MESSAGE
from tests.browser.conftest import chromium
from tests.browser.keyboard import Keyboard
from tests.browser.test_strict_policy import GERMAN, is_unexpected
from tests.servers.databases import new_postgres, new_sqlite
from tests.servers.harness import Server, serve
from tests.support.waiting import WAIT_SECONDS

__all__ = ["chromium"]
pytestmark = pytest.mark.browser
SITE = "tests.servers.site.room_settings"
DATABASES = (
    pytest.param(new_sqlite, id="sqlite"),
    pytest.param(new_postgres, id="postgres", marks=pytest.mark.postgres),
)
ADMIN = "/admin/mcp_control_room/"


@contextlib.contextmanager
def calling(server: Server, mode: str, tool: str) -> Iterator["Future[str]"]:
    """Call a tool by the official client, in a thread. The future has the text of the call's error, in the end."""
    ended = threading.Event()

    async def wait_for_end(context: Any, params: Any) -> types.ElicitResult:
        while not ended.is_set():
            await asyncio.sleep(0.05)
        return types.ElicitResult(action="cancel")

    async def call() -> str:
        url = f"http://127.0.0.1:{server.port}/mcp"
        async with Client(url, mode=mode, elicitation_callback=wait_for_end) as client:
            with pytest.raises(MCPError) as caught:
                await client.call_tool(tool, {"tag": tool}, progress_callback=ignore_progress)
        return str(caught.value)

    with ThreadPoolExecutor(1) as threads:
        try:
            yield threads.submit(lambda: asyncio.run(call()))
        finally:
            ended.set()


async def ignore_progress(progress: float, total: float | None, message: str | None) -> None:
    """Ask for progress by being there."""


def in_german(text: Any) -> str:
    """Return a text as the pages show it, which are German as far as it is translated."""
    with translation.override("de"):
        return str(text)


@contextlib.contextmanager
def browsing(browser: Browser, server: Server) -> Iterator[Page]:
    """Open a browser at a server. Complaints of the browser fail the test."""
    complaints: list[str] = []
    context = browser.new_context(base_url=f"http://127.0.0.1:{server.port}", viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(WAIT_SECONDS * 1000)
    expect.set_options(timeout=WAIT_SECONDS * 1000)
    page.on("console", lambda said: complaints.append(said.text) if is_unexpected(said) else None)
    page.on("pageerror", lambda problem: complaints.append(str(problem)))
    yield page
    context.close()
    assert complaints == []


@pytest.mark.parametrize("new_database", DATABASES)
def test_calls_of_one_process_on_the_page_of_another(new_database: Callable[[str], Any], chromium: Browser) -> None:
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(new_database(SITE))
        one, other = (
            stack.enter_context(serve("uvicorn", database=database, site=SITE, settings=GERMAN)) for _ in range(2)
        )
        page = stack.enter_context(browsing(chromium, other))
        cancel = page.locator("button[id^=cancel-]")
        page.goto(f"{ADMIN}controlroom/")

        with calling(one, "auto", "survey") as request:
            row = page.locator("tr", has=cancel)
            expect(row).to_contain_text("survey")
            expect(row.locator("progress")).to_have_attribute("value", "50.0")
            expect(row).to_contain_text(in_german(WAIT_LABELS[""]))
            cancel_text = in_german(_("Cancel"))
            keys = Keyboard(page, "#content-main").to(cancel_text)
            # The row is replaced by a newer one, and the focus is still on its button.
            duration = row.locator("td.number")
            expect(duration).not_to_have_text(duration.inner_text())
            assert keys.focused()["text"].startswith(cancel_text)
            keys.submit()
            expect(page.locator(".messagelist")).to_contain_text(
                in_german(_("The call %s will be cancelled.")) % "tools/call survey"
            )
            assert CANCELLED_MESSAGE in request.result(WAIT_SECONDS)
            expect(cancel).to_have_count(0)
        page.goto("/admin/")
        expect(page.locator("#recent-actions-module")).to_contain_text("tools/call survey")
        page.goto(f"{ADMIN}calllogentry/")
        expect(page.locator("#result_list")).to_contain_text(in_german(_("cancelled")))

        tables = []
        for server in (one, other):
            page.goto(f"http://127.0.0.1:{server.port}{ADMIN}controlroom/")
            tables.append(page.locator("#tools tbody").inner_text())
        assert "survey" in tables[0]
        assert tables[0] == tables[1]

        process = f":{one.process.pid}:"
        alerts = page.get_by_role("alert").filter(has_text=process)
        with calling(one, "legacy", "ask"):
            expect(page.locator("tr", has=cancel)).to_contain_text(in_german(WAIT_LABELS["elicitation/create"]))
            one.terminate(signal.SIGKILL)
            expect(cancel).to_have_count(0)
            expect(alerts.and_(page.locator("[data-alert=silent_process]"))).to_be_visible()
            expect(alerts).to_have_count(0)
        page.goto(f"{ADMIN}alert/?q={process}")
        # The newest is first. On a slow machine the process may have been silent before.
        expect(page.locator("td.field-cleared").first).to_contain_text(":")
        other.terminate()
