"""A real browser, and the pages on a real server."""

import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright
from pytest_django.fixtures import Settings

import mcp_django
from tests.browser.keyboard import Keyboard
from tests.contrib.oauth.conftest import site
from tests.contrib.oauth.oauth_client import WEB
from tests.support.waiting import WAIT_SECONDS

__all__ = ["site"]
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
PHONE, DESK = 360, 1200
Open = Callable[..., Keyboard]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The browser, without a window."""
    if not Path(CHROMIUM).exists():
        pytest.skip("there is no chromium")
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        # Playwright has a loop running on the test's thread, and nothing else runs on it.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def address(transactional_db: None, site: Settings, live_server: Any) -> str:
    """Where the site is served, with its style sheet."""
    site.STATIC_ROOT = str(Path(mcp_django.__file__).with_name("static"))
    return str(live_server.url)


@pytest.fixture
def person(address: str) -> User:
    """The user in front of the browser."""
    return User.objects.create_user("ada", password="pw", first_name="Ada", last_name="Lovelace")


@pytest.fixture(scope="module")
def shared_page(chromium: Browser) -> Iterator[tuple[Page, list[str]]]:
    """The page of `open_page`, and the complaints of the browser. A process of the browser starts slowly."""
    complaints: list[str] = []
    page = chromium.new_page()
    page.set_default_timeout(WAIT_SECONDS * 1000)
    page.on("console", lambda message: complaints.append(message.text) if _is_ours(message) else None)
    page.on("pageerror", lambda problem: complaints.append(str(problem)))
    yield page, complaints
    page.close()


@pytest.fixture
def open_page(shared_page: tuple[Page, list[str]], address: str, person: User) -> Iterator[Open]:
    """Open a path as a logged-in user. An error or warning of the browser fails the test."""
    page, complaints = shared_page
    page.goto("about:blank")
    complaints.clear()

    def open_path(path: str, *, width: int = DESK, user: User | None = person) -> Keyboard:
        page.context.clear_cookies()
        if user is not None:
            client = Client()
            client.force_login(user)
            key = client.cookies[django_settings.SESSION_COOKIE_NAME].value
            page.context.add_cookies([{"name": django_settings.SESSION_COOKIE_NAME, "value": key, "url": address}])
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme="light")
        page.goto(address + path)
        return Keyboard(page)

    yield open_path
    assert complaints == []


@pytest.fixture
def listener() -> Iterator[str]:
    """The redirect URI of a program on this machine that thanks on a page of its vendor."""
    server = HTTPServer(("localhost", 0), _Thanks)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://localhost:{server.server_port}/callback"
    server.shutdown()
    server.server_close()
    thread.join()


class _Thanks(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", f"{WEB}/done")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Log nothing."""


def _is_ours(message: ConsoleMessage) -> bool:
    """Return True for a message about the pages, and not about an expected status or the login page."""
    loading = message.text.startswith("Failed to load resource")
    return message.type in ("error", "warning") and (not loading or "/mcp_django/" in message.location["url"])
