"""Apps in the playground, in a browser: a good one that acts as another user, and a hostile one that gets nothing."""

import mimetypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import django.contrib.admin
import pytest
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings as django_settings
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from playwright.sync_api import Browser, Page, Route, expect
from pytest_django.fixtures import Settings
from pytest_django.live_server_helper import LiveServer

from mcp_django import Context, Server, wiring
from mcp_django.contrib import apps
from mcp_django.contrib import playground as playground_app
from mcp_django.server.primitives.registry import get_registry
from tests.browser.policy import POLICY
from tests.support.waiting import WAIT_SECONDS

ALIAS = "apps_in_place"
READS = {"readOnlyHint": True}
VIEWS = Path(__file__).with_name("hosting") / "site" / "views"
SITE_POLICY_COOKIE = "site_policy"
STATIC = {
    name: Path(source.__file__).with_name("static")
    for name, source in (("mcp_playground", playground_app), ("mcp_apps", apps), ("admin", django.contrib.admin))
}
CART = """<body><main><p id="input"></p><p id="result"></p><p id="seen"></p></main><script>
const show = (id, value) => { document.getElementById(id).textContent = JSON.stringify(value); };
handlers["ui/notifications/tool-input"] = (params) => show("input", params.arguments);
handlers["ui/notifications/tool-result"] = (params) => show("result", params.structuredContent);
handlers["ui/notifications/host-context-changed"] = ({ theme, containerDimensions: { width } }) => {
  observe("theme", theme);
  observe("width", width);
};
const call = async (name, args = {}) => {
  const answer = await request("tools/call", { name, arguments: args });
  show("seen", answer.error?.message ?? answer.result.content[0].text);
};
start().then(() => send({ method: "ui/notifications/size-changed", params: { width: 300, height: 222 } }));
</script></body></html>"""


class SitePolicyMiddleware:
    """Set a strict policy, unless a cookie disables it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Return the response with the policy."""
        response = self.get_response(request)
        if SITE_POLICY_COOKIE not in request.COOKIES:
            response.headers.setdefault("Content-Security-Policy", POLICY)
        return response


@pytest.fixture(scope="module")
def live_site() -> Iterator[LiveServer]:
    """A server with the policy. Django reads the middleware once, when the server starts."""
    with override_settings(MIDDLEWARE=[f"{__name__}.SitePolicyMiddleware", *django_settings.MIDDLEWARE]):
        server = LiveServer("localhost")
    yield server
    server.stop()


@pytest.fixture
def server(transactional_db: None, settings: Settings) -> Iterator[Server]:
    """A server with apps, in the playground."""
    settings.ALLOWED_HOSTS = ["*"]
    settings.MCP = {
        "AUTH": "none",
        "SERVERS": {"default": {}, ALIAS: {"STORED": False}},
        "RECORD": {"ROLLUPS": False, "CALLS": "none", "RUNNING": False},
        "PLAYGROUND": {"ENABLED": True},
    }
    server, registry = wiring.get_server(ALIAS), get_registry(ALIAS)

    def declare_app(name: str, html: str) -> None:
        uri = f"ui://views/{name}"

        @server.resource(uri, name=name, mime_type="text/html;profile=mcp-app")
        async def read_view() -> str:
            return html

        @server.tool(name=f"show_{name}", annotations=READS, meta={"ui": {"resourceUri": uri}})
        async def show(ctx: Context, number: int = 1) -> dict[str, Any]:
            return {"number": number, "user": ctx.principal.user.get_username()}

    bridge = (VIEWS / "bridge.html").read_text()
    # The only other host is the collector, which counts the requests that reach the network.
    hostile = (VIEWS / "hostile.html").read_text().replace("WSCOLLECTOR", "ws://collector.example")
    declare_app("cart", bridge + CART)
    declare_app("hostile", bridge + hostile.replace("COLLECTOR", "https://collector.example"))

    @server.tool
    async def save(ctx: Context, name: str) -> str:
        sure = await ctx.elicit(f"Save {name}?", bool)
        return f"{name} by {ctx.principal.user.get_username()}: {sure.data}"

    yield server
    for tool in list(registry.tools):
        registry.remove("tool", tool.name)
    for resource in list(registry.resources):
        registry.remove("resource", resource.key)


