"""Private names of the toolkit and of oauthlib: they exist, and are used."""

import inspect
from importlib import import_module
from typing import Any

import pytest
from django.test import override_settings
from oauth2_provider.oauth2_validators import OAuth2Validator

from mcp_django.contrib.oauth.flows.server import AuthorizationServer
from mcp_django.contrib.oauth.flows.validator import Validator
from mcp_django.contrib.oauth.toolkit_compat import PRIVATE_NAMES, BaseValidator, oauth2_settings, restrict_to_s256


def test_a_private_name_exists(subtests: pytest.Subtests) -> None:
    for path in PRIVATE_NAMES:
        with subtests.test(path=path):
            module, owner, name = path.rsplit(".", 2)
            found = getattr(import_module(module), owner)
            assert hasattr(found, name)


def test_the_toolkit_asks_for_clients_by_its_private_name() -> None:
    asked: list[str] = []

    class Asked(BaseValidator):
        def load_client(self, client_id: Any, request: Any) -> Any:
            asked.append(client_id)

    assert not Asked().validate_client_id("app", object())
    assert asked == ["app"]
    assert list(inspect.signature(OAuth2Validator._load_application).parameters) == ["self", "client_id", "request"]


def test_only_s256_is_accepted() -> None:
    server = AuthorizationServer(Validator())
    grant = server.grant_types["authorization_code"]
    assert set(grant._code_challenge_methods) == {"S256"}
    assert not grant.validate_code_challenge("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM", "S256", "wrong")
    restrict_to_s256(grant)
    # The example of RFC 7636, appendix B.
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    assert grant.validate_code_challenge("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM", "S256", verifier)


def test_cached_lifetimes_of_the_toolkit_are_reset() -> None:
    with override_settings(MCP={"OAUTH": {"ACCESS_TOKEN": 60}}):
        assert oauth2_settings.ACCESS_TOKEN_EXPIRE_SECONDS == 60
    assert oauth2_settings.ACCESS_TOKEN_EXPIRE_SECONDS == 900


def test_each_overridden_hook_exists_in_the_toolkit(subtests: pytest.Subtests) -> None:
    for hook in ("save_bearer_token", "save_authorization_code", "revoke_token", "validate_code"):
        with subtests.test(hook=hook):
            assert hasattr(OAuth2Validator, hook)
            assert getattr(Validator, hook) is not getattr(OAuth2Validator, hook)
