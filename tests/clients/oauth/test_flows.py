"""Flows and tokens of the official SDK's client on a protected site."""

from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from mcp.client.auth import OAuthFlowError
from mcp.shared.auth import OAuthClientMetadata

from tests.clients.oauth.browser import Browser
from tests.clients.oauth.conftest import Site, Sites
from tests.clients.oauth.connection import MODES, REDIRECT, Connection, Memory, cause, connected

REGISTER = "/o/register/"
TOKEN = "/o/token/"


async def bare(site: Site, token: str) -> int:
    """Return the status of a call with a token, without a registered client."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/list",
    }
    async with httpx.AsyncClient() as http:
        return (await http.post(site.url, json=body, headers=headers)).status_code


META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "bare", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def revoke(connection: Connection, token: str) -> int:
    """Revoke a token as the client that holds it (RFC 7009)."""
    client = connection.memory.client
    metadata = connection.provider.context.oauth_metadata
    assert client is not None
    assert metadata is not None
    data = {"token": token, "client_id": client.client_id, "client_secret": client.client_secret or ""}
    async with httpx.AsyncClient() as http:
        return (await http.post(str(metadata.revocation_endpoint), data=data)).status_code


async def test_a_client_needs_only_the_url(site: Site, mode: str) -> None:
    async with connected(site.url, mode=mode) as connection:
        assert connection.client.protocol_version == MODES[mode]
        assert await connection.names() == ["change", "look"]
        assert await connection.call("look") == "alice looks"
    assert connection.statuses(REGISTER) == [201]
    assert connection.statuses(TOKEN) == [200]
    assert connection.scopes == {"shop:read"}
    assert len(connection.browser.pages) == 1
    assert connection.challenges == [
        f'Bearer scope="shop:read", resource_metadata="{site.origin}/.well-known/oauth-protected-resource{site.path}"'
    ]


async def test_a_client_needs_only_the_url_under_wsgi(sites: Sites, subtests: pytest.Subtests) -> None:
    for mode in MODES:
        with subtests.test(mode=mode):
            site = sites.get("gunicorn-gthread")
            async with connected(site.url, mode=mode) as connection:
                assert await connection.call("change") == "alice changes"
            site.server.settle()


async def test_the_tools_of_a_client_depend_on_its_user(site: Site, mode: str) -> None:
    async with connected(site.url, Browser("carol"), mode=mode) as connection:
        assert await connection.names() == ["change", "hire", "look"]
        assert await connection.call("hire") == "3"


async def test_a_client_registers_with_any_authentication_method(sites: Sites, subtests: pytest.Subtests) -> None:
    for method in ["none", "client_secret_post", "client_secret_basic"]:
        with subtests.test(method=method):
            metadata = OAuthClientMetadata(
                redirect_uris=[REDIRECT], client_name="Any", token_endpoint_auth_method=method
            )
            async with connected(sites.get("uvicorn").url, metadata=metadata) as connection:
                assert await connection.call("look") == "alice looks"
            assert connection.memory.client is not None
            assert connection.memory.client.token_endpoint_auth_method == method
            assert bool(connection.memory.client.client_secret) is (method != "none")


async def test_the_url_may_have_another_spelling(sites: Sites, subtests: pytest.Subtests) -> None:
    for mode in MODES:
        with subtests.test(mode=mode):
            for change in ["slash", "capitals"]:
                with subtests.test(change=change):
                    url = sites.get("uvicorn").url
                    url = f"{url}/" if change == "slash" else url.replace("http://", "HTTP://")
                    async with connected(url, mode=mode) as connection:
                        assert await connection.call("look") == "alice looks"


async def test_a_client_steps_up_when_a_tool_needs_more_scopes(site: Site, mode: str) -> None:
    async with connected(site.url, mode=mode) as connection:
        assert await connection.call("look") == "alice looks"
        before = connection.token
        assert await connection.call("change") == "alice changes"
        assert len(connection.browser.pages) == 2
        assert connection.scopes == {"shop:read", "shop:write"}
        assert await connection.call("look") == "alice looks"
    assert 403 in connection.statuses(site.path)
    assert 'error="insufficient_scope"' in connection.challenges[-1]
    assert 'scope="shop:read shop:write"' in connection.challenges[-1]
    assert connection.token != before
    assert connection.statuses(REGISTER) == [201]


async def test_a_client_refreshes_its_token_without_consent(site: Site, mode: str) -> None:
    async with connected(site.url, mode=mode) as connection:
        assert await connection.call("look") == "alice looks"
        first = connection.memory.tokens
        connection.expire()
        assert await connection.call("look") == "alice looks"
        second = connection.memory.tokens
    assert first is not None
    assert second is not None
    assert {first.access_token, first.refresh_token}.isdisjoint({second.access_token, second.refresh_token})
    assert second.scope == first.scope
    assert len(connection.browser.pages) == 1
    assert connection.statuses(TOKEN) == [200, 200]


async def test_a_revoked_token_is_refused_at_the_next_call(site: Site, mode: str) -> None:
    async with (
        connected(site.url, mode=mode) as connection,
        connected(site.url, Browser("bob"), mode=mode) as other,
    ):
        assert await connection.call("look") == "alice looks"
        tokens = connection.memory.tokens
        assert tokens is not None
        assert tokens.refresh_token is not None
        assert await bare(site, tokens.access_token) == 200
        assert await revoke(connection, tokens.refresh_token) == 200
        assert await bare(site, tokens.access_token) == 401
        assert await other.call("look") == "bob looks"
        assert await connection.call("look") == "alice looks"
        assert len(connection.browser.pages) == 2
        assert len(other.browser.pages) == 1


async def test_a_denied_consent_is_an_error_of_the_client(site: Site, mode: str) -> None:
    browser = Browser(allow=False)
    with pytest.raises(BaseExceptionGroup) as refused:
        async with connected(site.url, browser, mode=mode):
            pass
    problem = cause(refused.value)
    assert isinstance(problem, OAuthFlowError)
    assert str(problem) == "No authorization code received"
    said = parse_qs(urlsplit(browser.address).query)
    assert said["error"] == ["access_denied"]
    assert said["iss"] == [site.origin]
    assert "code" not in said


async def test_an_unticked_scope_is_not_granted(site: Site) -> None:
    metadata = OAuthClientMetadata(redirect_uris=[REDIRECT], client_name="Greedy")
    async with connected(site.url, metadata=metadata) as connection:
        connection.browser.unticked = ("shop:write",)
        with pytest.raises(BaseException) as refused:  # noqa: PT011
            await connection.call("change")
        assert "403" in str(cause(refused.value)) or "insufficient" in str(cause(refused.value)).lower()
    assert connection.scopes == {"shop:read"}


async def test_a_restarted_client_uses_its_stored_tokens(site: Site, mode: str) -> None:
    memory = Memory()
    async with connected(site.url, mode=mode, memory=memory) as connection:
        assert await connection.call("look") == "alice looks"
    async with connected(site.url, mode=mode, memory=memory) as connection:
        assert await connection.call("look") == "alice looks"
        assert not connection.browser.pages
        assert connection.statuses(REGISTER) == []
