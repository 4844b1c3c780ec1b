"""System checks of identity providers."""

from typing import Any

import pytest
from django.core.checks.registry import registry
from django.test import override_settings

from mcp_django.checks import deployment, issuers

ISSUER = {"ISSUER": "https://id.example"}
ORIGIN = "https://shop.example"


def found(**mcp: Any) -> list[str]:
    with override_settings(MCP=mcp, OAUTH2_PROVIDER={}):
        registered = {id(check) for check in registry.get_checks()}
        assert id(issuers.check_issuers) in registered
        return [message.id or "" for message in issuers.check_issuers(None)]


def test_sound_settings_have_no_messages() -> None:
    assert found(AUTH="external", ISSUERS=[ISSUER], ORIGIN=ORIGIN) == []
    assert found(AUTH="external", ISSUERS=[ISSUER | {"AUDIENCES": ["api"]}]) == []
    assert found(AUTH="external", ISSUERS=[ISSUER | {"AUDIENCES": {"default": ["api"]}}]) == []
    assert found(AUTH="external", ISSUERS=[ISSUER], SERVERS={"default": {"RESOURCE": f"{ORIGIN}/mcp"}}) == []
    assert found(AUTH="token") == []


def test_unused_and_incomplete_settings_of_issuers_are_reported() -> None:
    assert found(AUTH=["token", "external"]) == ["mcp_django.E040"]

    assert found(AUTH="token", ISSUERS=[ISSUER]) == ["mcp_django.W041"]

    assert found(AUTH="token", SESSION_SCOPES=["a"]) == ["mcp_django.W041"]
    assert found(AUTH="session", SESSION_SCOPES=["a"]) == []

    assert found(AUTH="external", ISSUERS=[ISSUER]) == ["mcp_django.W040"]
    two = {"default": {}, "second": {}}
    one = [ISSUER | {"AUDIENCES": {"default": ["api"]}}]
    assert found(AUTH="external", ISSUERS=one, SERVERS=two) == ["mcp_django.W040"]

    entry = ISSUER | {"AUDIENCES": {"api": ["api://shop"]}}
    assert found(AUTH="external", ISSUERS=[entry], ORIGIN=ORIGIN) == ["mcp_django.W042"]


def test_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuers, "find_spec", lambda name: None)
    assert found(AUTH="external", ISSUERS=[ISSUER], ORIGIN=ORIGIN) == ["mcp_django.E041"]


def test_long_introspection_caches_are_reported(settings: Any) -> None:
    asked = {"INTROSPECTION_URL": "https://id.example/ask", "CLIENT_ID": "shop", "CLIENT_SECRET": "s3cret"}
    for seconds, complaints in ((0, []), (1, []), (2, ["mcp_django.W025"])):
        settings.MCP = {"AUTH": "external", "ISSUERS": [ISSUER | asked | {"INTROSPECTION_CACHE": seconds}]}
        assert [message.id for message in deployment.check_trust(None)] == complaints


def test_invalid_settings_are_left_to_other_checks() -> None:
    assert found(AUTH="external", ISSUERS=[{}]) == []
