"""The shape of tokens."""

import pytest

from mcp_django.contrib.oauth.tokens.token_format import access_token, digest, is_access_token, refresh_token


def test_an_access_token_is_recognized_by_its_format() -> None:
    token = access_token(None)
    assert token.startswith("mcp_at_")
    assert is_access_token(token)
    assert token != access_token(None)


def test_a_changed_token_is_refused(subtests: pytest.Subtests) -> None:
    for change in (lambda token: token[:-1], lambda token: token + "0", lambda token: token.upper()):
        with subtests.test(change=change):
            assert callable(change)
            assert not is_access_token(change(access_token(None)))


def test_a_typing_error_is_noticed() -> None:
    token = access_token(None)
    wrong = token[:10] + ("a" if token[10] != "a" else "b") + token[11:]
    assert not is_access_token(wrong)


def test_a_refresh_token_has_another_format() -> None:
    token = refresh_token(None)
    assert token.startswith("mcp_rt_")
    assert not is_access_token(token)


def test_a_digest_accepts_any_string() -> None:
    assert len(digest("\ud800\x00")) == 64
