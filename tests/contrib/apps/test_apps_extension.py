"""The capability, the links of tools, and the pages as resources, in both eras."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from mcp_django import Context, MCPError, Server, ToolResult
from mcp_django.contrib.apps import app, has_apps
from mcp_django.contrib.apps.declaration import App
from mcp_django.providers import Mount
from mcp_django.schema import DeclarationError
from mcp_django.testing import TestClient

pytestmark = pytest.mark.django_db
MIME_TYPE = "text/html;profile=mcp-app"
DECLARED = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": [MIME_TYPE]}}}
MakeServer = Callable[..., Server]


@pytest.fixture(params=["2026-07-28", "2025-11-25"])
def revision(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def add_cart(server: Server, **options: Any) -> None:
    """Declare an app, a tool that it shows, and a tool for the app only."""
    app("cart", template="page.html", server=server, title="Cart", context={"greeting": "Hello"}, **options)

    @server.tool(ui="cart")
    def show_cart(number: int) -> ToolResult:
        """Show a cart."""
        return ToolResult(f"Cart {number}", structured={"number": number})

    @server.tool(visibility=["app"])
    def save_cart(number: int) -> str:
        """Save a cart."""
        return f"Saved {number}"


async def test_the_server_declares_the_extension(make_app_server: MakeServer, revision: str) -> None:
    async with TestClient(make_app_server(), revision=revision) as client:
        capabilities = (await client.initialize())["capabilities"]
    assert capabilities["extensions"] == {"io.modelcontextprotocol/ui": {}}


async def test_a_tool_links_to_its_page_and_lists_its_visibility(make_app_server: MakeServer, revision: str) -> None:
    server = make_app_server()
    add_cart(server)
    async with TestClient(server, revision=revision) as client:
        tools = {tool["name"]: tool for tool in await client.list_tools()}
    uri = tools["show_cart"]["_meta"]["ui"].pop("resourceUri")
    assert re.fullmatch(rf"ui://{server.alias}/cart/show_cart-[0-9a-f]{{12}}\.html", uri)
    assert tools["show_cart"]["_meta"]["ui"] == {"visibility": ["model", "app"]}
    assert tools["save_cart"]["_meta"] == {"ui": {"visibility": ["app"]}}


async def test_the_page_is_a_resource_with_the_same_policy_in_list_and_content(
    make_app_server: MakeServer, revision: str
) -> None:
    server = make_app_server()
    add_cart(server, csp={"connect_domains": ["https://api.example.com"]}, prefers_border=True)
    async with TestClient(server, revision=revision) as client:
        tools = {tool["name"]: tool for tool in await client.list_tools()}
        uri = tools["show_cart"]["_meta"]["ui"]["resourceUri"]
        [entry] = await client.list_resources()
        [item] = await client.read_resource(uri)
    policy = {"ui": {"csp": {"connectDomains": ["https://api.example.com"]}, "prefersBorder": True}}
    assert (entry["uri"], entry["name"], entry["mimeType"], entry["_meta"]) == (uri, "cart", MIME_TYPE, policy)
    assert (item["uri"], item["mimeType"], item["_meta"]) == (uri, MIME_TYPE, policy)
    assert item["text"].startswith("<!doctype html>")
    assert "Hello" in item["text"]


async def test_revisions_without_meta_get_the_tool_and_the_html_alone(make_app_server: MakeServer) -> None:
    server = make_app_server()
    add_cart(server)
    async with TestClient(server, revision="2024-11-05") as client:
        tools = await client.list_tools()
    assert all("_meta" not in tool for tool in tools)


async def test_clients_may_cache_a_page_that_all_callers_see(make_app_server: MakeServer) -> None:
    server = make_app_server()
    add_cart(server)
    client = TestClient(server)
    [entry] = await client.list_resources()
    result = await client.request("resources/read", {"uri": entry["uri"]})
    assert (result["ttlMs"], result["cacheScope"]) == (86_400_000, "public")


async def test_a_page_behind_a_permission_is_not_for_shared_caches(make_app_server: MakeServer) -> None:
    server = make_app_server()
    app("staff", template="page.html", server=server)

    @server.tool(ui="staff", permission="shop.view_product")
    def show_staff() -> str:
        return "staff"

    client = TestClient(server)
    [entry] = await client.list_resources()
    result = await client.request("resources/read", {"uri": entry["uri"]})
    assert (result["ttlMs"], result["cacheScope"]) == (86_400_000, "private")


async def test_only_callers_who_see_the_tool_see_its_page(
    make_app_server: MakeServer, django_user_model: Any, revision: str
) -> None:
    server = make_app_server()
    app("staff", template="page.html", server=server)

    @server.tool(ui="staff", permission="shop.view_product")
    def show_staff() -> str:
        return "staff"

    [entry] = await TestClient(server).list_resources()
    visitor = await django_user_model.objects.acreate(username="visitor")
    async with TestClient(server, user=visitor, revision=revision) as client:
        assert await client.list_tools() == []
        assert await client.list_resources() == []
        with pytest.raises(MCPError, match="not found"):
            await client.read_resource(entry["uri"])


async def test_the_uri_of_another_deployment_returns_the_current_page(make_app_server: MakeServer) -> None:
    server = make_app_server()
    add_cart(server)
    uri = f"ui://{server.alias}/cart/show_cart-0123456789ab.html"
    [item] = await TestClient(server).read_resource(uri)
    assert (item["uri"], "Hello" in item["text"]) == (uri, True)


@pytest.mark.parametrize(
    "uri",
    [
        "ui://{alias}/cart/show_cart.html",
        "ui://{alias}/cart/save_cart-0123456789ab.html",
        "ui://{alias}/other/show_cart-0123456789ab.html",
        "ui://other/cart/show_cart-0123456789ab.html",
        "ui://{alias}/cart/../show_cart-0123456789ab.html",
    ],
)
async def test_other_uris_are_not_found(make_app_server: MakeServer, uri: str) -> None:
    server = make_app_server()
    add_cart(server)
    with pytest.raises(MCPError, match="not found"):
        await TestClient(server).read_resource(uri.format(alias=server.alias))


async def test_the_uri_changes_with_the_template(make_app_server: MakeServer, templates: dict[str, str]) -> None:
    uris = set()
    for text in ("One", "Two"):
        templates["page.html"] = f"<!doctype html>{text}"
        server = make_app_server()
        server.alias = "apps-same"
        add_cart(server)
        [entry] = await TestClient(server).list_resources()
        uris.add(entry["uri"])
    assert len(uris) == 2


async def test_a_mount_serves_the_page_under_the_prefixed_name(make_app_server: MakeServer, revision: str) -> None:
    inner = Server("Inner", alias="apps-inner")
    add_cart(inner)
    host = make_app_server(mounts=[Mount(inner, prefix="shop", uri_prefix="shop")])
    async with TestClient(host, revision=revision) as client:
        tools = {tool["name"]: tool for tool in await client.list_tools()}
        uri = tools["shop__show_cart"]["_meta"]["ui"]["resourceUri"]
        [entry] = await client.list_resources()
        [item] = await client.read_resource(uri)
    assert uri == entry["uri"] == item["uri"]
    assert uri.startswith(f"ui://{host.alias}/cart/shop__show_cart-")
    assert "&quot;prefix&quot;: &quot;shop__&quot;" in item["text"]


async def test_the_permission_of_a_mount_holds_for_its_pages(
    make_app_server: MakeServer, django_user_model: Any
) -> None:
    inner = make_app_server()
    add_cart(inner)
    host = make_app_server(mounts=[Mount(inner, prefix="shop", permission="shop.view_product")])
    [entry] = await TestClient(host).list_resources()
    visitor = await django_user_model.objects.acreate(username="visitor")
    client = TestClient(host, user=visitor)
    assert await client.list_resources() == []
    with pytest.raises(MCPError, match="not found"):
        await client.read_resource(entry["uri"])


async def test_a_template_that_fails_leaves_the_tool_with_its_text(
    make_app_server: MakeServer, templates: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    templates["page.html"] = "<p>no document</p>"
    server = make_app_server()
    add_cart(server)
    client = TestClient(server)
    tools = {tool["name"]: tool for tool in await client.list_tools()}
    assert "_meta" not in tools["show_cart"]
    assert await client.list_resources() == []
    assert (await client.call_tool("show_cart", {"number": 3}))["content"] == [{"type": "text", "text": "Cart 3"}]
    assert "begin it with <!doctype html>" in caplog.text


async def test_an_app_that_fails_takes_no_other_app_away(
    make_app_server: MakeServer, templates: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    templates["half.html"] = "<!doctype html>\ud800"
    server = make_app_server()
    add_cart(server)
    for name, template in (("half", "half.html"), ("late", "page.html")):
        app(name, template=template, server=server)
        server.tool(lambda: "text", name=name, ui=name)
    build_meta = App.to_meta

    def fail_late(late: App) -> Any:
        return build_meta(late) if late.name != "late" else 1 / 0

    monkeypatch.setattr(App, "to_meta", fail_late)
    client = TestClient(server)
    assert [entry["name"] for entry in await client.list_resources()] == ["cart"]
    assert {"show_cart", "half", "late"} <= {tool["name"] for tool in await client.list_tools()}


async def test_a_tool_knows_if_its_client_shows_apps(make_app_server: MakeServer, revision: str) -> None:
    server = make_app_server()

    @server.tool
    async def ask(ctx: Context) -> str:
        return "apps" if has_apps(ctx) else "text"

    for capabilities, expected in (
        (DECLARED, "apps"),
        ({}, "text"),
        ({"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html"]}}}, "text"),
        ({"extensions": {"io.modelcontextprotocol/ui": {}}}, "text"),
    ):
        async with TestClient(server, revision=revision, capabilities=capabilities) as client:
            result = await client.call_tool("ask")
        assert result["content"][0]["text"] == expected


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"csp": {"connect_domains": ["https://api.example.com/path"]}}, "is no origin"),
        ({"csp": {"connect_domains": ["http://api.example.com"]}}, "is no origin"),
        ({"csp": {"resource_domains": ["wss://api.example.com"]}}, "is no origin"),
        ({"csp": {"resource_domains": ["https://a.example.com; script-src *"]}}, "is no origin"),
        ({"csp": {"resource_domains": ["*"]}}, "is no origin"),
        ({"csp": {"resource_domains": "https://a.example.com"}}, "is a list"),
        ({"csp": {"connectDomains": []}}, "csp has no 'connectDomains'"),
        ({"csp": 3}, "is invalid"),
        ({"permissions": ["shop.view_product"]}, "permissions="),
        ({"template": ""}, "template=''"),
    ],
)
async def test_invalid_declarations_are_refused(
    make_app_server: MakeServer, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DeclarationError, match=re.escape(problem)):
        app("cart", **{"template": "page.html", "server": make_app_server(), **options})


async def test_a_name_is_declared_once(make_app_server: MakeServer) -> None:
    server = make_app_server()
    app("cart", template="page.html", server=server)
    with pytest.raises(DeclarationError, match="already has the app 'cart'"):
        app("cart", template="page.html", server=server)


@pytest.mark.parametrize(
    "options", [{"ui": "Cart"}, {"ui": "a/b"}, {"ui": 3}, {"visibility": "app"}, {"visibility": ["user"]}]
)
async def test_invalid_options_of_a_tool_are_refused(make_app_server: MakeServer, options: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        make_app_server().tool(**options)(lambda: "text")
