"""Metadata of protected resources at its well-known places, through both doors."""

import json
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test import AsyncClient, Client, override_settings
from django.urls import clear_url_caches, include, path

from mcp_django.asgi import mount

WELL_KNOWN = "/.well-known/oauth-protected-resource"
ORIGIN = "https://mcp.example"
LOGIN = "https://login.example"
AUTH: dict[str, Any] = {"AUTH": "token", "ORIGIN": ORIGIN}
ONE = {"AUTHORIZATION_SERVERS": [LOGIN], "REQUIRED_SCOPES": ["mcp:read", "offline_access"], "TITLE": "The shop"}


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    """An application that knows no path."""
    await send({"type": "http.response.start", "status": 404, "headers": []})
    await send({"type": "http.response.body", "body": b"the application"})


def by_mount(url: str, method: str = "GET", host: str = "testserver", root: str = "") -> SimpleNamespace:
    sent: list[Any] = []

    async def main() -> None:
        async def receive() -> Any:
            return {"type": "http.request", "body": b""}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": url,
            "headers": [(b"host", host.encode())],
            "root_path": root,
        }
        await mount(nothing)(scope, receive, send)

    async_to_sync(main)()
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return SimpleNamespace(status=sent[0]["status"], headers=headers, body=sent[1].get("body", b""))


def by_view(url: str, method: str = "GET", host: str = "testserver") -> SimpleNamespace:
    reply = Client(headers={"host": host}).generic(method, url)
    headers = {name.lower(): value for name, value in reply.headers.items()}
    return SimpleNamespace(status=reply.status_code, headers=headers, body=reply.content)


DOORS = (by_mount, by_view)
"""Each sends a request through one of the two ways into the project: ASGI mount, Django view."""


@pytest.fixture
def one() -> Iterator[None]:
    with override_settings(MCP={**AUTH, "SERVERS": {"default": ONE}}):
        yield


