"""Origin, Host, OPTIONS and CORS (basic/transports: servers MUST validate Origin)."""

import pytest

from tests.interaction.transports import on_http

OWN = ["http://127.0.0.1:8000", "http://localhost:3000", "http://[::1]:6274", "http://localhost"]
FOREIGN = [
    "https://evil.example",
    "http://localhost.evil.example",
    "http://127.0.0.1.evil.example",
    "http://127.0.0.1:8000@evil.example",
    "null",
    "",
    "http://",
    "file://",
    "chrome-extension://abc",
]


async def test_pages_from_loopback_are_served(either, subtests):
    for origin in OWN:
        with subtests.test(origin=origin):
            client = await either()
            assert (await client.request("tools/list", headers={"origin": origin})).status == 200


@on_http
async def test_pages_from_other_origins_are_refused(either, subtests):
    for origin in FOREIGN:
        with subtests.test(origin=origin):
            client = await either()
            assert (await client.request("tools/list", headers={"origin": origin})).status == 403


async def test_a_client_without_an_origin_is_served(either):
    assert (await (await either()).request("tools/list")).status == 200


@pytest.mark.parametrize("setting", ["ALLOWED_ORIGINS", "CORS_ALLOWED_ORIGINS"])
async def test_origins_of_the_setting_are_served(settings, modern, setting):
    settings.MCP = {**settings.MCP, setting: ["https://app.example"]}
    client = modern()
    assert (await client.request("tools/list", headers={"origin": "https://app.example"})).status == 200
    assert (await client.request("tools/list", headers={"origin": "https://other.example"})).status == 403


async def test_csrf_trusted_origins_are_served(settings, modern):
    settings.CSRF_TRUSTED_ORIGINS = ["https://app.example", "https://*.wide.example"]
    client = modern()
    for origin in ("https://app.example", "https://a.wide.example"):
        assert (await client.request("tools/list", headers={"origin": origin})).status == 200
    assert (await client.request("tools/list", headers={"origin": "https://wide.example.evil"})).status == 403


@on_http
async def test_another_host_is_refused(modern, subtests):
    for host in ["evil.example", "127.0.0.1.evil.example", "evil.example:8000", "", "a b", "127.0.0.1:port"]:
        with subtests.test(host=host):
            reply = await modern().request("tools/list", headers={"host": host})
            assert 400 <= reply.status < 500


async def test_an_allowed_host_is_served_on_any_port(modern, subtests):
    for host in ["127.0.0.1", "localhost:8000", "LOCALHOST:1"]:
        with subtests.test(host=host):
            assert (await modern().request("tools/list", headers={"host": host})).status == 200


@on_http
async def test_a_missing_host_is_answered(modern):
    assert (await modern().request("tools/list", headers={"host": None})).status < 500


async def test_options_names_the_methods(modern):
    reply = await modern(token=None).post(method="OPTIONS", body=b"")
    assert reply.status in (200, 204)
    assert {"POST", "OPTIONS"} <= set(reply.headers["allow"].split(", "))


PREFLIGHT = {
    "origin": "https://app.example",
    "access-control-request-method": "POST",
    "access-control-request-headers": "content-type,mcp-protocol-version,mcp-param-region",
}


@on_http
async def test_a_preflight_of_an_allowed_page_is_granted_without_credentials(settings, modern):
    settings.MCP = {**settings.MCP, "CORS_ALLOWED_ORIGINS": ["https://app.example"]}
    reply = await modern(token=None).post(method="OPTIONS", body=b"", headers=PREFLIGHT)
    assert reply.status in (200, 204)
    assert reply.headers["access-control-allow-origin"] == "https://app.example"
    assert "POST" in reply.headers["access-control-allow-methods"]
    allowed = reply.headers["access-control-allow-headers"].lower()
    for name in ("authorization", "content-type", "mcp-protocol-version", "mcp-session-id", "mcp-param-region"):
        assert name in allowed


async def test_a_preflight_of_another_page_is_not_granted(settings, modern):
    settings.MCP = {**settings.MCP, "CORS_ALLOWED_ORIGINS": ["https://other.example"]}
    reply = await modern(token=None).post(method="OPTIONS", body=b"", headers=PREFLIGHT)
    assert "access-control-allow-origin" not in reply.headers


@on_http
async def test_a_response_to_an_allowed_page_exposes_its_headers(settings, latest_legacy):
    settings.MCP = {**settings.MCP, "CORS_ALLOWED_ORIGINS": ["https://app.example"]}
    client = await latest_legacy()
    reply = await client.request("tools/list", headers={"origin": "https://app.example"})
    assert reply.headers["access-control-allow-origin"] == "https://app.example"
    exposed = reply.headers["access-control-expose-headers"].lower()
    assert "mcp-session-id" in exposed
    assert "www-authenticate" in exposed
    assert "origin" in reply.headers["vary"].lower()


async def test_streams_and_errors_may_be_read_by_an_allowed_page(settings, modern):
    settings.MCP = {**settings.MCP, "CORS_ALLOWED_ORIGINS": ["https://app.example"]}
    origin = {"origin": "https://app.example"}
    replies = [
        await modern().tool("steps", {"count": 1}, meta={"progressToken": 1}, headers=origin),
        await modern().request("nothing/like/this", headers=origin),
        await modern(token="nobody").request("tools/list", headers=origin),
    ]
    assert [reply.status for reply in replies] == [200, 404, 401]
    for reply in replies:
        assert reply.headers["access-control-allow-origin"] == "https://app.example"


async def test_without_cors_no_page_may_read(modern):
    reply = await modern().request("tools/list", headers={"origin": "http://localhost:3000"})
    assert not [name for name in reply.headers if name.startswith("access-control-")]


async def test_pages_from_loopback_may_read_in_development(settings, modern):
    settings.DEBUG = True
    reply = await modern().request("tools/list", headers={"origin": "http://localhost:6274"})
    assert reply.headers["access-control-allow-origin"] == "http://localhost:6274"
    assert (await modern().request("tools/list", headers={"origin": "https://app.example"})).status == 403
