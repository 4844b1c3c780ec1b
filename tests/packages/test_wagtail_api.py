"""The read-only API of Wagtail: views without standard actions, wrapped by a router of its own."""

import sys
from types import ModuleType
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import Client
from django.urls import path
from wagtail.api.v2.router import WagtailAPIRouter
from wagtail.api.v2.views import PagesAPIViewSet
from wagtail.documents.api.v2.views import DocumentsAPIViewSet
from wagtail.images.api.v2.views import ImagesAPIViewSet
from wagtail.models import Locale, Page, Site

from mcp_django.contrib.rest import expose
from mcp_django.schema import DeclarationError
from tests.repository.pages import ROOT, python_blocks, served_by
from tests.server.client import PipelineClient, make_server

api_router = WagtailAPIRouter("wagtailapi")
api_router.register_endpoint("pages", PagesAPIViewSet)
api_router.register_endpoint("images", ImagesAPIViewSet)
api_router.register_endpoint("documents", DocumentsAPIViewSet)
urlpatterns = [path("api/v2/", api_router.urls)]
pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]


@pytest.fixture
def page() -> Page:
    Locale.objects.get_or_create(language_code="en")
    root = Page.get_first_root_node() or Page.add_root(title="Root", slug="root")
    news: Page = root.add_child(title="News", slug="news", live=True)
    Site.objects.update_or_create(is_default_site=True, defaults={"hostname": "localhost", "root_page": news})
    return news


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> PipelineClient:
    """Expose the router as the page of the documentation does."""
    site_api = ModuleType("site_api")
    site_api.api_router = api_router  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "site_api", site_api)
    blocks = python_blocks(ROOT / "docs" / "expose" / "rest-routers.md")
    _, registry = served_by(next(block for block in blocks if "wagtail" in block), monkeypatch)
    server = make_server(registry=registry)
    assert not registry.problems
    return PipelineClient(server)


def call(client: PipelineClient, tool: str, **arguments: Any) -> Any:
    return async_to_sync(client.call)(tool, **arguments)


def test_every_endpoint_is_listed_and_read(client: PipelineClient) -> None:
    assert async_to_sync(client.names)() == [
        f"{endpoint}_{action}_view"
        for endpoint in ("documents", "images", "pages")
        for action in ("detail", "find", "listing")
    ]
    for endpoint in ("documents", "images"):
        assert call(client, f"{endpoint}_listing_view")["structuredContent"]["items"] == []


def test_results_equal_those_over_http(client: PipelineClient, page: Page) -> None:
    http = Client(SERVER_NAME="localhost")
    listed = call(client, "pages_listing_view", limit=5, type="wagtailcore.Page")["structuredContent"]
    assert listed == http.get("/api/v2/pages/?limit=5&type=wagtailcore.Page").json()
    assert [item["title"] for item in listed["items"]] == ["News"]
    assert (
        call(client, "pages_detail_view", pk=page.pk)["structuredContent"]
        == http.get(f"/api/v2/pages/{page.pk}/").json()
    )
    assert "No Page matches" in async_to_sync(client.error)("pages_detail_view", pk=0)


def test_a_view_without_its_router_explains_the_mapping_of_methods() -> None:
    with pytest.raises(DeclarationError, match=r"expose\(PagesAPIViewSet.as_view\(\{'get': 'listing_view'\}\)"):
        expose(PagesAPIViewSet, server=make_server(), actions="__all__")
