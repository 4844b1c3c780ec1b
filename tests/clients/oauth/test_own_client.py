"""This project's own client on a protected site.

Users connect it on the pages of a project. Its tokens are used, renewed and revoked.
"""

import asyncio
import dataclasses
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Permission, User
from django.test import Client as Pages
from pytest_django.fixtures import Settings

from mcp_django.client import AuthorizationNeeded, Client, StreamableHTTP
from mcp_django.client.oauth.auth import create_auth
from mcp_django.client.oauth.http import OAuthHTTPClient
from mcp_django.client.oauth.loopback import login
from mcp_django.client.oauth.token_endpoint import revoke_grant
from mcp_django.client.oauth.token_store import TokenGrant, TokenRow
from mcp_django.client.pool.factory import build_client
from mcp_django.conf import get_settings
from mcp_django.models import ClientFlow, ClientToken
from tests.clients.oauth.browser import Browser
from tests.clients.oauth.conftest import Site, Sites

CONNECT = "/mcp/clients/shop/connect/"


@pytest.fixture
def site(sites: Sites) -> Iterator[Site]:
    """Yield one server, which is enough because the client is under test."""
    found = sites.get("uvicorn")
    yield found
    found.server.settle()


@pytest.fixture(autouse=True)
def project(settings: Settings, site: Site, db: None) -> Settings:
    """Configure the project that uses the site."""
    settings.ROOT_URLCONF = "tests.client.urls"
    settings.LOGIN_URL = "login"
    auth = {"TYPE": "oauth", "PER": "user", "CLIENT_NAME": "The project"}
    clients = {
        "shop": {"URL": site.url, "AUTH": auth},
        "ours": {"URL": site.url, "AUTH": auth | {"PER": "project"}},
        "old": {"URL": f"{site.url}/sse", "TRANSPORT": "sse", "AUTH": auth},
    }
    settings.MCP = {"AUTH": "none", "ORIGIN": "https://testserver", "CLIENTS": clients}
    return settings


class Person:
    """A user with an account in this project, and one on the site."""

    def __init__(self, name: str, there: str) -> None:
        self.user, self.there = User.objects.create_user(name), there
        self.pages = Pages()
        self.pages.force_login(self.user)

    def go(self, alias: str = "shop", back: str = "") -> str:
        """Start the flow, and return the authorization URL."""
        answer = self.pages.post(f"/mcp/clients/{alias}/connect/", {"next": back}, secure=True)
        assert answer.status_code == 302, answer.content.decode()
        return str(answer["Location"])

    def allow(self, url: str, **options: Any) -> str:
        """Give consent, and return the redirect of the browser."""
        browser = Browser(self.there, **options)
        async_to_sync(browser.open)(url)
        return browser.address

    def come_back(self, address: str) -> Any:
        """Follow the redirect to this project."""
        parts = urlsplit(address)
        assert f"{parts.scheme}://{parts.netloc}" == "https://testserver"
        return self.pages.get(f"{parts.path}?{parts.query}", secure=True)

    def connect(self, alias: str = "shop", back: str = "") -> Any:
        """Run the whole flow."""
        return self.come_back(self.allow(self.go(alias, back)))

    @property
    def row(self) -> TokenRow:
        """Return the row with the user's tokens."""
        return TokenRow(get_settings().clients["shop"], self.user)

    def grant(self) -> TokenGrant:
        """Return the stored grant."""
        held = self.row.read()
        assert held is not None
        assert held.grant is not None
        return held.grant

    def call(self, tool: str = "look", alias: str = "shop") -> str:
        """Call a tool with a new client, as another worker does."""
        return call(self.user, tool, alias)


@async_to_sync
async def call(user: Any, tool: str, alias: str) -> str:
    """Connect a client, and return the text of a tool's result."""
    async with build_client(get_settings().clients[alias], user=user, retries=False) as client:
        result = await client.call_tool(tool, {})
        assert not result.is_error, result
        text: str = result.content[0].text  # type: ignore[union-attr]
        return text


def test_a_user_connects_and_calls() -> None:
    ada = Person("ada", "alice")
    answer = ada.connect(back="/somewhere/?x=1")
    assert (answer.status_code, answer["Location"]) == (302, "/somewhere/?x=1"), answer.content.decode()
    assert ada.call() == "alice looks"
    assert not ClientFlow.objects.exists()


def test_a_user_connects_over_sse() -> None:
    ada = Person("ada", "alice")
    with pytest.raises(AuthorizationNeeded) as caught:
        ada.call(alias="old")
    assert caught.value.url == "/mcp/clients/old/connect/"
    ada.connect("old")
    assert ada.call(alias="old") == "alice looks"


def test_a_call_without_authorization_returns_the_connect_url(project: Settings) -> None:
    ada = User.objects.create_user("ada")
    with pytest.raises(AuthorizationNeeded) as caught:
        call(ada, "look", "shop")
    assert (caught.value.alias, caught.value.url) == ("shop", CONNECT)


