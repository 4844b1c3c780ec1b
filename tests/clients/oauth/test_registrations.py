"""Registrations of clients.

Clients of vendors register themselves, an operator registers another one, and clients of the first revision do without
metadata of protected resources.
"""

import base64
import hashlib
import os
import subprocess
import sys
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import httpx2
import pytest
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata

from tests.clients.oauth.browser import Browser
from tests.clients.oauth.conftest import SITE, Site, Sites
from tests.clients.oauth.connection import MODES, REDIRECT, Memory, connected
from tests.servers.databases import ROOT, environment

GRANTS = ["authorization_code", "refresh_token"]
SHAPES: dict[str, dict[str, Any]] = {
    "Claude Code": {"redirect_uris": ["http://localhost:52011/callback"], "grant_types": GRANTS},
    "Claude": {"redirect_uris": ["https://claude.ai/api/mcp/auth_callback"], "application_type": "web"},
    "ChatGPT": {"redirect_uris": ["https://chatgpt.com/connector_platform_oauth_redirect"], "application_type": "web"},
    "Visual Studio Code": {
        "redirect_uris": [
            "http://127.0.0.1:33418/",
            "http://127.0.0.1/",
            "https://vscode.dev/redirect",
            "https://insiders.vscode.dev/redirect",
        ],
        "grant_types": [*GRANTS, "urn:ietf:params:oauth:grant-type:device_code"],
        "client_uri": "https://code.visualstudio.com",
    },
    "Cursor": {
        "redirect_uris": [
            "cursor://anysphere.cursor-mcp/oauth/callback",
            "https://www.cursor.com/agents/mcp/oauth/callback",
            "http://localhost:8787/callback",
        ]
    },
    "Codex": {"redirect_uris": ["http://127.0.0.1:49152/callback"]},
}
"""Metadata that clients of the vendors register with. The tests use the first redirect URI."""


async def test_the_registrations_of_the_vendors_are_accepted(sites: Sites, subtests: pytest.Subtests) -> None:
    for name in SHAPES:
        with subtests.test(name=name):
            shape = {"client_name": name, "token_endpoint_auth_method": "none", **SHAPES[name]}
            redirect = shape["redirect_uris"][0]
            metadata = OAuthClientMetadata.model_validate(shape)
            async with connected(sites.get("uvicorn").url, metadata=metadata, redirect=redirect) as connection:
                assert await connection.call("look") == "alice looks"
                connection.expire()
                assert await connection.call("look") == "alice looks"
            assert connection.statuses("/o/register/") == [201]
            assert name in connection.browser.pages[0]


@pytest.fixture(scope="module")
def known(sites: Sites) -> OAuthClientInformationFull:
    """A confidential client that the operator made on the command line."""
    site = sites.get("uvicorn")
    command = ["mcp_createclient", "Known", "--redirect-uri", REDIRECT, "--confidential"]
    run = subprocess.run(
        [sys.executable, "-m", "django", *command],
        cwd=ROOT,
        env={**environment(site.server.database, SITE), "SITE_PORT": str(site.server.port)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    client_id, secret = run.stdout.split()
    return OAuthClientInformationFull(
        client_id=client_id,
        client_secret=secret,
        redirect_uris=[REDIRECT],
        token_endpoint_auth_method="client_secret_basic",
        issuer=site.origin,
    )


async def test_a_preregistered_client_does_not_register(
    sites: Sites, known: OAuthClientInformationFull, subtests: pytest.Subtests
) -> None:
    for mode in MODES:
        with subtests.test(mode=mode):
            async with connected(sites.get("uvicorn").url, mode=mode, memory=Memory(known)) as connection:
                assert await connection.call("look") == "alice looks"
                assert await connection.call("change") == "alice changes"
            assert connection.statuses("/o/register/") == []


class FirstRevision(httpx2.AsyncBaseTransport):
    """A transport that hides later features from a client, as one of 2025-03-26.

    Such a client knows no metadata of protected resources, and reads no challenges.
    """

    def __init__(self) -> None:
        self._wire = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if "oauth-protected-resource" in request.url.path:
            return httpx2.Response(404, request=request)
        answer = await self._wire.handle_async_request(request)
        answer.headers.pop("www-authenticate", None)
        return answer

    async def aclose(self) -> None:
        await self._wire.aclose()


async def test_a_client_of_the_first_revision_finds_the_metadata_at_the_origin(site: Site) -> None:
    async with connected(site.url, mode="legacy", transport=FirstRevision()) as connection:
        assert await connection.call("look") == "alice looks"
    paths = [urlsplit(url).path for _, url, _ in connection.trace]
    assert "/.well-known/oauth-authorization-server" in paths
    assert connection.provider.context.protected_resource_metadata is None
    (request,) = connection.browser.opened
    assert "resource" not in parse_qs(urlsplit(request).query)


async def test_a_client_of_the_first_revision_needs_no_metadata_at_all(site: Site) -> None:
    """2025-03-26 basic/authorization, 2.3.3: default paths below the origin."""
    verifier = base64.urlsafe_b64encode(os.urandom(48)).decode()
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    browser = Browser()
    async with httpx.AsyncClient(base_url=site.origin) as http:
        wanted = {"client_name": "Old", "redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none"}
        client = (await http.post("/register", json=wanted)).raise_for_status().json()["client_id"]
        asked = {"response_type": "code", "client_id": client, "redirect_uri": REDIRECT, "state": "s"}
        proof = {"code_challenge": challenge, "code_challenge_method": "S256"}
        await browser.open(f"{site.origin}/authorize?{urlencode({**asked, **proof})}")
        said = parse_qs(urlsplit(browser.address).query)
        grant = {"grant_type": "authorization_code", "code": said["code"][0], "redirect_uri": REDIRECT}
        form = {**grant, "client_id": client, "code_verifier": verifier}
        tokens = (await http.post("/token", data=form)).raise_for_status().json()
        again = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"], "client_id": client}
        tokens = (await http.post("/token", data=again)).raise_for_status().json()
        hello = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
        answer = await http.post(
            site.path,
            json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
            headers={
                "Authorization": f"Bearer {tokens['access_token']}",
                "Accept": "application/json, text/event-stream",
            },
        )
    assert answer.status_code == 200
    assert answer.json()["result"]["protocolVersion"] == "2025-03-26"
