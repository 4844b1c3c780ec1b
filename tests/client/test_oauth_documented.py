"""The statements of docs/use-servers/oauth.md about settings, pages and calls are true."""

import re
from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import RequestFactory
from django.urls import resolve
from pytest_django.fixtures import Settings

from mcp_django import client as package
from mcp_django.client import AuthorizationNeeded
from mcp_django.client.oauth import flow, http
from mcp_django.conf import get_problems, get_settings
from mcp_django.conf.clients import ClientAuth
from tests.repository.pages import ROOT, python_blocks

PAGE = (ROOT / "docs" / "use-servers" / "oauth.md").read_text()
SETTINGS, URLS, CALL, DOCUMENT = python_blocks(ROOT / "docs" / "use-servers" / "oauth.md")


def run_block(block: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(block, names)
    return names


def test_the_settings_are_read(settings: Settings) -> None:
    settings.MCP = {"AUTH": "none", **run_block(SETTINGS)["MCP"]}
    assert get_problems() == []
    clients = get_settings().clients
    assert {alias: client.per_user for alias, client in clients.items()} == {
        "notes": True,
        "wiki": False,
        "stock": False,
    }


def test_the_document_is_at_the_documented_url(settings: Settings) -> None:
    auth = run_block(DOCUMENT)["auth"]
    settings.MCP = {
        "AUTH": "none",
        "ORIGIN": "https://shop.example",
        "CLIENTS": {"notes": {"URL": "https://notes.example/mcp", "AUTH": auth}},
    }
    settings.ROOT_URLCONF = module(URLS)
    view = resolve("/mcp/clients/client-metadata.json").func
    answer = view(RequestFactory().get("/mcp/clients/client-metadata.json"))
    assert b'"client_id": "https://shop.example/mcp/clients/client-metadata.json"' in answer.content


def test_every_key_is_documented() -> None:
    told = set(re.findall(r"`([A-Z_]+)`", PAGE[PAGE.index("| `TYPE`") : PAGE.index("## Pages")]))
    assert told == {name.upper() for name in ClientAuth.__dataclass_fields__}


def test_the_pages_exist(settings: Settings, subtests: pytest.Subtests) -> None:
    for place, name in [
        ("mcp/clients/", "services"),
        ("mcp/clients/notes/connect/", "connect"),
        ("mcp/clients/notes/callback/", "callback"),
        ("mcp/clients/client-metadata.json", "metadata"),
    ]:
        with subtests.test(place=place, name=name):
            assert place.replace("notes", "<alias>") in PAGE
            settings.ROOT_URLCONF = module(URLS)
            assert resolve(f"/{place}").view_name == f"mcp_clients:{name}"


def test_a_call_that_needs_authorization_leads_to_the_page(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    class Blocking:
        def blocking(self) -> "Blocking":
            return self

        def call_tool(self, *args: Any) -> Any:
            raise AuthorizationNeeded("", "notes", "/mcp/clients/notes/connect/")

    monkeypatch.setattr(package, "get_client", lambda alias, user: Blocking())
    request = RequestFactory().get("/search/")
    request.user = User()
    answer = run_block(CALL)["search"](request)
    assert answer["Location"] == "/mcp/clients/notes/connect/?next=/search/"


def test_the_numbers_are_right(settings: Settings) -> None:
    settings.MCP = {"AUTH": "none"}
    assert f"end at {http.MAX_RESPONSE_BYTES // 1024} KiB and {http.REQUEST_TIMEOUT_SECONDS:g} seconds" in PAGE
    assert f"within {flow.FLOW_LIFETIME_SECONDS // 60} minutes" in PAGE
    assert f"`TOKEN_CACHE_SECONDS` ({get_settings().token_cache_seconds:g})" in PAGE


def module(block: str) -> ModuleType:
    found = ModuleType("documented_urls")
    exec(block, found.__dict__)
    return found
