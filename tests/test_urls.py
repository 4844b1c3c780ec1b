"""`include("mcp_django.urls")`: a path for each server, with and without a slash."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from django.test import override_settings
from django.urls import NoReverseMatch, Resolver404, include, path, resolve, reverse

SERVERS = {"default": {}, "staff": {"PATH": "staff/<slug:house>"}, "other": {}}


@pytest.fixture
def served() -> Iterator[None]:
    """A project with three servers under a prefix."""
    conf = ModuleType("urls_of_this_test")
    vars(conf)["urlpatterns"] = [path("api/", include("mcp_django.urls"))]
    with override_settings(MCP={"AUTH": "none", "SERVERS": SERVERS}, ROOT_URLCONF=conf):
        yield


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize(
    ("where", "kwargs"),
    [("/api/mcp", {}), ("/api/mcp/other", {}), ("/api/staff/main", {"house": "main"})],
)
def test_each_server_has_its_path_with_and_without_a_slash(where: str, kwargs: dict[str, Any]) -> None:
    for slash in ("", "/"):
        assert resolve(where + slash).kwargs == kwargs


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("where", ["/mcp", "/api/mcp/none", "/api/staff", "/api/mcp/staff", "/api/mcp//"])
def test_nothing_else_is_served(where: str) -> None:
    with pytest.raises(Resolver404):
        resolve(where)


@pytest.mark.usefixtures("served")
def test_servers_are_reversed_by_alias_to_the_path_without_a_slash() -> None:
    assert reverse("mcp_django:default") == "/api/mcp"
    assert reverse("mcp_django:other") == "/api/mcp/other"
    assert reverse("mcp_django:staff", kwargs={"house": "main"}) == "/api/staff/main"
    with pytest.raises(NoReverseMatch):
        reverse("mcp_django:nobody")


def test_the_default_path_is_mcp() -> None:
    assert reverse("mcp_django:default") == "/mcp"
