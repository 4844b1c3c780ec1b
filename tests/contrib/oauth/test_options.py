"""`MCP["OAUTH"]`, and the settings of django-oauth-toolkit that are made from it."""

import subprocess
import sys
from typing import Any

import pytest
from oauth2_provider.settings import OAuth2ProviderSettings

from mcp_django import conf
from mcp_django.contrib.oauth import oauth2_provider_settings
from mcp_django.contrib.oauth.options import get_settings


def problems(settings: Any, **options: Any) -> list[str]:
    settings.MCP = {"OAUTH": options}
    return [problem.path for problem in conf.get_problems()]


OUT_OF_RANGE: list[tuple[str, Any]] = [
    ("ACCESS_TOKEN", 0),
    ("ACCESS_TOKEN", 10**6),
    ("CODE", 3600),
    ("REFRESH_GRACE", 61),
    ("SIBLINGS", 21),
    ("NATIVE_SCHEMES", ["javascript"]),
    ("NATIVE_SCHEMES", ["https"]),
    ("NATIVE_SCHEMES", "cursor"),
    ("DOCUMENT_HOSTS", ["https://claude.ai"]),
    ("NATIVE_SCHEMES", ["intent"]),
    ("MOST_CLIENTS", 0),
    ("REMEMBER_CONSENT", -1),
]


def test_an_option_out_of_its_range_is_reported(settings: Any, subtests: pytest.Subtests) -> None:
    for option, value in OUT_OF_RANGE:
        with subtests.test(option=option, value=value):
            assert problems(settings, **{option: value}) == [f'MCP["OAUTH"]["{option}"]']


def test_options_are_read(settings: Any) -> None:
    assert not problems(settings, ACCESS_TOKEN=60, NATIVE_SCHEMES=["zed"], REFRESH_GRACE=0)
    found = get_settings()
    assert (found.access_token, found.native_schemes, found.refresh_grace) == (60, ("zed",), 0)


def test_lifetimes_follow_the_options(settings: Any) -> None:
    settings.MCP = {"OAUTH": {"ACCESS_TOKEN": 77, "CODE": 30, "REFRESH_TOKEN": 3600, "NATIVE_SCHEMES": ["zed"]}}
    found = OAuth2ProviderSettings(oauth2_provider_settings(issuer="https://host.example"))
    assert found.ACCESS_TOKEN_EXPIRE_SECONDS == 77
    assert found.AUTHORIZATION_CODE_EXPIRE_SECONDS == 30
    assert found.REFRESH_TOKEN_EXPIRE_SECONDS == 3600
    assert found.ALLOWED_REDIRECT_URI_SCHEMES == ["https", "http", "zed"]


def test_overridden_settings_take_precedence() -> None:
    found = oauth2_provider_settings(issuer="https://host.example", ACCESS_TOKEN_EXPIRE_SECONDS=5, PKCE_REQUIRED=False)
    assert found["ACCESS_TOKEN_EXPIRE_SECONDS"] == 5
    assert found["PKCE_REQUIRED"] is False


def test_an_issuer_is_kept_unchanged(subtests: pytest.Subtests) -> None:
    for issuer in ("https://host.example", "https://host.example/auth", "http://localhost:8000"):
        with subtests.test(issuer=issuer):
            assert oauth2_provider_settings(issuer=issuer)["OIDC_ISS_ENDPOINT"] == issuer


NO_ISSUERS: list[str] = [
    "",
    "host.example",
    "http://host.example",
    "https://host.example/",
    "https://host.example?x",
    "https://host.example?",
    "https://me@host.example",
    "https://",
]


def test_other_urls_are_refused_as_issuers(subtests: pytest.Subtests) -> None:
    for issuer in NO_ISSUERS:
        with subtests.test(issuer=issuer), pytest.raises(ValueError, match="issuer"):
            oauth2_provider_settings(issuer=issuer)


def test_the_settings_need_no_django() -> None:
    code = (
        "import sys; sys.modules['oauth2_provider'] = None\n"
        "from mcp_django.contrib.oauth import oauth2_provider_settings\n"
        "assert oauth2_provider_settings(issuer='https://host.example')['PKCE_REQUIRED'] is True\n"
        "assert 'django.apps.registry' not in sys.modules or not sys.modules['django.apps.registry'].apps.ready\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