@pytest.mark.usefixtures("one")
def test_the_document_names_the_authorization_servers_and_the_initial_scopes(subtests: pytest.Subtests) -> None:
    for ask in DOORS:
        with subtests.test(ask=ask):
            reply = ask(f"{WELL_KNOWN}/mcp")
            assert reply.status == 200
            assert json.loads(reply.body) == {
                "resource": f"{ORIGIN}/mcp",
                "authorization_servers": [LOGIN],
                "scopes_supported": ["mcp:read"],
                "bearer_methods_supported": ["header"],
                "resource_name": "The shop",
            }
            assert reply.headers["content-type"] == "application/json"
            assert reply.headers["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in reply.headers
            assert "max-age" in reply.headers["cache-control"]


@pytest.mark.usefixtures("one")
def test_the_view_works_with_atomic_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    assert by_view(f"{WELL_KNOWN}/mcp").status == 200


@pytest.mark.usefixtures("one")
def test_the_resource_has_the_slash_of_the_request_and_the_path_is_optional(subtests: pytest.Subtests) -> None:
    for ask in DOORS:
        for rest, resource in [("/mcp/", "/mcp/"), ("", "/mcp"), ("/", "/mcp")]:
            with subtests.test(ask=ask, rest=rest):
                assert json.loads(ask(WELL_KNOWN + rest).body)["resource"] == ORIGIN + resource


@pytest.mark.usefixtures("one")
def test_other_paths_have_no_document(subtests: pytest.Subtests) -> None:
    for ask in DOORS:
        for rest in [
            "/other",
            "/mcp/sub",
            "/mc",
            "/mcp//",
            "//mcp",
            "/mcp/../mcp",
            "/m\x00cp",
            "/MCP",
            "/" + "a" * 3000,
        ]:
            with subtests.test(ask=ask, rest=rest):
                assert ask(WELL_KNOWN + rest.replace("\x00", "%00" if ask is by_view else "\x00")).status == 404


@pytest.mark.usefixtures("one")
def test_the_host_of_the_request_makes_no_difference(subtests: pytest.Subtests) -> None:
    for ask in DOORS:
        with subtests.test(ask=ask):
            assert json.loads(ask(f"{WELL_KNOWN}/mcp", host="localhost").body)["resource"] == f"{ORIGIN}/mcp"


@pytest.mark.usefixtures("one")
def test_a_preflight_of_any_origin_is_allowed(subtests: pytest.Subtests) -> None:
    for ask in DOORS:
        with subtests.test(ask=ask):
            reply = ask(f"{WELL_KNOWN}/mcp", "OPTIONS")
            assert reply.status == 204
            assert reply.headers["access-control-allow-origin"] == "*"
            assert "MCP-Protocol-Version" in reply.headers["access-control-allow-headers"]


@pytest.mark.usefixtures("one")
def test_a_head_has_no_body_and_a_post_is_refused(subtests: pytest.Subtests) -> None:
    for ask in DOORS:
        with subtests.test(ask=ask):
            head = ask(f"{WELL_KNOWN}/mcp", "HEAD")
            assert (head.status, head.body) == (200, b"")
            assert int(head.headers["content-length"]) > 0
            assert ask(f"{WELL_KNOWN}/mcp", "POST").status == 405


@override_settings(MCP={**AUTH, "SERVERS": {"default": ONE, "shop": {"AUTHORIZATION_SERVERS": ["https://b.example"]}}})
def test_each_of_two_endpoints_has_its_own_document_and_the_root_has_none(subtests: pytest.Subtests) -> None:
    for ask in DOORS:
        with subtests.test(ask=ask):
            assert ask(WELL_KNOWN).status == 404
            assert json.loads(ask(f"{WELL_KNOWN}/mcp").body)["resource"] == f"{ORIGIN}/mcp"
            other = json.loads(ask(f"{WELL_KNOWN}/mcp/shop").body)
            assert (other["resource"], other["authorization_servers"]) == (f"{ORIGIN}/mcp/shop", ["https://b.example"])


def test_entries_may_be_added_and_the_resource_is_not_replaced(subtests: pytest.Subtests) -> None:
    for ask in DOORS:
        with subtests.test(ask=ask):
            extra = {
                "resource_documentation": "https://docs.example",
                "resource": "https://evil.example",
                "jwks_uri": None,
            }
            with override_settings(MCP={**AUTH, "SERVERS": {"default": {**ONE, "RESOURCE_METADATA": extra}}}):
                found = json.loads(ask(f"{WELL_KNOWN}/mcp").body)
            assert found["resource_documentation"] == "https://docs.example"
            assert found["resource"] == f"{ORIGIN}/mcp"
            assert "jwks_uri" not in found


@override_settings(OAUTH2_PROVIDER={})
def test_without_an_origin_or_an_authorization_server_there_is_no_document(subtests: pytest.Subtests) -> None:
    for ask in DOORS:
        for options in [{"ORIGIN": None}, {"SERVERS": {"default": {}}}]:
            mcp = {**AUTH, "SERVERS": {"default": ONE}, **options}
            with subtests.test(ask=ask, options=options), override_settings(MCP=mcp):
                assert ask(f"{WELL_KNOWN}/mcp").status == 404


def test_a_function_that_fails_is_a_server_error(subtests: pytest.Subtests, caplog: Any) -> None:
    for ask in DOORS:
        with subtests.test(ask=ask):
            server = {**ONE, "REQUIRED_SCOPES": "tests.transports.http.test_well_known.fails"}
            with override_settings(MCP={**AUTH, "SERVERS": {"default": server}}):
                reply = ask(f"{WELL_KNOWN}/mcp")
            assert reply.status == 503
            assert b"secret" not in reply.body
            assert "could not be built" in caplog.text


def fails(request: Any) -> Any:
    raise RuntimeError("secret")


@pytest.mark.usefixtures("one")
def test_a_project_below_a_prefix_is_found_with_and_without_it(settings: Any) -> None:
    settings.FORCE_SCRIPT_NAME = "/site"
    for url in (f"{WELL_KNOWN}/site/mcp", f"{WELL_KNOWN}/mcp", f"/site{WELL_KNOWN}/site/mcp"):
        assert json.loads(by_mount(url).body)["resource"] == f"{ORIGIN}/site/mcp"


@pytest.fixture
def below_api(settings: Any) -> Iterator[None]:
    conf = ModuleType("urls_of_the_test")
    vars(conf)["urlpatterns"] = [path("api/", include("mcp_django.urls")), path("", include("mcp_django.well_known"))]
    settings.ROOT_URLCONF = conf
    clear_url_caches()
    yield
    clear_url_caches()


@pytest.mark.usefixtures("one", "below_api")
def test_an_include_below_a_path_has_its_document_at_the_root_of_the_origin(subtests: pytest.Subtests) -> None:
    for ask in DOORS:
        with subtests.test(ask=ask):
            assert json.loads(ask(f"{WELL_KNOWN}/api/mcp").body)["resource"] == f"{ORIGIN}/api/mcp"
            assert ask(f"{WELL_KNOWN}/mcp").status == 404


@pytest.mark.usefixtures("one")
def test_the_document_is_served_by_django_over_asgi() -> None:
    async def main() -> Any:
        return await AsyncClient().get(f"{WELL_KNOWN}/mcp")

    assert async_to_sync(main)().status_code == 200
