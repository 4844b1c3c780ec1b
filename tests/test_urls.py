"""`include("mcp_django.urls")`: a path for each server, with and without a slash."""

import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test import AsyncClient, Client, RequestFactory, override_settings
from django.urls import NoReverseMatch, Resolver404, get_resolver, include, path, resolve, reverse

from mcp_django.runtime.shutdown import Lifecycle
from mcp_django.runtime.url_elicitation import PageVisit
from mcp_django.wiring import get_services

SERVERS = {"default": {"HEALTHZ": True}, "staff": {"PATH": "staff/<slug:house>", "HEALTHZ": True}, "other": {}}


@pytest.fixture
def served() -> Iterator[None]:
    """A project with three servers under a prefix."""
    conf = ModuleType("urls_of_this_test")
    vars(conf)["urlpatterns"] = [path("api/", include("mcp_django.urls"))]
    with override_settings(MCP={"AUTH": "none", "SERVERS": SERVERS}, ROOT_URLCONF=conf):
        yield


@pytest.mark.usefixtures("served")
def test_each_server_has_its_path_and_no_other(subtests: pytest.Subtests) -> None:
    for where, kwargs in (("/api/mcp", {}), ("/api/mcp/other", {}), ("/api/staff/main", {"house": "main"})):
        with subtests.test(where=where, kwargs=kwargs):
            for slash in ("", "/"):
                assert resolve(where + slash).kwargs == kwargs

    for where in ("/mcp", "/api/mcp/none", "/api/staff", "/api/mcp/staff", "/api/mcp//", "/api/mcp/other/healthz"):
        with subtests.test(where=where), pytest.raises(Resolver404):
            resolve(where)


@pytest.mark.usefixtures("served")
def test_servers_are_reversed_by_alias_to_the_path_without_a_slash() -> None:
    assert reverse("mcp_django:default") == "/api/mcp"
    assert reverse("mcp_django:other") == "/api/mcp/other"
    assert reverse("mcp_django:staff", kwargs={"house": "main"}) == "/api/staff/main"
    with pytest.raises(NoReverseMatch):
        reverse("mcp_django:nobody")


def test_django_s_caches_of_urls_are_emptied_only_if_a_path_changes() -> None:
    with override_settings(MCP={"AUTH": "none", "SERVERS": SERVERS}):
        before = get_resolver()
        with override_settings(MCP={"AUTH": "none", "SERVERS": SERVERS, "LIMITS": {"BODY": 100}}):
            assert get_resolver() is before
        with override_settings(MCP={"AUTH": "none", "SERVERS": {"default": {"PATH": "elsewhere"}}}):
            assert get_resolver() is not before


def test_the_urls_may_be_included_several_times_in_namespaces_of_their_own() -> None:
    conf = ModuleType("urls_of_this_test")
    vars(conf)["urlpatterns"] = [
        path("<slug:tenant>/", include("mcp_django.urls", namespace="tenants")),
        path("", include("mcp_django.urls")),
    ]
    with override_settings(MCP={"AUTH": "none", "SERVERS": SERVERS}, ROOT_URLCONF=conf):
        assert reverse("mcp_django:default") == "/mcp"
        assert reverse("tenants:default", kwargs={"tenant": "acme"}) == "/acme/mcp"
        assert reverse("tenants:staff", kwargs={"tenant": "acme", "house": "main"}) == "/acme/staff/main"
        assert resolve("/acme/staff/main/").kwargs == {"tenant": "acme", "house": "main"}


def test_with_an_invalid_setting_nothing_is_served(subtests: pytest.Subtests) -> None:
    for value in ({"AUTH": 5}, {"AUTH": "none", "LIMITS": {"BODY": "x"}}):
        with subtests.test(value=value):
            servers = {"default": {"HEALTHZ": True}}
            with override_settings(MCP={**value, "SERVERS": servers}, ROOT_URLCONF="mcp_django.urls"):
                with pytest.raises(ImproperlyConfigured, match="must be"):
                    Client().post("/mcp", "{}", "application/json")
                assert Client().get("/mcp/healthz").status_code == 404


