"""How the pages look, on a phone and on a desk, by day and by night. MCP_TEST_SCREENSHOTS names where to draw them."""

import os
from pathlib import Path
from typing import Literal

import pytest
from django.contrib.auth.models import User
from pytest_django.fixtures import Settings

from mcp_django.client.oauth.token_store import TokenGrant, TokenRow
from mcp_django.conf.clients import ClientAuth, ClientSettings
from mcp_django.contrib.oauth.flows import consents
from mcp_django.models import PersonalAccessToken
from tests.browser.conftest import DESK, PHONE, Open
from tests.contrib.oauth.oauth_client import LOOPBACK, MCP, SCOPES, WEB, Source, authorization_path, make_client

LONG = "https://a-very-long-label-of-a-host-that-goes-on.and-on.client.example/" + "path/" * 20
PAPER: dict[Literal["light", "dark"], str] = {"light": "rgb(244, 246, 245)", "dark": "rgb(14, 20, 19)"}
PAGES = ["web", "loopback", "error", "connections", "no-connections", "tokens", "no-tokens", "services", "connect"]


@pytest.fixture
def addresses(person: User, site: Settings) -> dict[str, str]:
    """The paths of the pages, with contents of maximum length."""
    url = f"https://{'a-very-long-host.' * 6}example/mcp"
    used = {alias: {"URL": url, "AUTH": {"TYPE": "oauth"}} for alias in ("w" * 32, "notes")}
    site.MCP = site.MCP | {"CLIENTS": used}
    service = ClientSettings(alias="w" * 32, url=url, auth=ClientAuth(type="oauth"))
    row = TokenRow(service, person)
    row.write(TokenGrant(issuer=url, access_token="a", scope="averylongscope:" * 9 + " read"))
    row.save_missing_scopes("averylongscope:" * 10)
    web = make_client(source=Source.DOCUMENT)
    native = make_client(LOOPBACK, LONG, name="Extraordinarilylongnameofaclientwithoutspaces " * 2)
    consents.record_consent(person, web, [MCP], [*SCOPES, "offline_access"], WEB)
    consents.record_consent(person, native, [MCP], ["averylongscopewithoutany:placetobreakit." * 3], WEB)
    PersonalAccessToken.issue(user=person, name="W" * 60, scopes=["scope:" + "x" * 60, *SCOPES], expires=None)
    PersonalAccessToken.issue(user=person, name="Old laptop", expires=None)[0].revoke()
    return {
        "web": authorization_path(web, prompt="consent", scope=" ".join([*SCOPES, "offline_access"])),
        "loopback": authorization_path(native, redirect_uri=LOOPBACK),
        "error": authorization_path(web, redirect_uri="https://evil.example/" + "x" * 300),
        "connections": "/o/connections/",
        "no-connections": "/o/connections/",
        "tokens": "/o/tokens/",
        "no-tokens": "/o/tokens/",
        "services": "/mcp/clients/",
        "connect": f"/mcp/clients/{'w' * 32}/connect/",
    }


def test_each_page_fits_its_window(
    open_page: Open, addresses: dict[str, str], person: User, subtests: pytest.Subtests
) -> None:
    other = User.objects.create_user("bob")
    for name in PAGES:
        page = open_page(addresses[name], user=other if name.startswith("no-") else person).page
        for scheme, paper in PAPER.items():
            page.emulate_media(color_scheme=scheme)
            for width in (320, PHONE, DESK):
                with subtests.test(name, scheme=scheme, width=width):
                    # The style sheet is there, and has the colours that were asked for.
                    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
                    page.set_viewport_size({"width": width, "height": 800})
                    if shots := os.environ.get("MCP_TEST_SCREENSHOTS"):
                        page.screenshot(path=str(Path(shots) / f"{name}-{width}-{scheme}.png"), full_page=True)
                    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_each_page_can_be_read_aloud(open_page: Open, addresses: dict[str, str], subtests: pytest.Subtests) -> None:
    """Screen readers find the parts of a page, its language, and a name for each control."""
    for name in PAGES:
        page = open_page(addresses[name]).page
        with subtests.test(name):
            for role in ("main", "banner"):
                assert page.get_by_role(role).count() == 1  # type: ignore[arg-type]
            assert page.locator("h1").count() == 1
            assert page.locator("html").get_attribute("lang")
            nameless = page.evaluate(
                "[...document.querySelectorAll('button, a, summary, select, textarea, input:not([type=hidden])')]"
                ".filter(it => !((it.labels && it.labels.length) || it.textContent.trim())).map(it => it.outerHTML)"
            )
            assert nameless == []
            twice = page.evaluate(
                "[...document.querySelectorAll('[id]')].map(it => it.id)"
                ".filter((id, at, all) => all.indexOf(id) !== at)"
            )
            assert twice == []
