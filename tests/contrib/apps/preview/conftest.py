"""A server with hand-written views, and its preview page."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from pytest_django.fixtures import Settings

from mcp_django import Context, resource, tool
from mcp_django.contrib.apps.pages import MIME_TYPE
from mcp_django.protocol.content import TextResourceContents
from mcp_django.server.primitives import registry
from mcp_django.server.primitives.results import ResourceResult

ALIAS = "previewed"
VIEW = "<!DOCTYPE html><html><head lang=en><title>View</title></head></html>"


@pytest.fixture
def declarations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tools and resources of the server, in a registry of the test's own."""
    monkeypatch.setattr(registry, "REGISTRIES", {})

    @resource("ui://views/plain", server=ALIAS, mime_type=MIME_TYPE)
    def plain() -> str:
        return VIEW

    @resource("ui://views/maps", server=ALIAS, mime_type=MIME_TYPE)
    def maps() -> ResourceResult:
        csp = {"resourceDomains": ["https://tiles.example", "https://evil.example; script-src *"]}
        return ResourceResult([TextResourceContents(VIEW, mime_type=MIME_TYPE, meta={"ui": {"csp": csp}})])

    listed = {"ui": {"csp": {"connectDomains": ["https://api.example:8443"]}}}

    @resource("ui://views/listed", server=ALIAS, mime_type=MIME_TYPE, meta=listed)
    def with_listed_csp() -> str:
        return VIEW

    @resource("ui://views/text", server=ALIAS, mime_type="text/html")
    def text() -> str:
        return VIEW

    @tool(server=ALIAS, title="Plain", meta={"ui": {"resourceUri": "ui://views/plain"}})
    def show(ctx: Context, name: str, count: int, page: int = 2) -> str:
        return f"{name} for {ctx.user}"

    @tool(server=ALIAS, permission="auth.delete_user", meta={"ui": {"resourceUri": "ui://views/plain"}})
    def show_secret() -> str:
        return "secret"

    @tool(server=ALIAS, meta={"ui": {"visibility": ["app"]}})
    def for_apps() -> str:
        return "for apps"

    @tool(server=ALIAS, meta={"ui": {"visibility": ["model"], "resourceUri": "ui://views/plain"}})
    def for_models() -> str:
        return "for models"


@pytest.fixture
def preview_site(settings: Settings, declarations: None) -> Settings:
    """Settings with the page, in development."""
    settings.ROOT_URLCONF = "tests.contrib.apps.preview.urls"
    settings.LOGIN_URL = "admin:login"
    settings.DEBUG = True
    settings.MCP = {"AUTH": "none", "SERVERS": {"default": {}, ALIAS: {"PATH": "previewed"}}}
    return settings


@pytest.fixture
def staff(db: None, preview_site: Settings) -> Client:
    """A browser of a developer, who is on the staff."""
    client = Client(enforce_csrf_checks=False)
    client.force_login(User.objects.create_user("dev", is_staff=True))
    return client


@pytest.fixture
def reader(db: None, preview_site: Settings) -> Client:
    """A browser of a user with one permission, who is not on the staff."""
    user = User.objects.create_user("reader")
    user.user_permissions.add(Permission.objects.get(codename="view_user"))
    client = Client()
    client.force_login(user)
    return client


def send(client: Client, method: str, params: Any, *, visibility: str = "app") -> dict[str, Any]:
    """Send a request as the page's script does, and return the response."""
    form = {"server": ALIAS, "visibility": visibility, "request": json.dumps({"method": method, "params": params})}
    found: dict[str, Any] = client.post("/preview/request/", form).json()
    return found