def test_two_users_have_own_tokens_and_share_the_registration() -> None:
    ada, grace = Person("ada", "alice"), Person("grace", "bob")
    ada.connect()
    grace.connect()
    assert [ada.call(), grace.call(), ada.call()] == ["alice looks", "bob looks", "alice looks"]
    assert ada.grant().client["client_id"] == grace.grant().client["client_id"]
    # A copied row is not valid for another user, either.
    stolen = ClientToken.objects.get(key=ada.row.key)
    ClientToken.objects.filter(key=grace.row.key).update(grant=stolen.grant, issuer=stolen.issuer)
    with pytest.raises(AuthorizationNeeded):
        grace.call()


def test_an_old_token_is_renewed() -> None:
    ada = Person("ada", "alice")
    ada.connect()
    first = ada.grant()
    age(ada)
    assert ada.call() == "alice looks"
    second = ada.grant()
    assert (second.access_token, second.refresh_token) != (first.access_token, first.refresh_token)
    assert second.refresh_token != first.refresh_token
    assert (second.issuer, second.token_endpoint) == (first.issuer, first.token_endpoint)


def test_a_refused_token_is_renewed_before_it_expires() -> None:
    ada = Person("ada", "alice")
    ada.connect()
    replace(ada, access_token="refused")
    assert ada.call() == "alice looks"


def test_a_revoked_grant_must_be_authorized_again() -> None:
    ada = Person("ada", "alice")
    ada.connect()
    async_to_sync(revoke_grant)(
        ada.grant(), OAuthHTTPClient(get_settings().clients["shop"].url or ""), ada.grant().resource or ""
    )
    with pytest.raises(AuthorizationNeeded) as caught:
        ada.call()
    assert caught.value.url == CONNECT
    assert "Must be connected again" in ada.pages.get("/mcp/clients/", secure=True).content.decode()
    ada.connect()
    assert ada.call() == "alice looks"


def test_a_call_that_needs_more_scopes_requests_them() -> None:
    ada = Person("ada", "alice")
    ada.connect()
    with pytest.raises(AuthorizationNeeded) as caught:
        ada.call("change")
    assert caught.value.url == CONNECT
    assert ada.call() == "alice looks"
    assert "Needs more access" in ada.pages.get("/mcp/clients/", secure=True).content.decode()
    ada.connect()
    assert ada.call("change") == "alice changes"
    assert set((ada.grant().scope or "").split()) >= {"shop:read", "shop:write"}


def test_other_calls_go_on_while_one_requests_scopes() -> None:
    ada = Person("ada", "alice")
    ada.connect()

    @async_to_sync
    async def both() -> str:
        settings = get_settings().clients["shop"]
        async with Client(StreamableHTTP(settings.url or "", auth=create_auth(settings, ada.user))) as client:
            with pytest.raises(AuthorizationNeeded):
                await client.call_tool("change", {})
            result = await client.call_tool("look", {})
            return result.content[0].text  # type: ignore[union-attr]

    assert both() == "alice looks"


def test_a_disconnect_revokes_the_tokens() -> None:
    ada = Person("ada", "alice")
    ada.connect()
    kept = ada.grant()
    page = ada.pages.post("/mcp/clients/", {"alias": "shop"}, secure=True).content.decode()
    assert "shop is not connected any more." in page
    assert not ClientToken.objects.filter(user=ada.user).exists()
    with pytest.raises(AuthorizationNeeded):
        ada.call()
    ada.row.write(kept)  # as if a copy had been kept
    with pytest.raises(AuthorizationNeeded):
        ada.call()


def test_a_grant_of_the_project_serves_every_user() -> None:
    ada, grace = Person("ada", "alice"), Person("grace", "bob")
    assert ada.pages.get("/mcp/clients/ours/connect/", secure=True).status_code == 404
    ada.user.user_permissions.add(Permission.objects.get(codename="change_clienttoken"))
    ada.connect("ours")
    assert grace.call(alias="ours") == "alice looks"
    assert call(None, "look", "ours") == "alice looks"


def test_a_login_from_a_terminal() -> None:
    ada = Person("ada", "alice")
    said: list[str] = []

    @async_to_sync
    async def logged_in() -> None:
        browser = Browser("alice")

        def open_url(url: str) -> None:
            async def go() -> None:
                await browser.open(url)
                async with httpx.AsyncClient() as http:
                    wrong = await http.get(browser.address.replace("state=", "state=x"))
                    right = await http.get(browser.address)
                said.append(f"{wrong.status_code} {right.status_code}")

            asyncio.run(go())

        await login(get_settings().clients["shop"], ada.user, write=said.append, open_url=open_url)

    logged_in()
    assert said[-1] == "400 200"
    assert ada.call() == "alice looks"


def age(person: Person) -> None:
    """Expire the token."""
    replace(person, expires_at=1.0)


def replace(person: Person, **changes: Any) -> None:
    """Change members of the stored grant."""
    person.row.write(dataclasses.replace(person.grant(), **changes))
