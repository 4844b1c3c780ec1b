"""The control room and the playground of two processes, on each database, in a browser.

The pages are German, in Kolkata, under a strict policy. The browser is used by keyboard. Each walk has a width and a
colour scheme of its own: on both databases together they are all four.
"""

import asyncio
import contextlib
import json
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import mcp_types as types
import pytest
from django.utils import translation
from django.utils.translation import gettext_lazy as _
from mcp import Client, MCPError
from playwright.sync_api import Browser, Page, expect

from mcp_django.contrib.control_room.pages.running_calls import WAIT_LABELS
from mcp_django.contrib.control_room.recording.process_reports import CANCELLED_MESSAGE
from mcp_django.protocol.revisions import HANDSHAKE_VERSIONS
from tests.browser.accessibility import (
    DESK_WIDTH,
    LOOKS,
    PHONE_WIDTH,
    Scheme,
    find_overflow,
    find_violations,
    set_look,
)
from tests.browser.conftest import chromium
from tests.browser.keyboard import Keyboard
from tests.browser.test_strict_policy import GERMAN, is_unexpected
from tests.servers import client as sockets
from tests.servers.balancer import balance
from tests.servers.databases import new_postgres, new_sqlite
from tests.servers.harness import Server, serve
from tests.servers.test_playground import ACCEPTED, Player, read_events, read_fields, wait_for
from tests.support.waiting import WAIT_SECONDS, wait_until

__all__ = ["chromium"]
pytestmark = pytest.mark.browser
SITE = "tests.servers.site.room_settings"
ADMIN = "/admin/mcp_control_room/"
ROOM = f"{ADMIN}controlroom/"
PLAYGROUND = "/admin/mcp_playground/playground/"
OWN = "#content-main"
CANCEL = "button[id^=cancel-]"
FIND_PAGES = "all => [...new Set(all.map((it) => it.pathname + it.search))]"
READ_FIGURES = """() => {
  const read = (row) => [...row.cells].map((it) => it.textContent.trim().replace(/\\s+/g, " "));
  const rows = (selector) => [...document.querySelectorAll(`${selector} tbody tr`)].map(read);
  const sums = [0, 0, 0];
  for (const [, ...values] of rows("#chart-1-table"))
    values.forEach((value, number) => { sums[number] += Number(value.replace(/\\D/g, "")); });
  const tile = (name) => document.querySelector(`[data-tile=${name}]`).innerText.replace(/\\s+/g, " ");
  return {sums, failed: tile("failed"), durations: tile("durations"), outcomes: rows("#outcomes"),
    callers: rows("#callers").map((row) => row.slice(2, 5)).sort()};
}"""


class Walks(NamedTuple):
    """Widths and colour schemes of the walks on a database, and the page whose links are followed.

    On PostgreSQL, `test_strict_policy` has the pages of the other apps, in one process.
    """

    room: tuple[int, Scheme]
    playground: tuple[int, Scheme]
    first_page: str


class Pair(NamedTuple):
    """Two processes on one database, and a page of the browser. The processes have made the known calls."""

    one: Server
    other: Server
    balanced: str
    """URL at which each request reaches the other process than the one before."""
    page: Page
    walks: Walks


DATABASES = (
    pytest.param((new_sqlite, Walks((PHONE_WIDTH, "dark"), (DESK_WIDTH, "light"), "/admin/")), id="sqlite"),
    pytest.param(
        (new_postgres, Walks((DESK_WIDTH, "dark"), (PHONE_WIDTH, "light"), ADMIN)),
        id="postgres",
        marks=pytest.mark.postgres,
    ),
)


@pytest.fixture(scope="module", params=DATABASES)
def shared_pair(request: pytest.FixtureRequest, chromium: Browser) -> Iterator[tuple[Pair, list[str]]]:
    """The processes of all tests on a database, and the complaints of the browser. The last test kills one of them."""
    new_database, walks = request.param
    complaints: list[str] = []
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(new_database(SITE))
        one, other = (
            stack.enter_context(serve("uvicorn", database=database, site=SITE, settings=GERMAN)) for _ in range(2)
        )
        for server, user, revision, first in (
            (one, "ada", sockets.HANDSHAKE, 1),
            (other, "bob", sockets.STATELESS, 2),
        ):
            with sockets.Client(server.port, "/mcp", sockets.STATELESS) as client:
                arguments = {"user": user, "revision": revision, "first": first}
                assert client.call("make_known_calls", arguments).answer().value == 500
        context = chromium.new_context()
        page = context.new_page()
        page.set_default_timeout(WAIT_SECONDS * 1000)
        expect.set_options(timeout=WAIT_SECONDS * 1000)
        page.on("console", lambda message: complaints.append(message.text) if is_unexpected(message) else None)
        page.on("pageerror", lambda problem: complaints.append(str(problem)))
        yield Pair(one, other, stack.enter_context(balance([one, other])), page, walks), complaints
        context.close()
        other.terminate()


