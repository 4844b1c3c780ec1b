"""The site of the documentation in a browser: it searches and draws without another host."""

import functools
import json
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from mkdocs.exceptions import PluginError
from playwright.sync_api import Browser, Page

from scripts.docs_site import MERMAID_ASSET, read_mermaid
from tests.browser.reader_searches import SEARCHES
from tests.repository.pages import ROOT
from tests.repository.test_reader_questions import PAGE as QUESTIONS_PAGE
from tests.repository.test_reader_questions import QUESTION
from tests.support.docs_site import docs_site
from tests.support.waiting import WAIT_SECONDS

__all__ = ["docs_site"]
pytestmark = pytest.mark.browser

VISIBLE_RESULTS = 3
"""Results of a search that a reader considers."""
MIN_FOUND_SHARE = 0.8
"""Share of the searches of `SEARCHES` that show the page of their question."""

RUN_SEARCHES = """async queries => {
    const config = JSON.parse(document.getElementById("__config").textContent);
    const base = new URL(config.base + "/", location.href);
    const worker = new Worker(new URL(config.search, base));
    const send = (type, data) => new Promise((resolve, reject) => {
        worker.onmessage = ({data}) => resolve(data.data);
        worker.onerror = reject;
        worker.postMessage({type, data});
    });
    const index = await (await fetch(new URL("search/search_index.json", base))).json();
    await send(0, {...index, options: {suggest: false}});
    const found = {};
    for (const query of queries)
        found[query] = (await send(2, query)).items.map(group => group[0].location.split("#")[0]);
    worker.terminate();
    return found;
}"""
"""Map queries to the pages that the theme's own search worker finds, best first."""


class DocsHandler(SimpleHTTPRequestHandler):
    """Serves the site without a log, and Mermaid beside it: the site has an empty copy."""

    mermaid = b""

    def do_GET(self) -> None:
        if not self.path.endswith(MERMAID_ASSET):
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/javascript")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", str(len(self.mermaid)))
        self.end_headers()
        self.wfile.write(self.mermaid)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(docs_site: Path) -> Iterator[str]:
    """The address of the built site."""
    handler = functools.partial(DocsHandler, directory=str(docs_site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def shared_page(chromium: Browser) -> Iterator[tuple[Page, list[str]]]:
    """The page of all tests, and the URLs of its requests."""
    page, requests = chromium.new_page(), list[str]()
    page.set_default_timeout(WAIT_SECONDS * 1000)
    page.on("request", lambda request: requests.append(request.url))
    yield page, requests
    page.close()


@pytest.fixture
def page(shared_page: tuple[Page, list[str]], site: str) -> Iterator[Page]:
    """A page of the site. A request to another host fails the test."""
    page, requests = shared_page
    requests.clear()
    page.goto(site)
    yield page
    assert [url for url in requests if not url.startswith((site, "data:", "blob:"))] == []


SAME_SEARCHES = (
    ("How do I expose the rows of a model?", "expose row model"),
    ("returning files", "return file"),
    ("the classes of Django", "class django"),
    ("queries and 401, 403", "quer 401 403"),
)
"""Questions, and the words that are searched."""


@pytest.fixture(scope="module")
def found(shared_page: tuple[Page, list[str]], site: str) -> dict[str, list[str]]:
    """The pages of all searches: the worker takes seconds to read the index."""
    page, _ = shared_page
    page.goto(site)
    queries = [query for queries in (*SEARCHES.values(), *SAME_SEARCHES) for query in queries]
    pages: dict[str, list[str]] = page.evaluate(RUN_SEARCHES, [*queries, "how to", '"access token"'])
    return pages


def test_the_search_finds_a_page(page: Page) -> None:
    field = page.locator("input.md-search__input")
    field.click()
    field.press_sequentially("transaction thread")  # The search listens to keys.
    link = page.locator("a.md-search-result__link").first
    link.wait_for()
    assert "threads" in (link.get_attribute("href") or "")


def test_readers_find_the_page_of_each_question_within_three_searches(found: dict[str, list[str]]) -> None:
    questions = QUESTION.findall(QUESTIONS_PAGE.read_text(encoding="utf-8"))
    pages = {int(number): link.removeprefix("../").removesuffix(".md") + "/" for number, _, link, _ in questions}
    assert SEARCHES.keys() == pages.keys()

    hits = {
        number: [query for query in queries if pages[number] in found[query][:VISIBLE_RESULTS]]
        for number, queries in SEARCHES.items()
    }
    missed = {number: SEARCHES[number] for number, queries in hits.items() if not queries}
    assert missed == {}
    share = sum(map(len, hits.values())) / sum(map(len, SEARCHES.values()))
    assert share >= MIN_FOUND_SHARE, json.dumps({number: found[SEARCHES[number][0]][:3] for number in hits})


def test_searches_leave_out_small_words_and_endings(found: dict[str, list[str]], subtests: pytest.Subtests) -> None:
    for question, words in SAME_SEARCHES:
        with subtests.test(question=question):
            assert found[question] == found[words] != []
    assert found['"access token"'] not in ([], found["how to"])
    assert found["how to"] != [], "A query of small words alone stays."


def test_diagrams_are_drawn(page: Page, site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        monkeypatch.setattr(DocsHandler, "mermaid", read_mermaid(ROOT / ".cache"))
    except PluginError as error:
        pytest.skip(str(error))
    page.goto(f"{site}understand/eras/")
    page.locator("div.mermaid").first.wait_for()
    assert page.locator("pre.mermaid").count() == 0


def test_the_mode_can_be_changed(page: Page) -> None:
    schemes = set()
    for _ in range(3):
        page.locator("form[data-md-component=palette] label:not([hidden])").click()
        schemes.add(page.locator("body").get_attribute("data-md-color-scheme"))
    assert {"default", "slate"} <= schemes