def test_the_default_path_is_mcp() -> None:
    assert reverse("mcp_django:default") == "/mcp"


@pytest.mark.usefixtures("served")
@pytest.mark.django_db
def test_health_needs_no_credential_if_enabled(subtests: pytest.Subtests) -> None:
    async def check(where: str) -> None:
        answer = await AsyncClient().get(where)
        assert (answer.status_code, answer.content) == (200, b'{"status":"ok"}')
        assert answer.headers == {
            "Content-Type": "application/json",
            "Content-Length": "15",
            "Cache-Control": "no-store",
        }
        answer = await AsyncClient(enforce_csrf_checks=True).post(where)
        assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")

    for where in ("/api/mcp/healthz", "/api/mcp/healthz/", "/api/staff/main/healthz"):
        with subtests.test(where=where):
            async_to_sync(check)(where)


@pytest.mark.usefixtures("served")
@pytest.mark.django_db
def test_health_is_served_under_wsgi() -> None:
    answer = Client().head("/api/mcp/healthz")
    assert (answer.status_code, answer.content, answer.headers["Content-Length"]) == (200, b"", "15")


@pytest.mark.usefixtures("served")
@pytest.mark.django_db
def test_health_needs_no_login_with_the_login_required_middleware(settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    assert Client().get("/api/mcp/healthz").json() == {"status": "ok"}


@pytest.mark.usefixtures("served")
@pytest.mark.django_db
def test_health_is_served_with_atomic_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    assert Client().get("/api/mcp/healthz").status_code == 200


@pytest.mark.usefixtures("served")
@pytest.mark.django_db
def test_health_during_a_shutdown_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    is_draining = True
    monkeypatch.setattr(Lifecycle, "is_draining", lambda self: is_draining)

    for _ in range(3):
        answer = Client().get("/api/mcp/healthz")
        assert (answer.status_code, answer.json()) == (503, {"status": "draining"})
    logged = [record for record in caplog.records if not record.name.startswith("django.db")]
    assert [(record.name, record.levelname) for record in logged] == [("mcp_django.lifecycle", "INFO")]

    is_draining = False
    assert Client().get("/api/mcp/healthz").status_code == 200
    is_draining = True
    assert Client().get("/api/mcp/healthz").status_code == 503
    assert len([record for record in caplog.records if record.name == "mcp_django.lifecycle"]) == 2


def test_links_to_pages_keep_the_prefix_of_the_call() -> None:
    conf = ModuleType("urls_of_this_test")
    vars(conf)["urlpatterns"] = [
        path("<slug:tenant>/", include("mcp_django.urls", namespace="tenants")),
        path("", include("mcp_django.urls")),
    ]
    visit = PageVisit("id", "1", "", time.time() + 60)
    with override_settings(MCP={"AUTH": "none", "SERVERS": SERVERS}, ROOT_URLCONF=conf):
        for where, prefix in (("/mcp", "/mcp/page/"), ("/staff/main", "/mcp/page/"), ("/acme/mcp", "/acme/mcp/page/")):
            request = RequestFactory().get(where)
            request.resolver_match = resolve(where)
            link = get_services().elicitation_pages.build_path(request, "page", visit, ttl=60)
            assert link.startswith(prefix)
            found = resolve(link)
            assert found.url_name == "page"
            assert get_services().elicitation_pages.unseal_visit(found.kwargs["token"], "page") == visit


def test_a_path_below_a_server_is_not_a_captured_value_of_another() -> None:
    servers = {"default": {"HEALTHZ": True}, "tenants": {"PATH": "mcp/<slug:tenant>"}}
    with override_settings(MCP={"AUTH": "none", "SERVERS": servers}, ROOT_URLCONF="mcp_django.urls"):
        assert resolve("/mcp/acme").kwargs == resolve("/mcp/acme/sse").kwargs == {"tenant": "acme"}
        for below in ("sse", "sse/", "healthz"):
            assert resolve(f"/mcp/{below}").kwargs == {}
