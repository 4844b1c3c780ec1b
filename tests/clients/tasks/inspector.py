"""Tasks on the Inspector's page in Chromium.

Tools run as tasks, their questions are dialogs, and the Tasks tab lists the tasks.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from playwright.sync_api import Error, Locator, Page, expect, sync_playwright

from tests.clients.peer_process import Failed
from tests.clients.peers import inspector_tool
from tests.support.ports import take_port

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
WAIT_MILLISECONDS = 60_000
CHECKED_MILLISECONDS = 2_000
MAX_CLICKS = 10
SEEN = (
    ("slow_compute", {"seconds": "0.2", "label": "x"}, (), "Computed x in 0.2 seconds", "completed"),
    ("failing_job", {}, (), "The job failed", ""),
    ("protocol_error_job", {}, (), "The job failed with a protocol error", "failed"),
    ("confirm_delete", {"filename": "a.txt"}, ("Delete a.txt?",), "Deleted a.txt", "completed"),
    ("multi_input", {}, ("First name?", "Second name?"), "Names: Ada, Bob", "completed"),
)
"""Tools with their arguments, their questions, the text on the page and the status in the tab.

A core task whose result is an error has `failed`, one of the extension `completed`.
"""
NAMES = {"First name?": "Ada", "Second name?": "Bob"}


def visit_inspector(target: str, era: str) -> str:
    """Run the tools on the page of the Inspector.

    Raises Failed with the text of the page.
    """
    with _inspector(target, era) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        page.set_default_timeout(WAIT_MILLISECONDS)
        try:
            page.goto(url)
            page.get_by_role("switch").first.click(force=True)
            for label in ("Tools", "Tasks"):
                page.locator("label", has_text=re.compile(f"^{label}$")).click()
            for tool, arguments, questions, text, status in SEEN:
                _execute(page, tool, arguments, questions, text)
                page.get_by_text(re.compile(f"^({status or 'completed|failed'})$", re.I)).first.wait_for()
            _cancel(page)
        except Exception as problem:
            raise Failed(f"{problem}\n{_read_text(page)}") from problem
        finally:
            browser.close()
    return f"{len(SEEN) + 1} tasks in the tab, {len(NAMES) + 1} questions answered"


def _read_text(page: Page) -> str:
    """Return the text of the page, as far as it has one."""
    with suppress(Error):
        return page.locator("body").inner_text(timeout=CHECKED_MILLISECONDS)
    return "(the page has no text)"


def _execute(page: Page, tool: str, arguments: dict[str, str], questions: tuple[str, ...], text: str) -> None:
    """Execute a tool, answer its questions in their dialogs, and wait for its text."""
    _start(page, tool, arguments)
    for _ in questions:
        dialog = page.get_by_role("dialog")
        asked = dialog.get_by_text(re.compile("|".join(map(re.escape, questions)))).first.inner_text().strip("“”")
        if asked in NAMES:
            dialog.get_by_role("textbox", name="name").fill(NAMES[asked])
        else:
            _tick(dialog.get_by_role("checkbox", name="confirm"))
        dialog.get_by_role("button", name="Submit").click()
        page.get_by_text(f"“{asked}”").wait_for(state="hidden")
    # The tab may have the text earlier. The result replaces the form of a tool that is chosen too soon.
    page.get_by_text(re.compile("^(Results|Tool Call Failed)$")).first.wait_for()
    page.get_by_text(text).first.wait_for()


def _tick(box: Locator) -> None:
    """Tick a box. The page draws itself again with each poll, and may lose a click."""
    for _ in range(MAX_CLICKS):
        box.click(force=True)
        with suppress(AssertionError):
            return expect(box).to_be_checked(timeout=CHECKED_MILLISECONDS)
    raise AssertionError("The box cannot be ticked")


def _start(page: Page, tool: str, arguments: dict[str, str]) -> None:
    page.get_by_role("button", name=tool, exact=True).click()
    for name, value in arguments.items():
        page.get_by_role("textbox", name=name).fill(value)
    task = page.get_by_role("switch", name=re.compile("task", re.I))
    if task.count() and not task.is_checked() and task.is_enabled():
        task.check(force=True)
    page.get_by_role("button", name="Execute Tool").click()


def _cancel(page: Page) -> None:
    """Cancel a task in the tab."""
    _start(page, "slow_compute", {"seconds": "60"})
    page.get_by_role("button", name="Cancel Task").click()
    page.get_by_text(re.compile("^cancelled$", re.I)).first.wait_for()


@contextmanager
def _inspector(target: str, era: str) -> Iterator[str]:
    """Run an Inspector with a home directory of its own, and yield its URL."""
    with tempfile.TemporaryDirectory() as home:
        ports = {"CLIENT_PORT": take_port(), "MCP_SANDBOX_PORT": take_port(), "MCP_APP_ORIGIN_PORT": take_port()}
        environment = {**os.environ, "HOME": home, "MCP_AUTO_OPEN_ENABLED": "false"}
        environment |= {name: str(port) for name, port in ports.items()}
        command = [*inspector_tool(), "--web", "--transport", "http", "--server-url", target, "--protocol-era", era]
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            try:
                found = (re.search(r"http://\S+TOKEN=\S+", line) for line in process.stdout)
                url = next((match[0] for match in found if match), None)
                if url is None:
                    raise Failed(f"the Inspector ended with {process.wait()}")
                yield url
            finally:
                process.terminate()
                process.communicate()
