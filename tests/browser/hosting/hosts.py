"""Hosts of apps with one interface: the preview page, the strict host on the official bridge, and the Inspector."""

import base64
import json
from typing import Any, Literal
from urllib.parse import urlencode

from playwright.sync_api import BrowserContext, FrameLocator, Locator, Page

from mcp_django.contrib.apps.preview.testing import AppPage
from tests.browser.hosting.inspector import TOKEN, InspectorServer
from tests.browser.hosting.strict import StrictHostServer
from tests.support.waiting import WAIT_SECONDS

Theme = Literal["light", "dark"]


class AppTestHost:
    """A page that hosts one app at a time."""

    keeps_frame = True
    """False for a host whose policy lets a view navigate its own frame to another site."""
    checks_visibility = True
    """False for a host that lets a view call tools for the model."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.page: Page = context.new_page()
        self.page.set_default_timeout(WAIT_SECONDS * 1000)
        self.violations: list[str] = []
        self.page.on(
            "console",
            lambda message: self.violations.append(message.text) if "Content Security Policy" in message.text else None,
        )

    def open(self, tool: str, **arguments: Any) -> None:
        """Call a tool and show its app."""
        raise NotImplementedError

    def set_theme(self, theme: Theme) -> None:
        """Change the theme of the host."""
        raise NotImplementedError

    def close(self) -> None:
        """End the app, as a host does that removes it."""
        raise NotImplementedError

    @property
    def outer_frame(self) -> Locator:
        """The frame in the page, whose size follows that of the app."""
        return self.page.locator("iframe")

    @property
    def app(self) -> FrameLocator:
        """The document of the app."""
        raise NotImplementedError

    def read_observations(self) -> dict[str, str]:
        """Return the text that a view has written, once it is done."""
        self.app.locator("body[data-done]").wait_for()
        found: dict[str, str] = self.app.locator("body").evaluate("body => ({...body.dataset})")
        return found


class PreviewTestHost(AppTestHost):
    """The preview page of the package."""

    def __init__(self, context: BrowserContext, site: str) -> None:
        super().__init__(context)
        self.site = site
        self.preview = AppPage(self.page, site, path="/mcp/apps/")

    def open(self, tool: str, **arguments: Any) -> None:
        self.preview.open(tool, arguments)

    def set_theme(self, theme: Theme) -> None:
        self.preview.set_theme(theme)

    def close(self) -> None:
        self.preview.close()

    @property
    def app(self) -> FrameLocator:
        return self.preview.frame


class StrictTestHost(AppTestHost):
    """The strict host: the official bridge, and a sandbox of another origin."""

    def __init__(self, context: BrowserContext, site: str, server: StrictHostServer) -> None:
        super().__init__(context)
        self.site = site
        self.server = server
        self.sandbox = "sandbox.html"

    def open(self, tool: str, **arguments: Any) -> None:
        self.page.goto(self.server.host_origin)
        self.page.locator("body[data-ready]").wait_for()
        self.page.evaluate(
            "parts => host.open(...parts)",
            [f"{self.site}/mcp", f"{self.server.sandbox_origin}/{self.sandbox}", tool, arguments],
        )

    def set_theme(self, theme: Theme) -> None:
        self.page.evaluate("theme => host.setTheme(theme)", theme)

    def close(self) -> None:
        assert self.page.evaluate("host.close()") == {}

    @property
    def app(self) -> FrameLocator:
        return self.page.frame_locator("iframe").frame_locator("iframe")


class InspectorTestHost(AppTestHost):
    """The Inspector's web client: a sandbox of another origin, and a view without an origin."""

    keeps_frame = False
    checks_visibility = False

    def __init__(self, context: BrowserContext, site: str, server: InspectorServer) -> None:
        super().__init__(context)
        self.site = site
        self.server = server

    def open(self, tool: str, **arguments: Any) -> None:
        query = {
            "serverUrl": f"{self.site}/mcp",
            "transport": "http",
            "autoConnect": TOKEN,
            "openApp": tool,
            "appArgs": base64.urlsafe_b64encode(json.dumps(arguments).encode()).decode().rstrip("="),
        }
        self.page.goto(f"{self.server.url}/?{urlencode(query)}")
        self.page.get_by_test_id("open-app").click()

    def set_theme(self, theme: Theme) -> None:
        """Change the theme, which is light at first."""
        self.page.get_by_role("button", name="Toggle color scheme").click()

    def close(self) -> None:
        self.page.get_by_role("button", name="Close", exact=True).click()

    @property
    def app(self) -> FrameLocator:
        return self.page.frame_locator("iframe").frame_locator("iframe")