@pytest.fixture
def pair(shared_pair: tuple[Pair, list[str]]) -> Iterator[Pair]:
    """The processes. Complaints of the browser fail the test."""
    pair, complaints = shared_pair
    complaints.clear()
    yield pair
    assert complaints == []


def url(server: Server, path: str) -> str:
    return f"http://127.0.0.1:{server.port}{path}"


def in_german(text: Any) -> str:
    """Return a text as the pages show it, which are German as far as it is translated."""
    with translation.override("de"):
        return str(text)


def get_confirmation() -> str:
    """Return the label of the box that confirms a run which may write."""
    return in_german(_("Run it as %(acting_name)s. This may write.")) % {"acting_name": "boss"}


@contextlib.contextmanager
def start_call(server: Server, mode: str, tool: str, **arguments: Any) -> Iterator["Future[str]"]:
    """Call a tool by the official client, in a thread. The future has the text of the call's error, in the end."""
    ended = threading.Event()

    async def wait_for_end(context: Any, params: Any) -> types.ElicitResult:
        while not ended.is_set():
            await asyncio.sleep(0.05)
        return types.ElicitResult(action="cancel")

    async def call() -> str:
        async with Client(url(server, "/mcp"), mode=mode, elicitation_callback=wait_for_end) as client:
            with pytest.raises(MCPError) as caught:
                await client.call_tool(tool, {"tag": tool, **arguments}, progress_callback=ignore_progress)
        return str(caught.value)

    with ThreadPoolExecutor(1) as threads:
        try:
            yield threads.submit(lambda: asyncio.run(call()))
        finally:
            ended.set()


async def ignore_progress(progress: float, total: float | None, message: str | None) -> None:
    """Ask for progress by being there."""


def skip_to_content(page: Page) -> Keyboard:
    """Pass the links of the admin, which are many on a desk, from the top of a page."""
    return Keyboard(page, OWN).to(in_german(_("Skip to main content"))).press("Enter")


def check_look(page: Page) -> None:
    """Check the page as it is now: its width, and the rules of axe for our part of it."""
    assert find_overflow(page) <= 0
    assert find_violations(page, OWN) == []


def test_calls_of_both_processes_are_on_the_pages_of_each(pair: Pair) -> None:
    page, found = pair.page, []
    for server in (pair.one, pair.other, pair.one):
        page.goto(url(server, ROOM))
        row = page.locator("#tools tr", has=page.get_by_role("link", name="spend", exact=True))
        # A process writes its calls a moment after them.
        expect(row.locator("td.number").first).to_have_text("1.000")
        cells = [text.replace("\N{NO-BREAK SPACE}", " ") for text in row.locator("td").all_text_contents()]
        row.get_by_role("link").click()
        page.locator("#outcomes").wait_for()
        found.append((cells, page.evaluate(READ_FIGURES)))
    assert found[0] == found[1] == found[2]
    [count, failed, bugs, half, slowest, longest], figures = found[0]
    assert [count, failed, bugs, longest] == ["1.000", "20 (2,0 %)", "0", "1,0 s"]
    assert 362 < float(half.split()[0]) <= 512  # the bounds of the bucket of 500 ms
    assert 724 < float(slowest.split()[0]) <= 1024
    assert figures["sums"] == [980, 20, 0]
    assert figures["failed"].startswith("2,0 % ")
    assert "20 " in figures["failed"]
    assert [row[1] for row in figures["outcomes"]] == ["980", "20"]
    without = in_german(_("without session"))
    assert figures["callers"] == [[without, "500", "0"], [without, "500", "20 (4,0 %)"]]


