"""The blocks of docs/talk-back/apps.md and model-apps.md."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from mcp_django import Server, conf
from mcp_django.contrib.apps import Apps
from mcp_django.orm.declaration.base import MODEL_APPS
from mcp_django.testing import TestClient
from tests.repository.pages import ROOT, python_blocks, served_by

PAGE = ROOT / "docs" / "talk-back" / "apps.md"
SETTINGS, TOOLS, PARTIALS, FORMS, TEST = python_blocks(PAGE)


def test_the_settings_of_the_page_are_valid(settings: Any) -> None:
    names: dict[str, Any] = {}
    exec(SETTINGS, names)
    settings.MCP = names["MCP"]
    assert conf.get_settings().servers["default"].extensions == ("mcp_django.contrib.apps.Apps",)
    assert set(names["INSTALLED_APPS"]) - {...} <= set(settings.INSTALLED_APPS)


async def test_the_app_of_the_page_is_served_and_its_test_passes(
    monkeypatch: pytest.MonkeyPatch, templates: dict[str, str]
) -> None:
    templates["shop/cart.html"] = "<!doctype html><title>Cart</title>"
    _, registry = served_by(TOOLS, monkeypatch)
    server = Server("Shop", alias="app-docs", registry=registry, extensions=[Apps()])
    names: dict[str, Any] = {}
    exec(TEST, names)
    names["TestClient"] = lambda: TestClient(server)
    await names["test_the_cart_has_an_app"]()


@pytest.mark.django_db
async def test_the_result_of_the_page_has_html_and_text(
    monkeypatch: pytest.MonkeyPatch, templates: dict[str, str]
) -> None:
    templates["shop/products.html"] = "<!doctype html>"
    templates["shop/product_list.html"] = "<ul>{% for product in products %}<li>{{ product.name }}{% endfor %}</ul>"
    _, registry = served_by(PARTIALS, monkeypatch)
    server = Server("Shop", alias="app-docs", registry=registry, extensions=[Apps()])
    page = await TestClient(server).app("products", {"query": "tea"})
    assert page.result is not None
    assert page.result["structuredContent"] == {"html": "<ul></ul>"}


@pytest.mark.django_db
async def test_the_form_of_the_page_saves_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    _, registry = served_by(FORMS, monkeypatch)
    client = TestClient(Server("Shop", alias="app-docs", registry=registry, extensions=[Apps()]))
    result = await client.call_tool("add_product", {"name": "Tea", "price": 3.5})
    assert result["content"] == [{"type": "text", "text": "Added Tea"}]
    result = await client.call_tool("add_product", {"name": "", "price": 3.5})
    assert list(result["_meta"]["mcp-django/errors"]) == ["name"]


@pytest.mark.django_db
async def test_the_toolset_of_the_page_about_models_has_its_apps(
    monkeypatch: pytest.MonkeyPatch, templates: dict[str, str]
) -> None:
    [block] = python_blocks(PAGE.with_name("model-apps.md"))
    _, registry = served_by(block, monkeypatch)
    server = Server("Groups", alias="model-apps-docs", registry=registry, extensions=[Apps()])
    async with TestClient(server, user=await User.objects.acreate_superuser("root")) as client:
        linked = {tool["name"] for tool in await client.list_tools() if "ui" in tool.get("_meta", {})}
    assert linked == {f"group_{name}" for name in MODEL_APPS}
