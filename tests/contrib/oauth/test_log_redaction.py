"""Logs at DEBUG hold no credentials."""

import logging
from typing import Any

import pytest

from mcp_django.contrib.oauth.log_redaction import PATTERNS
from mcp_django.logs.redaction import replace_patterns
from tests.contrib.oauth import oauth_flow
from tests.contrib.oauth.oauth_flow import create_client, create_user, exchange, issue_code, read_json, refresh


@pytest.mark.django_db
@pytest.mark.urls("tests.contrib.oauth.urls")
def test_a_whole_flow_leaves_no_credential_in_the_log(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.MCP = oauth_flow.SETTINGS
    caplog.set_level(logging.DEBUG)
    app, user = create_client(), create_user()
    given = issue_code(app, user)
    first = read_json(exchange(app, given))
    second = read_json(refresh(app, first["refresh_token"]))
    read_json(exchange(app, given), 400)
    read_json(refresh(app, "not-one-of-ours"), 400)
    assert any(record.name.startswith("oauthlib.") for record in caplog.records)
    secrets = [given, oauth_flow.VERIFIER, "not-one-of-ours"]
    secrets += [each[name] for each in (first, second) for name in ("access_token", "refresh_token")]
    for record in caplog.records:
        text = f"{record.getMessage()} {record.args!r}"
        assert not any(secret in text for secret in secrets), record.name


MESSAGES: list[str] = [
    "Saving grant {'code': 'SECRET', 'state': 's'} for x",
    "Success url for the request: https://app.example/cb?code=SECRET&state=s",
    "Issuing new token: {'access_token': 'SECRET', 'expires_in': 900}",
    "Validating refresh token SECRET for client app",
    "Invalid refresh token, SECRET, for client app",
    "Refresh token SECRET lack requested scopes",
    "client_secret=SECRET&grant_type=refresh_token",
]


def test_messages_of_libraries_are_redacted(subtests: pytest.Subtests) -> None:
    for text in MESSAGES:
        with subtests.test(text=text):
            assert "SECRET" not in replace_patterns(text, PATTERNS)


def test_other_values_are_not_redacted() -> None:
    text = "Dispatching grant_type refresh_token request to <Grant>; Token request validation ok for <Request>"
    assert replace_patterns(text, PATTERNS) == text
