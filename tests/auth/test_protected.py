"""The servers as protected resources: their URLs, and their settings for callers."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from django.urls import clear_url_caches, include, path

from mcp_django import wiring
from mcp_django.auth.requests import AuthRequest
from mcp_django.protocol.headers import Headers

ORIGIN = "https://mcp.example"
MODULE = "tests.auth.test_protected"
SHOP = {"default": {}, "shop": {}}


def request(*pairs: tuple[bytes, bytes], **kwargs: Any) -> AuthRequest:
    """A request to an endpoint whose path captured `kwargs`."""
    return AuthRequest(Headers(pairs), kwargs=kwargs)


def by_tenant(asked: AuthRequest) -> list[str]:
    """A function of the project."""
    return [f"{(asked.kwargs or {}).get('tenant', 'any')}:read"]


def issuers_by_header(asked: AuthRequest) -> list[str]:
    """Another."""
    return [f"https://{asked.headers.get('X-Tenant', 'main')}.login.example"]


def metadata_by_header(asked: AuthRequest) -> str:
    """Another."""
    return f"https://{asked.headers.get('X-Tenant', 'main')}.example/metadata?v=2"


def wrong(asked: AuthRequest) -> Any:
    """A function with an unusable result."""
    return ["two words"]


@pytest.fixture
def routes(settings: Any) -> Iterator[Any]:
    """Makes a URLconf of these patterns the project's."""

    def use(*patterns: Any) -> None:
        conf = ModuleType("urls_of_the_test")
        vars(conf)["urlpatterns"] = list(patterns)
        settings.ROOT_URLCONF = conf
        clear_url_caches()

    yield use
    clear_url_caches()


def of(alias: str = "default", asked: AuthRequest | None = None, **options: Any) -> Any:
    """The resource of a server under these options of `MCP`."""
    with override_settings(MCP={"AUTH": "token", "ORIGIN": ORIGIN, **options}):
        return wiring.get_services().resource_registry.get(alias, asked)


def test_the_resource_is_the_origin_and_the_path() -> None:
    assert of().uri == f"{ORIGIN}/mcp"
    assert of("shop", SERVERS=SHOP).uri == f"{ORIGIN}/mcp/shop"


def test_the_resource_has_the_path_of_the_urlconf(routes: Any) -> None:
    routes(path("api/v1/", include("mcp_django.urls")))
    assert of().uri == f"{ORIGIN}/api/v1/mcp"


def test_a_server_outside_the_urlconf_has_the_path_of_the_asgi_application(routes: Any) -> None:
    routes()
    assert of().uri == f"{ORIGIN}/mcp"


def test_the_prefix_of_the_project_is_part_of_the_resource(settings: Any) -> None:
    settings.FORCE_SCRIPT_NAME = "/site"
    assert of().uri == f"{ORIGIN}/site/mcp"


def test_the_setting_may_name_the_resource() -> None:
    named = of(SERVERS={"default": {"RESOURCE": "https://api.example/tools/"}})
    assert named.uri == "https://api.example/tools"


def test_host_and_forwarding_headers_do_not_change_the_resource() -> None:
    asked = request((b"host", b"evil.example"), (b"x-forwarded-host", b"evil.example"))
    assert of("default", asked).uri == f"{ORIGIN}/mcp"


def test_without_an_origin_there_is_no_resource() -> None:
    with override_settings(OAUTH2_PROVIDER={}):
        found = of(ORIGIN=None)
    assert (found.uri, found.metadata_url, found.server) == (None, None, "default")


def test_the_origin_of_the_embedded_authorization_server_is_the_default() -> None:
    with override_settings(OAUTH2_PROVIDER={"OIDC_ISS_ENDPOINT": "https://login.example/o"}):
        assert of(ORIGIN=None).uri == "https://login.example/mcp"


def test_metadata_is_announced_with_an_authorization_server() -> None:
    servers = {"default": {"AUTHORIZATION_SERVERS": ["https://login.example"]}}
    found = of(SERVERS=servers)
    assert found.metadata_url == f"{ORIGIN}/.well-known/oauth-protected-resource/mcp"
    assert found.authorization_servers == ("https://login.example",)
    assert of().metadata_url is None