def test_pages_of_both_processes_fit_each_window(pair: Pair, subtests: pytest.Subtests) -> None:
    page = pair.page
    page.goto(pair.balanced + pair.walks.first_page)
    paths = page.locator(f"{OWN} th a").evaluate_all(FIND_PAGES)
    page.goto(f"{pair.balanced}{ADMIN}calllogentry/")
    paths += [page.locator("#result_list tbody th a").first.get_attribute("href")]
    paths += ["/admin/mcp_django/access/?server=default&users=boss"]
    paths += [PLAYGROUND, f"{PLAYGROUND}?name=plan_with_questions"]
    assert len(paths) >= 7
    for path in paths:
        with subtests.test(path):
            response = page.goto(f"{pair.balanced}{path}")
            assert response is not None
            assert response.status == 200
            for look in LOOKS:
                set_look(page, *look)
                assert find_overflow(page) <= 0, look


def test_a_running_call_is_found_and_cancelled_by_keyboard(pair: Pair) -> None:
    page, cancel_text = pair.page, in_german(_("Cancel"))
    set_look(page, *pair.walks.room)
    with start_call(pair.one, "auto", "survey", seconds=600) as request:
        page.goto(f"{pair.balanced}{ADMIN}")
        Keyboard(page, ".control-room").to(in_german(_("Control room"))).submit()
        cancel = page.locator(CANCEL)
        row = page.locator("tr", has=cancel)
        expect(row).to_contain_text("survey")
        expect(row.locator("progress")).to_have_attribute("value", "50.0")
        expect(row).to_contain_text(in_german(WAIT_LABELS[""]))
        check_look(page)
        keys = Keyboard(page, OWN).to(in_german(_("Skip to the running calls"))).press("Enter").to(cancel_text)
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
    page.goto(f"{pair.balanced}/admin/")
    expect(page.locator("#recent-actions-module")).to_contain_text("tools/call survey")
    calls = page.locator("#result_list")

    def find_calls() -> int:
        page.goto(f"{pair.balanced}{ADMIN}calllogentry/?name=survey")
        return calls.count()

    # A process writes its calls a moment after them, and this page does not follow.
    wait_until(find_calls, "the call was not written")
    expect(calls).to_contain_text(in_german(_("cancelled")))


def test_a_tool_is_found_run_and_answered_by_keyboard(pair: Pair) -> None:
    page, send_answers = pair.page, in_german(_("Send the answers"))
    set_look(page, *pair.walks.playground)
    page.goto(pair.balanced + PLAYGROUND)
    keys = skip_to_content(page)
    keys.to(in_german(_("Filter"))).write("plan_w").to("plan_with_questions").submit()

    skip_to_content(page).to("place").write("Oslo").to(get_confirmation())
    keys.press("Space").to(in_german(_("Send"))).press("Enter")
    questions = page.locator(".playground-questions")
    expect(questions).to_be_visible()
    waiting = page.locator("#playground-run").get_attribute("data-waiting-text")
    expect(page.locator("[data-part=status]")).to_have_text(waiting or "")
    expect(page.locator("#copy-curl")).to_contain_text("Oslo")
    expect(page.locator("#call-link")).to_have_attribute("href", re.compile("arguments="))
    expect(page.locator("[data-part=log] li")).to_have_text(["info: <b>planning</b>"])
    expect(page.locator("[data-part=progress] span")).to_have_text("2 / 3, step 2")
    assert page.locator("[data-part=progress] progress").evaluate("it => it.value") == pytest.approx(2 / 3)
    check_look(page)

    # The focus is on the decision, and after an error on its field.
    assert keys.focused()["value"] == "accept"
    keys.press("Tab").write("many").to(send_answers).press("Enter")
    expect(questions.locator(".errorlist")).to_be_visible()
    assert keys.focused()["name"].endswith("argument-value")
    check_look(page)
    keys.press("ControlOrMeta+A").write("3").to(send_answers).press("Enter")
    expect(page.locator(".playground-question .playground-text")).to_have_text("3 days in Oslo?")
    assert keys.focused()["value"] == "accept"
    keys.press("ArrowDown").to(send_answers).press("Enter")
    expect(page.locator("#answer")).to_contain_text("Oslo, 3 days, decline")
    expect(page.locator("#playground-result")).to_be_focused()
    rounds = page.locator("[data-part=rounds] section")
    expect(rounds).to_have_count(3)
    rounds.nth(1).locator("summary").first.press("Enter")
    expect(rounds.nth(1).locator("pre").first).to_contain_text('"inputResponses"')
    check_look(page)

    page.locator("[name=argument-place]").first.fill("x" * 11)
    page.locator("button[value=send]").press("Enter")
    expect(page.locator("form:has(#playground-confirmed) .errorlist")).to_be_visible()
    expect(rounds).to_have_count(1)


