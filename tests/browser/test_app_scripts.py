"""The scripts of apps in Chromium, in a sandbox without forms and with the default policy of hosts."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django import forms
from django.template import Context, Template
from playwright.sync_api import Browser, FrameLocator, Page, expect

from mcp_django.contrib.apps.pages import PageSettings
from tests.support.waiting import WAIT_SECONDS

POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "media-src 'self' data:; connect-src 'none'"
)
HOST = """<!doctype html><body><script>
const log = [];
let view, next = 100;
const waiting = new Map();
const context = {theme: "dark", locale: "ar-EG", toolInfo: {tool: {name: "remote__shop__show"}},
  styles: {variables: {"--color-text-primary": "rgb(1, 2, 3)"}}, availableDisplayModes: ["inline", "fullscreen"]};
const post = (message) => view.contentWindow.postMessage({jsonrpc: "2.0", ...message}, "*");
const notify = (method, params) => post({method, params});
const ask = (method, params) => new Promise((done) => { waiting.set(++next, done); post({id: next, method, params}); });
window.addEventListener("message", async ({data, source}) => {
  if (source !== view.contentWindow) return;
  log.push(data);
  if (data.method === undefined) return waiting.get(data.id)(data);
  if (data.id === undefined) return;
  const {id, method, params} = data;
  if (method === "ui/initialize") post({id, result: {protocolVersion: params.protocolVersion, hostContext: context,
    hostInfo: {name: "test", version: "1"}, hostCapabilities: {serverTools: {}}}});
  else if (method === "tools/call") post({id, result: await window.serveTool(params)});
  else if (method === "ui/request-display-mode") post({id, result: {mode: "fullscreen"}});
  else if (method === "ui/open-link") post({id, error: {code: -32000, message: "Denied"}});
  else post({id, result: {}});
});
const open = (html) => {
  view = document.createElement("iframe");
  view.sandbox = "allow-scripts";
  view.srcdoc = html;
  document.body.append(view);
};
</script>"""
PAGE = """<!doctype html><html lang="en"><head><meta http-equiv="Content-Security-Policy" content="{{ policy }}">
{% load mcp_apps %}{% app_bridge %}</head><body>{{ body }}</body></html>"""
SETTINGS = PageSettings(name="shop", title="Shop", tool="show", prefix="", loads_static=False)


class OrderForm(forms.Form):
    title = forms.CharField(max_length=20)
    quantity = forms.IntegerField(min_value=2, required=False)
    day = forms.DateTimeField(required=False)
    gift = forms.BooleanField(required=False)
    tags = forms.MultipleChoiceField(choices=[("a", "A"), ("b", "B")], required=False)


class ScriptHost:
    """A host with one app. `calls` are the calls of tools; `serve` returns their results."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.calls: list[dict[str, Any]] = []
        self.complaints: list[str] = []
        self.serve: Callable[[dict[str, Any]], dict[str, Any]] = lambda params: {"content": []}
        page.set_default_timeout(WAIT_SECONDS * 1000)
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda problem: self.complaints.append(str(problem)))
        page.expose_function("serveTool", self._serve_tool)

    def reset(self) -> None:
        """Load the host again, without calls."""
        self.calls.clear()
        self.complaints.clear()
        self.serve = lambda params: {"content": []}
        self.page.goto("about:blank")
        self.page.set_content(HOST)

    def _serve_tool(self, params: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(params)
        return self.serve(params)

    def open(self, body: str, **context: Any) -> FrameLocator:
        """Show a page with this body, and wait until it is connected."""
        tags = "{% load mcp_apps %}"
        inner = Template(tags + body).render(Context({"mcp_app": SETTINGS, **context}))
        html = Template(PAGE).render(Context({"mcp_app": SETTINGS, "policy": POLICY, "body": inner}))
        self.page.evaluate(f"open({json.dumps(html)})")
        self.wait_for("ui/notifications/initialized")
        return self.page.frame_locator("iframe")

    def wait_for(self, method: str) -> dict[str, Any]:
        """Return the parameters of the latest message with this method, once there is one."""
        found = f"log.findLast((one) => one.method === {method!r})"
        self.page.wait_for_function(found)
        return dict(self.page.evaluate(found).get("params") or {})

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self.page.evaluate(f"notify({method!r}, {json.dumps(params)})")


@pytest.fixture(scope="module")
def shared_host(chromium: Browser) -> Iterator[ScriptHost]:
    """The page of all tests: a process of the browser takes longer to start than a test."""
    page = chromium.new_page()
    yield ScriptHost(page)
    page.close()


@pytest.fixture
def host(shared_host: ScriptHost) -> Iterator[ScriptHost]:
    shared_host.reset()
    yield shared_host
    assert shared_host.complaints == []


def describe(form: OrderForm) -> dict[str, Any]:
    """Return the result of a tool whose form is invalid."""
    errors = {name: [str(text) for text in texts] for name, texts in form.errors.items()}
    return {"isError": True, "content": [{"type": "text", "text": "invalid"}], "_meta": {"mcp-django/errors": errors}}


@pytest.mark.browser
def test_the_context_of_the_host_is_applied_and_changes(host: ScriptHost) -> None:
    view = host.open("<p>text</p>")
    root = view.locator("html")
    expect(root).to_have_attribute("data-theme", "dark")
    expect(root).to_have_attribute("lang", "ar-EG")
    expect(root).to_have_attribute("dir", "rtl")
    assert root.evaluate("root => root.style.getPropertyValue('--color-text-primary')") == "rgb(1, 2, 3)"
    host.notify("ui/notifications/host-context-changed", {"theme": "light", "locale": "de"})
    expect(root).to_have_attribute("data-theme", "light")
    expect(root).to_have_attribute("dir", "ltr")


@pytest.mark.browser
def test_inputs_and_results_reach_listeners_that_come_late(host: ScriptHost) -> None:
    view = host.open("<p>text</p>")
    host.notify("ui/notifications/tool-input-partial", {"arguments": {"number": 1}})
    host.notify("ui/notifications/tool-input", {"arguments": {"number": 12}})
    host.notify("ui/notifications/tool-result", {"content": [{"type": "text", "text": "a"}]})
    host.notify("ui/notifications/tool-cancelled", {"reason": "late"})
    seen = view.locator("body").evaluate(
        """async () => {
          const {onToolInput, onToolResult, onToolCancelled, getText} = mcpApp;
          const take = (listen) => new Promise((done) => listen(done));
          const [input, result, cancelled] = await Promise.all([onToolInput, onToolResult, onToolCancelled].map(take));
          return [input.number, getText(result), cancelled.reason];
        }"""
    )
    assert seen == [12, "a", "late"]


@pytest.mark.browser
def test_requests_reach_the_host_and_refusals_are_errors(host: ScriptHost) -> None:
    view = host.open("<p>text</p>")
    seen = view.locator("body").evaluate(
        """async () => {
          await mcpApp.sendMessage("Hello");
          await mcpApp.updateModelContext("Two books");
          await mcpApp.readResource("ui://a");
          await mcpApp.ping();
          const mode = await mcpApp.requestDisplayMode("fullscreen");
          const same = await mcpApp.requestDisplayMode("pip");
          const denied = await mcpApp.openLink("https://example.com").catch((error) => error.message);
          return [mode, same, denied];
        }"""
    )
    assert seen == ["fullscreen", "fullscreen", "Denied"]
    assert host.wait_for("ui/message") == {"role": "user", "content": [{"type": "text", "text": "Hello"}]}
    assert host.wait_for("ui/update-model-context") == {"content": [{"type": "text", "text": "Two books"}]}


@pytest.mark.browser
def test_the_size_follows_the_content_and_the_end_waits_for_listeners(host: ScriptHost) -> None:
    view = host.open("<p>text</p>")
    host.wait_for("ui/notifications/size-changed")
    view.locator("body").evaluate(
        "body => { body.style.height = '700px'; mcpApp.onTeardown(async () => { window.ended = true }) }"
    )
    host.page.wait_for_function(
        "log.some((one) => one.method === 'ui/notifications/size-changed' && one.params.height >= 700)"
    )
    assert host.page.evaluate("ask('ui/resource-teardown', {reason: 'end'}).then((reply) => reply.result)") == {}
    assert view.locator("body").evaluate("() => window.ended") is True
    assert host.page.evaluate("ask('ping', {}).then((reply) => reply.result)") == {}
    assert host.page.evaluate("ask('tools/list', {}).then((reply) => reply.error.code)") == -32601


@pytest.mark.browser
@pytest.mark.parametrize("way", ["click", "enter"])
def test_a_form_calls_its_tool_with_the_types_of_its_fields(host: ScriptHost, way: str) -> None:
    host.serve = lambda params: {"content": [], "structuredContent": {"html": "<li>saved</li>"}}
    view = host.open(
        '{% app_form form tool="save" target="#list" order=7 %}<ul id="list"></ul>', form=OrderForm(auto_id="id_%s")
    )
    view.get_by_label("Title").fill("tea")
    view.get_by_label("Quantity").fill("3")
    view.get_by_label("Day").fill("2026-01-31T14:30:05")
    view.get_by_label("Gift").check()
    view.get_by_label("Tags").select_option(["a", "b"])
    if way == "click":
        view.get_by_role("button", name="Save").click()
    else:
        view.get_by_label("Title").press("Enter")
    expect(view.locator("#list")).to_have_text("saved")
    [call] = host.calls
    arguments = {"order": 7, "title": "tea", "quantity": 3, "gift": True, "tags": ["a", "b"]}
    assert call == {"name": "remote__shop__save", "arguments": {**arguments, "day": "2026-01-31T14:30:05"}}


@pytest.mark.browser
def test_errors_return_to_their_fields_and_disappear(host: ScriptHost) -> None:
    host.serve = lambda params: describe(OrderForm(params["arguments"]))
    view = host.open('{% app_form form tool="save" %}', form=OrderForm())
    quantity = view.get_by_label("Quantity")
    view.locator("form").evaluate("form => { form.noValidate = true }")
    view.get_by_label("Title").fill("tea")
    quantity.fill("1")
    view.get_by_role("button", name="Save").click()
    message = "Ensure this value is greater than or equal to 2."
    expect(view.locator("#id_quantity_errors")).to_have_text(message)
    expect(quantity).to_have_attribute("aria-invalid", "true")
    expect(quantity).to_have_attribute("aria-describedby", "id_quantity_errors")
    expect(quantity).to_be_focused()

    host.serve = lambda params: {"content": [{"type": "text", "text": "saved"}]}
    quantity.fill("2")
    quantity.press("Enter")
    expect(view.locator("#id_quantity_errors")).to_be_hidden()
    expect(quantity).not_to_have_attribute("aria-invalid", "true")


@pytest.mark.browser
def test_a_form_shows_that_its_tool_has_succeeded(host: ScriptHost) -> None:
    host.serve = lambda params: {"content": [{"type": "text", "text": "Order 7"}]}
    view = host.open('{% app_form form tool="save" %}', form=OrderForm())
    status = view.get_by_role("status")
    view.get_by_label("Title").fill("tea")
    view.get_by_role("button", name="Save").click()
    expect(status).to_have_text("Saved.")
    host.serve = lambda params: {"isError": True, "content": [{"type": "text", "text": "closed"}]}
    view.get_by_role("button", name="Save").click()
    expect(view.get_by_role("alert")).to_have_text("closed")
    expect(status).to_have_text("")


@pytest.mark.browser
def test_other_errors_are_at_the_top_of_the_form(host: ScriptHost) -> None:
    host.serve = lambda params: {"isError": True, "content": [{"type": "text", "text": "The shop is <b>closed</b>"}]}
    view = host.open('{% app_form form tool="save" %}', form=OrderForm())
    view.get_by_label("Title").fill("tea")
    view.get_by_role("button", name="Save").click()
    alert = view.get_by_role("alert")
    expect(alert).to_have_text("The shop is <b>closed</b>")
    expect(alert).to_be_focused()


@pytest.mark.browser
def test_the_fields_may_be_one_argument(host: ScriptHost) -> None:
    view = host.open('{% app_form form tool="save" nest="values" pk=3 reset=True %}', form=OrderForm())
    view.get_by_label("Title").fill("tea")
    view.get_by_role("button", name="Save").click()
    expect(view.get_by_label("Title")).to_have_value("")
    [call] = host.calls
    assert call["arguments"] == {"pk": 3, "values": {"title": "tea", "gift": False, "tags": []}}


@pytest.mark.browser
def test_an_incomplete_form_is_not_sent(host: ScriptHost) -> None:
    view = host.open('{% app_form form tool="save" %}', form=OrderForm())
    view.get_by_role("button", name="Save").click()
    expect(view.get_by_label("Title")).to_be_focused()
    assert host.calls == []


@pytest.mark.browser
def test_elements_call_tools_and_show_html_of_the_server(host: ScriptHost) -> None:
    host.serve = lambda params: {
        "content": [],
        "structuredContent": {"html": f"<i>{params['arguments'].get('query', 'all')}</i><script>parent.x = 1</script>"},
    }
    view = host.open(
        '<div id="list" data-mcp-partial></div>'
        '<input aria-label="Search" name="query" data-mcp-tool="find" data-mcp-trigger="change"'
        ' data-mcp-target="#list">'
        '<button data-mcp-tool="find" data-mcp-target="#list" data-mcp-swap="append"><b>More</b></button>'
    )
    host.notify("ui/notifications/tool-result", {"content": [], "structuredContent": {"html": "<i>first</i>"}})
    expect(view.locator("#list i")).to_have_text("first")
    view.get_by_label("Search").fill("tea")
    view.get_by_label("Search").press("Tab")
    expect(view.locator("#list i")).to_have_text("tea")
    view.get_by_text("More").click()
    expect(view.locator("#list i")).to_have_text(["tea", "all"])
    assert [call["arguments"] for call in host.calls] == [{"query": "tea"}, {}]


def test_questions_and_html_of_other_servers_are_ignored(host: ScriptHost) -> None:
    origins = {"own": "shop__", "both": "remote__shop__", "other": "evil__", "part": "hop__", "none": None}

    def serve(params: dict[str, Any]) -> dict[str, Any]:
        name = params["name"].rpartition("__")[2]
        if name == "answer_question":
            return {"content": []}
        origin = origins[name]
        meta = {} if origin is None else {"mcp-django/origin": origin}
        question = {"mcp-django/question": {"tool": "answer_question", "token": name, "message": name}}
        return {"content": [], "structuredContent": {"html": f"<i>{name}</i>"}, "_meta": {**meta, **question}}

    host.serve = serve
    view = host.open(
        """<p id="out" data-mcp-partial>empty</p><script>
        const asked = [], shown = [];
        mcpApp.askUser = async (question) => { asked.push(question.message); return {action: "decline"}; };
        </script>"""
    )
    for name in origins:
        view.locator("body").evaluate(f"() => mcpApp.callTool('{name}')")
    assert view.locator("body").evaluate("() => asked") == ["own", "both", "none"]
    result = "{content: [], structuredContent: {html: '<i>x</i>'}, _meta: {'mcp-django/origin': '%s'}}"
    host.page.evaluate(f"() => notify('ui/notifications/tool-result', {result % 'evil__'})")
    expect(view.locator("#out")).to_have_text("empty")
    host.page.evaluate(f"() => notify('ui/notifications/tool-result', {result % 'shop__'})")
    expect(view.locator("#out")).to_have_text("x")
