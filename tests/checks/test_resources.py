"""System checks of sessions, resources, scopes and the cache of verified principals."""

from typing import Any

import pytest
from django.core.checks import run_checks
from django.test import override_settings

from mcp_django.server.primitives import registry


@pytest.fixture(autouse=True)
def nothing_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools of other tests take scopes of their own."""
    monkeypatch.setattr(registry, "REGISTRIES", {"default": registry.Registry("default", strict=False)})


def ids(**options: Any) -> list[str]:
    """The complaints of ours about a project with these options of `MCP`."""
    with override_settings(MCP={"AUTH": "token", "MEMORY": {"SERVER": "memory"}, **options}):
        found = run_checks()
    kinds = ("mcp_django.E04", "mcp_django.W043", "mcp_django.E007")
    return [complaint.id or "" for complaint in found if (complaint.id or "").startswith(kinds)]


def test_sound_settings_have_nothing_to_report() -> None:
    scopes = {"a": "This", "b": "That"}
    server = {"RESOURCE": "https://mcp.example/mcp", "REQUIRED_SCOPES": ["a"]}
    assert ids(AUTH=["session", "token"], SCOPES=scopes, SESSION_SCOPES=["b"], SERVERS={"default": server}) == []


def test_missing_middleware_caches_and_shared_names_are_reported() -> None:
    with override_settings(MIDDLEWARE=[]):
        assert ids(AUTH=["session"]) == ["mcp_django.E042"]
        assert ids() == []

    servers = {"default": {"RESOURCE": "https://mcp.example/mcp"}, "shop": {"RESOURCE": "https://MCP.example/mcp/"}}
    assert ids(SERVERS=servers) == ["mcp_django.E043"]

    assert ids(TOKEN_CACHE="nowhere") == ["mcp_django.E044"]
    assert ids(TOKEN_CACHE="default") == []
    assert ids(RATES={"CACHE": "nowhere"}) == ["mcp_django.E044"]


def test_an_ambiguous_resource_url_is_reported(subtests: pytest.Subtests) -> None:
    for url in ("https://mcp.example/a/../b", "https://mcp.example//mcp", "https://mcp.example/%6dcp"):
        with subtests.test(url=url):
            assert ids(SERVERS={"default": {"RESOURCE": url}}) == ["mcp_django.E043"]


def test_an_undeclared_scope_is_reported_if_scopes_are_declared(subtests: pytest.Subtests) -> None:
    for options in (
        {"SESSION_SCOPES": ["c"]},
        {"SCOPE_IMPLIES": {"a": ["c"]}},
        {"SERVERS": {"default": {"REQUIRED_SCOPES": ["a", "c"]}}},
        {"ISSUERS": [{"ISSUER": "https://id.example", "SCOPES": {"theirs": ["a", "c"]}}]},
    ):
        with subtests.test(options=options):
            assert ids(SCOPES={"a": "This"}, **options) == ["mcp_django.W043"]
            assert ids(**options) == []


def test_a_missing_function_is_reported(subtests: pytest.Subtests) -> None:
    for key in ("REQUIRED_SCOPES", "AUTHORIZATION_SERVERS", "RESOURCE_METADATA_URL", "AUTHORIZER"):
        with subtests.test(key=key):
            assert ids(SERVERS={"default": {key: "shop.nowhere.function"}}) == ["mcp_django.E007"]
