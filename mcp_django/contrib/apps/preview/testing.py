"""Apps in the tests of a project: a page of Playwright with the preview, and the frame of the app.

from mcp_django.contrib.apps.preview.testing import AppPage

def test_cart(live_server, page, alice):
    app = AppPage(page, live_server.url, user=alice)
    frame = app.open("show_cart", {"number": 1})
    frame.get_by_role("button", name="Empty the cart").click()
    assert app.read_problems() == []
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlencode

from django.conf import settings as django_settings
from django.test import Client
from django.urls import reverse

if TYPE_CHECKING:
    from playwright.sync_api import FrameLocator, Page


class AppPage:
    """The preview page in a browser. Requires the preview's URLs, and pytest-playwright or another `Page`.

    `url` is the origin of the live server, and `path` that of the preview on it. `user` is logged in first, and must be
    permitted to open the page.
    """

    def __init__(
        self, page: "Page", url: str, *, user: Any = None, server: str = "default", path: str | None = None
    ) -> None:
        self.page = page
        self.url = url
        self.server = server
        self.path = reverse("mcp_apps_preview:page") if path is None else path
        if user is not None:
            client = Client()
            client.force_login(user)
            name = django_settings.SESSION_COOKIE_NAME
            page.context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": url}])

    @property
    def frame(self) -> "FrameLocator":
        """The document of the app."""
        return self.page.frame_locator("#stage iframe")

    def open(self, tool: str, arguments: Mapping[str, Any] | None = None) -> "FrameLocator":
        """Call a tool and open its app. Return its frame after the app has connected."""
        query = {"server": self.server, "tool": tool}
        self.page.goto(f"{self.url}{self.path}?{urlencode(query)}")
        self.page.locator(f'#tool option[value="{tool}"]').wait_for(state="attached")
        self.page.locator("#arguments").fill(json.dumps(dict(arguments or {})))
        self.page.locator("#call button.main").click()
        self.page.locator('#status[data-state="connected"]').wait_for()
        return self.frame

    def set_theme(self, theme: Literal["light", "dark"]) -> None:
        """Change the theme of the host."""
        self.page.locator(f'input[name="theme"][value="{theme}"]').check()

    def set_width(self, pixels: Literal[0, 390, 760]) -> None:
        """Change the width of the frame. 0 is the width of the page."""
        self.page.locator(f'input[name="width"][value="{pixels}"]').check()

    def close(self) -> None:
        """Close the app as a host does, and wait until its frame is removed."""
        self.page.locator("#close").click()
        self.page.locator('#status[data-state="closed"]').wait_for()

    def read_problems(self) -> list[str]:
        """Return the violations of the policy, and the uncaught errors of the app."""
        return self.page.locator("#problems li").all_inner_texts()

    def read_answer(self) -> str:
        """Return the text that the model gets."""
        return self.page.locator("#content").inner_text()