def test_required_scopes_are_sorted_and_may_be_a_function() -> None:
    assert of(SERVERS={"default": {"REQUIRED_SCOPES": ["b", "a"]}}).scopes == ("a", "b")
    servers = {"default": {"PATH": "<slug:tenant>/mcp", "REQUIRED_SCOPES": f"{MODULE}.by_tenant"}}
    found = of("default", request(tenant="acme"), SERVERS=servers)
    assert (found.scopes, found.uri) == (("acme:read",), f"{ORIGIN}/acme/mcp")


def test_issuers_and_the_metadata_url_may_be_functions_of_the_request() -> None:
    options = {
        "AUTHORIZATION_SERVERS": f"{MODULE}.issuers_by_header",
        "RESOURCE_METADATA_URL": f"{MODULE}.metadata_by_header",
    }
    found = of("default", request((b"x-tenant", b"acme")), SERVERS={"default": options})
    assert found.authorization_servers == ("https://acme.login.example",)
    assert found.metadata_url == "https://acme.example/metadata?v=2"


def test_an_unusable_result_of_a_function_is_a_configuration_error(subtests: pytest.Subtests) -> None:
    for option in ("REQUIRED_SCOPES", "AUTHORIZATION_SERVERS", "RESOURCE_METADATA_URL"):
        with subtests.test(option=option), pytest.raises(ImproperlyConfigured):
            of(SERVERS={"default": {option: f"{MODULE}.wrong"}})


def test_a_path_with_parameters_has_a_resource_for_each_request(routes: Any) -> None:
    routes(path("<slug:tenant>/", include("mcp_django.urls")))
    with override_settings(MCP={"AUTH": "token", "ORIGIN": ORIGIN}):
        found = wiring.get_services().resource_registry
        assert found.varies_by_request("default")
        assert found.get("default", request(tenant="acme")).uri == f"{ORIGIN}/acme/mcp"
        assert found.get("default", request(tenant="other")).uri == f"{ORIGIN}/other/mcp"
        assert found.get("default").uri is None
        assert found.find_server("/acme/mcp") == ("default", {"tenant": "acme"})
        assert found.find_server("/acme/mcp/more") is None
        assert found.find_only_server() is None


def test_each_server_is_found_by_its_path() -> None:
    with override_settings(MCP={"AUTH": "token", "ORIGIN": ORIGIN, "SERVERS": SHOP}):
        found = wiring.get_services().resource_registry
        assert [found.find_server(where) for where in ("/mcp", "/mcp/", "/mcp/shop", "/mcp/none", "/")] == [
            ("default", {}),
            ("default", {}),
            ("shop", {}),
            None,
            None,
        ]
        assert found.find_only_server() is None


def test_the_metadata_url_may_have_a_query_and_encoded_characters(subtests: pytest.Subtests) -> None:
    for url in [
        "https://meta.example/document?tenant=a&v=2",
        "https://meta.example/a%20b",
        "http://[::1]:8000/m?a='b'",
    ]:
        with subtests.test(url=url):
            assert of(SERVERS={"default": {"RESOURCE_METADATA_URL": url}}).metadata_url == url


def test_a_url_that_is_invalid_in_requests_is_refused_in_the_setting(subtests: pytest.Subtests) -> None:
    for option, url in [
        ("RESOURCE_METADATA_URL", "https://meta.example/#part"),
        ("RESOURCE_METADATA_URL", "https://user@meta.example/"),
        ("RESOURCE_METADATA_URL", 'https://meta.example/"'),
        ("RESOURCE_METADATA_URL", "https://meta.example/\n"),
        ("RESOURCE_METADATA_URL", "ftp://meta.example/"),
        ("AUTHORIZATION_SERVERS", ["https://login.example/?realm=a"]),
        ("AUTHORIZATION_SERVERS", ["https://login.example/é"]),
    ]:
        with subtests.test(option=option, url=url), pytest.raises(ImproperlyConfigured, match=option):
            of(SERVERS={"default": {option: url}})


def test_issuers_may_have_encoded_characters() -> None:
    issuers = ["https://login.example/realms/my%20shop"]
    assert of(SERVERS={"default": {"AUTHORIZATION_SERVERS": issuers}}).authorization_servers == tuple(issuers)