def test_a_run_is_cancelled_by_keyboard(pair: Pair) -> None:
    page = pair.page
    set_look(page, *pair.walks.playground)
    page.goto(f"{pair.balanced}{PLAYGROUND}?name=survey")
    keys = skip_to_content(page)
    keys.to("tag").write("left").to(get_confirmation())
    keys.press("Space").to(in_german(_("Send"))).press("Enter")
    expect(page.locator("[data-part=progress] span")).to_have_text("1 / 2")
    check_look(page)
    keys.to(in_german(_("Cancel"))).press("Enter")
    expect(page.locator("[data-part=status]")).to_have_text(in_german(_("Cancelled")))
    expect(page.locator("[data-part=cancel]")).to_be_hidden()
    expect(page.locator("[data-part=status]")).to_be_focused()
    wait_until(lambda: any(server.events("left", "cancelled") for server in (pair.one, pair.other)))


def test_a_question_is_answered_during_the_call(pair: Pair) -> None:
    """In the handshake era the answer is a request of its own, which reaches another process than the call."""
    page = pair.page
    set_look(page, *pair.walks.playground)
    page.goto(f"{pair.balanced}{PLAYGROUND}?name=ask")
    page.locator("[name=argument-tag]").first.fill("browser")
    page.locator("#playground-confirmed").check()
    page.locator("#playground-revision").select_option(HANDSHAKE_VERSIONS[-1])
    page.locator("button[value=send]").click()
    answer = page.locator("[name=question-1-argument-value]")
    answer.select_option("")
    check_look(page)
    page.locator("button[value=reply]").press("Enter")
    expect(page.locator(".playground-questions .errorlist")).to_be_visible()
    answer.select_option("true")
    page.locator("button[value=reply]").press("Enter")
    expect(page.locator("#answer")).to_contain_text('"text": "accept"')
    expect(page.locator(".playground-questions")).to_have_count(0)
    expect(page.locator("#playground-result")).to_be_focused()
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


def test_rounds_and_replies_reach_any_process(pair: Pair) -> None:
    player, other_player = Player(pair.one), Player(pair.other)
    question = wait_for(read_events(player.start("ask", "round")), "end")["html"]
    answered = wait_for(
        read_events(other_player.run("ask", **{**read_fields(question), **ACCEPTED, "act": "answer"})), "end"
    )
    assert "accept" in answered["html"]
    assert [event["what"] for event in pair.other.events("round")]

    events = read_events(player.start("ask", "live", revision=HANDSHAKE_VERSIONS[-1]))
    question = wait_for(events, "question")["html"]
    reply = other_player.run("ask", **{**read_fields(question), **ACCEPTED, "act": "reply"})
    assert json.loads(json.load(reply)["text"])["result"]["action"] == "accept"
    assert "accept" in wait_for(events, "end")["html"]


def test_a_killed_process_is_shown_as_silent_and_then_removed(pair: Pair) -> None:
    """The last test: the process is gone."""
    page = pair.page
    set_look(page, *pair.walks.room)
    page.goto(url(pair.other, ROOM))
    cancel = page.locator(CANCEL)
    process = f":{pair.one.process.pid}:"
    alerts = page.get_by_role("alert").filter(has_text=process)
    with start_call(pair.one, "legacy", "ask"):
        expect(page.locator("tr", has=cancel)).to_contain_text(in_german(WAIT_LABELS["elicitation/create"]))
        pair.one.terminate(signal.SIGKILL)
        expect(cancel).to_have_count(0)
        expect(alerts.and_(page.locator("[data-alert=silent_process]"))).to_be_visible()
        check_look(page)
        expect(alerts).to_have_count(0)
    page.goto(url(pair.other, f"{ADMIN}alert/?q={process}"))
    # The newest is first. On a slow machine the process may have been silent before.
    expect(page.locator("td.field-cleared").first).to_contain_text(":")
