"""The site of the documentation in a browser: it searches and draws without another host."""

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import PluginError
from playwright.sync_api import Browser, Page

from tests.repository.pages import ROOT
from tests.support.waiting import WAIT_SECONDS

pytestmark = pytest.mark.browser


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the built site. Skips the tests if Mermaid cannot be fetched."""
    directory = tmp_path_factory.mktemp("site")
    try:
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(directory), strict=True))
    except PluginError as error:
        pytest.skip(str(error))

    handler = functools.partial(QuietHandler, directory=str(directory))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def page(chromium: Browser, site: str) -> Iterator[Page]:
    """A page of the browser. A request to another host fails the test."""
    context = chromium.new_context()
    page, requests = context.new_page(), []
    page.set_default_timeout(WAIT_SECONDS * 1000)
    page.on("request", lambda request: requests.append(request.url))
    yield page
    context.close()
    assert [url for url in requests if not url.startswith((site, "data:", "blob:"))] == []


def test_the_search_finds_a_page(page: Page, site: str) -> None:
    page.goto(site)
    field = page.locator("input.md-search__input")
    field.click()
    field.press_sequentially("transaction thread")  # The search listens to keys.
    link = page.locator("a.md-search-result__link").first
    link.wait_for()
    assert "threads" in (link.get_attribute("href") or "")


def test_diagrams_are_drawn(page: Page, site: str) -> None:
    page.goto(f"{site}understand/eras/")
    page.locator("div.mermaid").first.wait_for()
    assert page.locator("pre.mermaid").count() == 0


def test_the_mode_can_be_changed(page: Page, site: str) -> None:
    page.goto(site)
    schemes = set()
    for _ in range(3):
        page.locator("form[data-md-component=palette] label:not([hidden])").click()
        schemes.add(page.locator("body").get_attribute("data-md-color-scheme"))
    assert {"default", "slate"} <= schemes
