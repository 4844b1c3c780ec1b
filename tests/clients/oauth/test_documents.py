"""Clients that are described by a document at a URL, which is fetched over TLS.

The documents of the vendors' clients have the shape of the real ones, under a host of the tests. Others are invalid.
"""

from typing import Any

import pytest

from tests.clients.oauth.browser import Browser
from tests.clients.oauth.conftest import HOST, Site, Sites
from tests.clients.oauth.connection import REDIRECT, connected
from tests.clients.oauth.site.network import INSIDE
from tests.clients.oauth.tls import Documents

LOCAL = "http://localhost:58135/callback"
"""A client on the user's machine listens on a port of its own choice, which its document cannot name."""
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
GRANTS = ["authorization_code", "refresh_token"]


def document(path: str, **more: Any) -> dict[str, Any]:
    """Build the document of a public client."""
    return {
        "client_id": f"https://{HOST}{path}",
        "client_name": "Documented",
        "client_uri": f"https://{HOST}",
        "redirect_uris": ["http://localhost/callback", "http://127.0.0.1/callback"],
        "grant_types": GRANTS,
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        **more,
    }


HOSTED = "https://client.example/api/mcp/auth_callback"
REAL: dict[str, tuple[dict[str, Any], str]] = {
    "/claude-code": ({"client_name": "Claude Code"}, LOCAL),
    "/claude": (
        {
            "client_name": "Claude",
            "redirect_uris": [HOSTED],
            "grant_types": [*GRANTS, JWT_BEARER],
            "application_type": "web",
        },
        HOSTED,
    ),
    "/chatgpt.json": (
        {
            "client_name": "ChatGPT",
            "redirect_uris": [HOSTED],
            "token_endpoint_auth_method": "private_key_jwt",
            "token_endpoint_auth_methods_supported": ["none", "private_key_jwt"],
            "jwks_uri": f"https://{HOST}/jwks",
        },
        HOSTED,
    ),
    "/vscode.json": (
        {
            "client_name": "Visual Studio Code",
            "redirect_uris": ["http://127.0.0.1:33418/", "https://client.example/redirect"],
            "grant_types": [*GRANTS, DEVICE_CODE],
            "application_type": "native",
        },
        "http://127.0.0.1:33418/",
    ),
    "/codex.json": ({"client_name": "Codex"}, "http://127.0.0.1:49152/callback"),
}
"""Path to the special members of a vendor's document, and to the redirect URI of its client."""


async def test_a_document_replaces_registration(site: Site, documents: Documents, mode: str) -> None:
    path = f"/{site.server.kind}-{mode}"
    documents.pages[path] = document(path)
    async with connected(site.url, mode=mode, document=f"https://{HOST}{path}") as connection:
        assert await connection.call("look") == "alice looks"
        assert await connection.call("change") == "alice changes"
        connection.expire()
        assert await connection.call("look") == "alice looks"
    assert connection.statuses("/o/register/") == []
    assert documents.asked.count(path) == 1
    assert HOST in connection.browser.pages[0]


async def test_the_documents_of_the_vendors_are_accepted(
    sites: Sites, documents: Documents, subtests: pytest.Subtests
) -> None:
    for path in REAL:
        with subtests.test(path=path):
            special, redirect = REAL[path]
            documents.pages[path] = document(path, **special)
            url = f"https://{HOST}{path}"
            async with connected(sites.get("uvicorn").url, document=url, redirect=redirect) as connection:
                assert await connection.call("look") == "alice looks"
            assert special["client_name"] in connection.browser.pages[0]


WRONG: dict[str, Any] = {
    "/other-id": document("/another"),
    "/redirects": f"https://{HOST}/claude-code",
    "/secret": document("/secret", client_secret="x"),
    "/plain-redirect": document("/plain-redirect", redirect_uris=["http://evil.example/callback"]),
    "/nameless": document("/nameless", client_name=""),
    "/no-json": b"<html>",
    "/elsewhere": document("/elsewhere", redirect_uris=["http://localhost/other"]),
    "/absent": None,
}
"""Path to a page that describes no client, or none with the redirect URI that is asked for."""


async def test_an_invalid_document_is_refused(sites: Sites, documents: Documents, subtests: pytest.Subtests) -> None:
    for path in WRONG:
        with subtests.test(path=path):
            if WRONG[path] is not None:
                documents.pages[path] = WRONG[path]
            await refused(sites.get("uvicorn"), f"https://{HOST}{path}")


async def test_an_internal_host_is_not_requested(sites: Sites, documents: Documents, subtests: pytest.Subtests) -> None:
    for host in [INSIDE, "unknown.example", "127.0.0.1"]:
        with subtests.test(host=host):
            before = len(documents.asked)
            await refused(sites.get("uvicorn"), f"https://{host}/document")
            assert len(documents.asked) == before


async def refused(site: Site, url: str) -> None:
    """Assert that the user sees an error page, and that the browser is not redirected."""
    browser = Browser()
    with pytest.raises(BaseExceptionGroup):
        async with connected(site.url, browser, document=url, redirect=REDIRECT):
            pass
    assert len(browser.opened) == 1
    assert not browser.pages
    assert browser.address == ""
