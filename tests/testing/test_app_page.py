"""Pages of apps in a project's tests: found by name, and checked by the rules of the protocol."""

from typing import Any

import pytest

from mcp_django import Server
from mcp_django.contrib.apps import Apps, app
from mcp_django.testing import AppDocument, TestClient
from mcp_django.types import ResourceResult, TextResourceContents

MIME_TYPE = "text/html;profile=mcp-app"


@pytest.fixture
def server() -> Server:
    server = Server("Pages", alias="app-pages", extensions=[Apps()])
    app("panel", template="testapp/panel.html", server=server, csp={"connect_domains": ["https://api.example.com"]})

    @server.tool(ui="panel")
    def show_panel(number: int) -> str:
        return f"Panel {number}" if number else ""

    return server


async def test_an_app_is_found_by_its_name_and_by_its_tool(server: Server) -> None:
    client = TestClient(server)
    for name in ("panel", "show_panel"):
        page = await client.app(name)
        assert page.tool["name"] == "show_panel"
        assert "<!doctype html>" in page.html
        assert page.csp == {"connectDomains": ["https://api.example.com"]}
        assert page.result is None


async def test_an_app_is_checked_in_sessions_too(server: Server, db: None) -> None:
    async with TestClient(server, revision="2025-11-25") as client:
        page = await client.app("panel", {"number": 3})
    assert page.result is not None
    assert page.result["content"] == [{"type": "text", "text": "Panel 3"}]


async def test_a_result_without_text_is_refused(server: Server) -> None:
    with pytest.raises(AssertionError, match="no text for clients without apps"):
        await TestClient(server).app("panel", {"number": 0})


async def test_an_unknown_app_and_an_ambiguous_name_are_refused(server: Server) -> None:
    client = TestClient(server)
    with pytest.raises(AssertionError, match="no visible tool has it; with an app: show_panel"):
        await client.app("lost")
    server.tool(ui="panel", name="other")(lambda: "other")
    with pytest.raises(AssertionError, match="several tools show the app; name one of them: other, show_panel"):
        await client.app("panel")


BROKEN: dict[str, dict[str, Any]] = {
    "does not start with ui://": {"uri": "page://a"},
    "must not have 'csp'": {"tool": {"csp": {}}},
    "is no list of 'model' and 'app'": {"tool": {"visibility": ["user"]}},
    "has the media type 'text/html'": {"mime_type": "text/html"},
    "no HTML document": {"text": "<p>part</p>"},
    "unknown member 'permission'": {"ui": {"permission": {}}},
    "invalid member 'connect'": {"ui": {"csp": {"connect": []}}},
    "is no origin": {"ui": {"csp": {"connectDomains": ["https://a.example.com/path"]}}},
    "permissions {'camera': True} are invalid": {"ui": {"permissions": {"camera": True}}},
    "prefersBorder is no boolean": {"ui": {"prefersBorder": 1}},
    "differs between resources/list and the content": {"content_ui": {"prefersBorder": True}},
}


@pytest.mark.parametrize("problem", BROKEN)
async def test_broken_rules_are_named(problem: str) -> None:
    """Pages that are declared by hand may break each rule."""
    parts = BROKEN[problem]
    uri, mime_type = parts.get("uri", "ui://a"), parts.get("mime_type", MIME_TYPE)
    ui = parts.get("ui", {})
    server = Server("Broken", alias="app-broken")

    @server.resource(uri, name="panel", mime_type=mime_type, meta={"ui": ui})
    def read() -> ResourceResult:
        meta = {"ui": parts.get("content_ui", ui)}
        text = parts.get("text", "<!doctype html><title>A</title>")
        return ResourceResult([TextResourceContents(text, mime_type=mime_type, meta=meta)])

    server.tool(name="show", meta={"ui": {"resourceUri": uri, **parts.get("tool", {})}})(lambda: "panel")
    with pytest.raises(AssertionError, match=problem.replace("{", r"\{").replace("}", r"\}")):
        await TestClient(server).app("panel")


def test_a_page_without_a_policy_may_load_nothing() -> None:
    page = AppDocument(uri="ui://a", html="", tool={"_meta": {"ui": {}}}, entry=None, content={"uri": "ui://a"})
    assert page.csp == {}
