"""`ctx.request` is a Django request with the same content through both transports."""

import json

import pytest
from django.core.asgi import get_asgi_application
from django.urls import include, path, re_path

from mcp_django.asgi import mount
from tests.interaction.clients import HANDSHAKE, STATELESS, Client
from tests.interaction.transports import Transport, on_http

pytestmark = on_http

SCRIPT = "/app"


@pytest.fixture
def places(transport):
    return Client(transport, STATELESS, server="places", token="bob")


async def read_request(client, **how):
    return (await client.tool("request", **how)).result["structuredContent"]


async def test_the_request_of_a_handler_describes_the_http_request(places):
    message = places.request_message("tools/call", {"name": "request", "arguments": {}})
    headers = {"user-agent": "tests/1", "host": "localhost:8000"}
    reply = await places.post(message, headers=headers, query_string=b"a=1&b=%C3%A9")
    seen = reply.result["structuredContent"]
    where = places.path()
    assert seen == {
        "method": "POST",
        "path": where,
        "path_info": where,
        "script": "",
        "full": f"{where}?a=1&b=%C3%A9",
        "absolute": f"http://localhost:8000{where}?a=1&b=%C3%A9",
        "query": {"a": "1", "b": "é"},
        "form": {},
        "host": "localhost:8000",
        "scheme": "http",
        "peer": "127.0.0.1",
        "agent": "tests/1",
        "accept": "application/json, text/event-stream",
        "content_type": "application/json",
        "name": "mcp_django:places",
        "kwargs": {},
        "captured": {},
        "user": "bob",
        "auser": "bob",
        "anonymous": False,
        "body": json.dumps(message),
        "read": json.dumps(message),
        "same": True,
    }


async def test_the_request_without_a_user_is_anonymous(settings, transport):
    settings.MCP = {**settings.MCP, "AUTH": "none"}
    seen = await read_request(Client(transport, STATELESS, server="places", token=None))
    assert (seen["user"], seen["auser"], seen["anonymous"]) == ("", "", True)


async def test_the_token_is_not_in_the_request_and_remains_valid(places, transport):
    for client in (places, await Client(transport, HANDSHAKE[-1], server="places", token="bob").open()):
        for needle, found in (("Bearer", False), ("application/json", True)):
            arguments = {"needle": needle}
            assert (await client.tool("whether_request_has", arguments)).result["structuredContent"]["result"] is found


async def test_a_query_that_is_not_utf_8_is_a_bad_request(places):
    reply = await places.tool("request", query_string=b"\xff")
    assert reply.status in (200, 400)
    assert "reference" not in reply.body.decode()
    assert (await places.tool("around")).status == 200


@pytest.fixture(params=["setting", "server"])
def below(request, settings, transport):
    """Serve the project below a path, from the setting or from the server."""
    if request.param == "setting":
        settings.FORCE_SCRIPT_NAME = SCRIPT
        return {}
    return {"root_path": SCRIPT}


@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_project_below_a_path_is_served_with_its_path(places, below, slash):
    where = places.path()
    seen = await read_request(places, path=f"{SCRIPT}{where}{slash}", **below)
    assert (seen["path"], seen["path_info"], seen["script"]) == (f"{SCRIPT}{where}{slash}", where + slash, SCRIPT)


@pytest.mark.parametrize("name", ["around", "around_a_thread"])
async def test_handlers_reverse_urls_below_the_path(places, below, name):
    around = await places.tool(name, path=f"{SCRIPT}{places.path()}", **below)
    assert around.result["structuredContent"]["url"] == f"{SCRIPT}/view/mcp"
    again = await places.tool(name, path=f"{SCRIPT}{places.path()}", **below)
    assert again.result == around.result


async def test_handlers_reverse_urls_at_the_root(places):
    for name in ("around", "around_a_thread"):
        assert (await places.tool(name)).result["structuredContent"]["url"] == "/view/mcp"


class Nested:
    """Endpoints below URL patterns with arguments."""

    urlpatterns = [
        path("view/<slug:tenant>/<int:year>/", include("mcp_django.urls")),
        path("extra/", include("mcp_django.urls", namespace="extra"), {"tenant": "acme"}),
        re_path(r"^unnamed/(\d+)/", include("mcp_django.urls", namespace="unnamed")),
    ]


async def test_arguments_of_outer_url_patterns_reach_the_handler(settings):
    settings.ROOT_URLCONF = Nested
    client = Client(Transport(get_asgi_application, ""), STATELESS, server="places")
    seen = await read_request(client, path="/view/acme/2026/mcp/places")
    assert seen["captured"] == seen["kwargs"] == {"tenant": "acme", "year": 2026}
    assert (await read_request(client, path="/extra/mcp/places"))["captured"] == {"tenant": "acme"}
    assert (await read_request(client, path="/unnamed/7/mcp/places"))["captured"] == {}


async def test_url_arguments_have_the_same_types_on_both_transports(settings, transport):
    servers = {**settings.MCP["SERVERS"], "places": {"PATH": "<slug:tenant>/<int:year>/<uuid:key>/mcp"}}
    settings.MCP = {**settings.MCP, "SERVERS": servers}
    client = Client(transport, STATELESS)
    key = "12345678-1234-5678-1234-567812345678"
    seen = await read_request(client, path=f"{transport.prefix}/acme/2026/{key}/mcp")
    assert seen["captured"] == seen["kwargs"] == {"tenant": "acme", "year": 2026, "key": key}


ODD_PATHS = ["//mcp/places", "/mcp//places", "/mcp/places//", "/mcp/Places", "/mcp/places/x", "/mcp/./places"]


async def test_unusual_paths_are_refused_by_django(places, subtests):
    for odd in ODD_PATHS:
        with subtests.test(odd=odd):
            reply = await places.tool("around", path=places.transport.prefix + odd)
            assert (reply.status, reply.headers["content-type"]) == (404, "text/html; charset=utf-8")


async def test_other_methods_are_refused_alike(places, subtests):
    for method in ["HEAD", "PUT", "PATCH", "TRACE", "BREW"]:
        for slash in ["", "/"]:
            with subtests.test(method=method, slash=slash):
                reply = await places.post(method=method, path=places.path() + slash)
                assert (reply.status, reply.body) == (405, b"")
                assert reply.headers["allow"] == "GET, POST, DELETE, OPTIONS"


async def test_sessions_are_shared_by_both_transports():
    asgi, view = Transport(lambda: mount(get_asgi_application()), ""), Transport(get_asgi_application, "/view")
    client = await Client(asgi, HANDSHAKE[-1]).open()
    assert (await client.tool("remember")).result["structuredContent"] == {"result": 1}
    client.transport = view
    assert (await client.tool("remember")).result["structuredContent"] == {"result": 2}