class Playground:
    """The page in the browser of root, acting as ada."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.app = page.frame_locator("#playground-app iframe")
        self.collected: list[str] = []

    def run(self, tool: str) -> None:
        """Send the form of a tool, and wait until its app is connected."""
        self.page.goto(f"/admin/mcp_playground/playground/?server={ALIAS}&as=ada&name={tool}")
        self.page.locator("button[value=send]").click()
        self.page.locator("[data-app-part=status][data-state=connected]").wait_for()

    def call(self, name: str, arguments: str = "{}") -> None:
        """Let the app call a tool, without waiting for the answer."""
        self.app.locator("body").evaluate(f"() => {{ call({name!r}, {arguments}) }}")


@pytest.fixture
def playground(chromium: Browser, live_site: LiveServer, server: Server) -> Iterator[Playground]:
    User.objects.create_user("ada")
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    url, name = str(live_site.url), django_settings.SESSION_COOKIE_NAME
    context = chromium.new_context(base_url=url, viewport={"width": 1280, "height": 900}, color_scheme="light")
    context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": url}])
    page = context.new_page()
    page.set_default_timeout(WAIT_SECONDS * 1000)
    playground, problems = Playground(page), list[str]()
    page.on("pageerror", lambda problem: problems.append(str(problem)))

    def collect(route: Route) -> None:
        playground.collected.append(route.request.url)
        route.abort()

    page.route("**/static/**", send_static_file)
    context.route("https://collector.example/**", collect)
    yield playground
    context.close()
    assert problems == []


def send_static_file(route: Route) -> None:
    """Send a file of the package or of the admin, because the server has none."""
    path = urlsplit(route.request.url).path.partition("/static/")[2]
    kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
    route.fulfill(body=(STATIC[path.partition("/")[0]] / path).read_bytes(), content_type=kind)


def test_an_embedded_app_acts_as_the_user(playground: Playground) -> None:
    page, app = playground.page, playground.app
    playground.run("show_cart")
    expect(app.locator("#input")).to_have_text("{}")
    expect(app.locator("#result")).to_have_text('{"number":1,"user":"ada"}')
    frame = page.locator("#playground-app iframe")
    expect(frame).to_have_css("height", "222px")
    page.get_by_label("Dark", exact=True).check()
    page.get_by_label("390", exact=True).check()
    expect(app.locator("body[data-theme=dark][data-width='390']")).to_be_visible()
    expect(page.locator("[data-app-part=problems] li")).to_have_count(0)

    # A tool that may write waits for the operator, then asks; another one is refused.
    playground.call("save", '{name: "tea"}')
    waiting = page.locator("#playground-app-runs")
    expect(waiting).to_contain_text("The app wants to run save as ada. This may write.")
    violations = Axe().run(page, options={"rules": {"color-contrast": {"enabled": False}}}).response["violations"]
    assert [rule["id"] for rule in violations if rule["id"] not in ("link-in-text-block", "target-size")] == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    waiting.get_by_role("button", name="Run it").click()
    waiting.locator("[name=question-1-argument-value]").select_option("true")
    waiting.get_by_role("button", name="Send the answers").click()
    expect(app.locator("#seen")).to_have_text('"tea by ada: true"', ignore_case=True)
    expect(waiting.locator("form")).to_have_count(0)
    expect(page.locator("[data-part=rounds] h3")).to_have_text(
        ["Round 1", "App 1: save, Round 1", "App 1: save, Round 2"]
    )
    assert "Sent by the app of show_cart in the playground as ada." in LogEntry.objects.values_list(
        "change_message", flat=True
    )
    playground.call("save", '{name: "salt"}')
    waiting.get_by_role("button", name="Refuse").click()
    expect(app.locator("#seen")).to_have_text('"The user refused the request."')
    playground.call("unknown")
    expect(app.locator("#seen")).to_contain_text("ada does not see it")

    page.get_by_role("button", name="Close the app").click()
    expect(frame).to_have_count(0)
    page.locator("button[value=send]").click()
    expect(app.locator("#result")).to_have_text('{"number":1,"user":"ada"}')


@pytest.mark.parametrize("has_policy", [True, False], ids=["strict site", "site without a policy"])
def test_a_hostile_embedded_app_gets_nothing(playground: Playground, has_policy: bool) -> None:
    page = playground.page
    if not has_policy:
        page.context.add_cookies([{"name": SITE_POLICY_COOKIE, "value": "none", "domain": "localhost", "path": "/"}])
    playground.run("show_hostile")
    address = page.url
    playground.app.locator("body[data-done]").wait_for()
    found = playground.app.locator("body").evaluate("body => ({...body.dataset})")
    attempts = {name: value for name, value in found.items() if name not in ("done", "closing", "method")}
    assert len(attempts) >= 18
    assert {name: value for name, value in attempts.items() if value not in ("refused", "nothing")} == {}
    problems = page.locator("[data-app-part=problems]")
    expect(problems).to_contain_text("violation: connect-src https://collector.example/fetch")
    source = page.locator("#playground-app iframe").evaluate("frame => frame.src")
    playground.app.locator("body").evaluate("() => navigate()")
    expect(problems).to_contain_text("violation: frame-src https://collector.example")
    assert playground.collected == []
    assert (page.url, len(page.context.pages)) == (address, 1)

    page.goto(source)
    assert page.evaluate("[origin, parent === self]") == ["null", True]
