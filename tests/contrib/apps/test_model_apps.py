"""Ready-made apps of a ModelToolset with `app = True`."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils.translation import override

import mcp_django.contrib.apps
from mcp_django import ModelToolset, Server
from mcp_django.contrib.apps.checks import check_apps, find_blocked_sources
from mcp_django.contrib.apps.declaration import BUILT_IN_APPS, app
from mcp_django.contrib.apps.model_apps import collect_texts
from mcp_django.contrib.apps.static_files import escape_script
from mcp_django.providers import Mount
from mcp_django.testing import TestClient
from tests.shop.models import Product

pytestmark = pytest.mark.django_db
MakeServer = Callable[..., Server]
UPLOT = Path(mcp_django.contrib.apps.__file__).parent / "static" / "mcp_apps" / "uplot"
UPLOT_SHA256 = {
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
"""Digests of the files in uplot 1.6.32 of npm."""


class Products(ModelToolset):
    model = Product
    fields = ["name", "stock", "category"]
    search_fields = ["name"]
    tools = ["describe", "list", "get", "count", "aggregate", "create", "update", "delete"]
    confirm = ["delete", "update"]
    app = True


@pytest.fixture
def server(make_app_server: MakeServer) -> Server:
    return make_app_server(toolsets=[Products()])


@pytest.fixture
def admin() -> User:
    return User.objects.create_superuser("root")


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
async def test_each_tool_has_its_app(server: Server, admin: User, revision: str) -> None:
    async with TestClient(server, revision=revision, user=admin) as client:
        uris = {
            tool["name"].removeprefix("product_"): tool["_meta"]["ui"]["resourceUri"].split("/")[3]
            for tool in await client.list_tools()
            if "_meta" in tool
        }
    assert uris == {
        "list": "model-table",
        "get": "model-card",
        "aggregate": "model-chart",
        "create": "model-card",
        "update": "model-card",
        "create_form": "model-form",
        "update_form": "model-form",
        "delete": "confirmation",
    }


async def test_each_page_is_valid_and_has_no_data(server: Server, admin: User) -> None:
    await Product.objects.acreate(name="Secret tea")
    pages = {}
    async with TestClient(server, user=admin) as client:
        for verb, arguments in (("list", {}), ("aggregate", {"group_by": ["stock"]}), ("create_form", {})):
            page = await client.app(f"product_{verb}", arguments)
            pages[verb] = page.html
            assert page.result is not None
            assert str(page.result["content"][0]["text"])
    for verb, html in pages.items():
        kind = {"list": "table", "aggregate": "chart", "create_form": "form"}[verb]
        assert find_blocked_sources(BUILT_IN_APPS[f"model-{kind}"], html) == []
        assert "Secret tea" not in html
    assert ("uPlot" in pages["aggregate"], "uPlot" in pages["list"]) == (True, False)
    assert list(check_apps(server)) == []


async def test_hosts_without_apps_get_the_rows_and_the_fields_as_text(server: Server, admin: User) -> None:
    await Product.objects.acreate(name="Tea", stock=3)
    async with TestClient(server, user=admin) as client:
        texts = {
            verb: (await client.call_tool(f"product_{verb}", arguments))["content"][0]["text"]
            for verb, arguments in (("list", {}), ("aggregate", {"group_by": ["stock"]}), ("create_form", {}))
        }
    assert '"Tea"' in texts["list"]
    assert '"count"' in texts["aggregate"]
    assert '"product_create"' in texts["create_form"]
    assert '"maxLength"' in texts["create_form"]


@pytest.mark.parametrize("name", ["mcp_apps/shop/product/table.html", "mcp_apps/shop/table.html"])
async def test_a_template_of_the_project_replaces_a_page(
    server: Server, admin: User, templates: dict[str, str], name: str
) -> None:
    templates[name] = (
        '{% extends "mcp_apps/model/table.html" %}{% block content %}<h1>Ours</h1>{{ block.super }}{% endblock %}'
    )
    async with TestClient(server, user=admin) as client:
        assert "<h1>Ours</h1>" in (await client.app("product_list")).html
        assert "<h1>Ours</h1>" not in (await client.app("product_aggregate")).html


async def test_an_app_of_the_project_replaces_one(server: Server, admin: User, templates: dict[str, str]) -> None:
    templates["other.html"] = "<!doctype html><title>other</title>"
    app("model-table", template="other.html", server=server)
    async with TestClient(server, user=admin) as client:
        assert "<title>other</title>" in (await client.app("product_list")).html


async def test_a_mounted_model_has_its_pages_under_its_names_there(make_app_server: MakeServer, admin: User) -> None:
    inner = Server("Inner", alias="model-apps-inner", toolsets=[Products()])
    host = make_app_server(mounts=[Mount(inner, prefix="far")])
    async with TestClient(host, user=admin) as client:
        html = (await client.app("far__product_list")).html
    assert '"tool": "product_list", "verb": "list", "prefix": "far__"' in html


def test_texts_are_in_the_languages_of_the_site(settings: Any) -> None:
    settings.LANGUAGES = [("en", "English"), ("de", "Deutsch")]
    with override("en"):
        texts = collect_texts()
    assert set(texts) == {"de"}
    assert texts["de"]["Yes"] == "Ja"


def test_uplot_is_that_of_npm_and_has_its_licence() -> None:
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in UPLOT.iterdir()}
    assert found == UPLOT_SHA256
    script = (UPLOT / "uPlot.iife.min.js").read_text()
    assert escape_script(script) == script
    assert not any(word in script for word in ("eval(", "new Function", "import("))
