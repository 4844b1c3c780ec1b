"""Set-ups of the authorization server that would be unsafe, or that no client finds."""

from typing import Any

import pytest
from django.apps import apps
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from mcp_django.contrib.oauth import checks, oauth2_provider_settings
from mcp_django.contrib.oauth.flows.validator import Validator

from . import oauth_flow

ISSUER = "https://testserver"
FOUND = [check for name, check in vars(checks).items() if name.startswith("check_")]


class OwnValidator(Validator):
    """A project's, made of ours."""


def list_messages(**overrides: Any) -> list[str]:
    with override_settings(
        ROOT_URLCONF=overrides.pop("urls", "tests.contrib.oauth.urls"),
        LOGIN_URL=overrides.pop("login", "https://login.example/"),
        MCP=overrides.pop("mcp", oauth_flow.SETTINGS),
        OAUTH2_PROVIDER={**oauth2_provider_settings(issuer=ISSUER), **overrides},
    ):
        messages: list[CheckMessage] = [message for check in FOUND for message in check(None)]
    assert all(message.hint for message in messages)
    return [str(message.id).removeprefix("mcp_django.") for message in messages]


def test_settings_made_by_the_function_have_no_problems() -> None:
    assert list_messages(urls="tests.contrib.oauth.urls") == []


PROBLEMS: list[tuple[dict[str, Any], str]] = [
    ({"OIDC_ISS_ENDPOINT": ""}, "E030"),
    ({"OIDC_ISS_ENDPOINT": None}, "E030"),
    ({"OIDC_ISS_ENDPOINT": "http://host.example"}, "E030"),
    ({"OIDC_ISS_ENDPOINT": "https://host.example/"}, "E030"),
    ({"PKCE_REQUIRED": False}, "E031"),
    ({"ROTATE_REFRESH_TOKEN": False}, "E031"),
    ({"COMPLIANT_BCP_RFC9700_TOKEN_STORAGE": False}, "E031"),
    ({"COMPLIANT_BCP_RFC9700_PKCE_METHOD": False}, "E031"),
    ({"COMPLIANT_BCP_RFC9700_PASSWORD_GRANT": False}, "E031"),
    ({"ALLOW_URI_WILDCARDS": True}, "E031"),
    ({"DCR_ENABLED": True}, "E031"),
    ({"CIMD_ENABLED": True}, "E031"),
    ({"REFRESH_TOKEN_GRACE_PERIOD_SECONDS": 10}, "E031"),
    ({"OAUTH2_VALIDATOR_CLASS": "oauth2_provider.oauth2_validators.OAuth2Validator"}, "E031"),
    ({"OAUTH2_VALIDATOR_CLASS": "nowhere.Validator"}, "E031"),
    ({"OAUTH2_SERVER_CLASS": "oauthlib.oauth2.Server"}, "E031"),
    ({"ACCESS_TOKEN_GENERATOR": None}, "E031"),
    ({"urls": "tests.interaction.urls"}, "E033"),
    ({"urls": "oauth2_provider.urls"}, "E033"),
    ({"urls": "tests.contrib.oauth.urls_below"}, "E033"),
    ({"mcp": {**oauth_flow.SETTINGS, "ORIGIN": "https://elsewhere.example"}}, "W030"),
    ({"mcp": {**oauth_flow.SETTINGS, "AUTH": "token"}}, "W033"),
    ({"mcp": {**oauth_flow.SETTINGS, "OAUTH": {"ACCESS_TOKEN": 7200}}}, "W031"),
    ({"ACCESS_TOKEN_EXPIRE_SECONDS": 36000}, "W031"),
    ({"OIDC_ENABLED": True}, "W032"),
]


def test_problems_are_reported(subtests: pytest.Subtests) -> None:
    for overrides, expected in PROBLEMS:
        with subtests.test(overrides=overrides):
            assert list_messages(**{"urls": "tests.contrib.oauth.urls", **overrides}) == [expected]


def test_a_missing_login_page_is_reported(subtests: pytest.Subtests) -> None:
    for url in ("/nowhere/", "no-view-of-this-name"):
        with subtests.test(url=url):
            assert list_messages(login=url) == ["W034"]


def test_a_login_page_may_be_a_path_a_url_name_or_a_url(subtests: pytest.Subtests) -> None:
    for url in ("/accounts/login/?of=shop", "login", "https://login.example/"):
        with subtests.test(url=url):
            assert list_messages(login=url) == []


def test_an_issuer_below_a_path_may_have_its_server_there() -> None:
    issuer = {"OIDC_ISS_ENDPOINT": f"{ISSUER}/below"}
    assert list_messages(urls="tests.contrib.oauth.urls_below", **issuer) == []
    assert list_messages(**issuer) == []


def test_a_validator_of_the_project_may_extend_that_of_the_package() -> None:
    assert list_messages(urls="tests.contrib.oauth.urls", OAUTH2_VALIDATOR_CLASS=f"{__name__}.OwnValidator") == []


def test_an_untested_version_of_the_toolkit_is_reported(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for found, wrong in (("3.4.1", False), ("3.5.0", False), ("3.3.0", True), ("4.0.0", True)):
        with subtests.test(found=found):
            monkeypatch.setattr(checks, "version", lambda name, found=found: found)
            assert list_messages(urls="tests.contrib.oauth.urls") == (["E032"] if wrong else [])


def test_a_missing_toolkit_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps, "is_installed", lambda name: name != "oauth2_provider")
    with pytest.raises(ImproperlyConfigured, match="INSTALLED_APPS"):
        apps.get_app_config("mcp_oauth").import_models()


def test_without_the_app_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.apps, "is_installed", lambda name: False)
    assert list_messages(urls="tests.interaction.urls", PKCE_REQUIRED=False, OIDC_ISS_ENDPOINT="") == []
