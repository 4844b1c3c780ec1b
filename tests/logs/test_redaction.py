"""The redaction of log lines."""

from typing import Any

import pytest

from mcp_django.logs import redacted, redaction
from mcp_django.models.token import TOKEN_PREFIX


class Connection:
    headers = None


class Call:
    """A call with the attributes that redaction reads."""

    connection = Connection()


call: Any = Call()


def test_texts_like_secrets_are_redacted(subtests: pytest.Subtests) -> None:
    cases = [
        ("nothing to hide", "nothing to hide"),
        ("password=hunter2 for bob", "password=[redacted] for bob"),
        ("{'password': 'hunter two', 'user': 'bob'}", "{'password': [redacted], 'user': 'bob'}"),
        ('{"api_key":"abc","n":1}', '{"api_key":[redacted],"n":1}'),
        ("DB_PASSWORD: x", "DB_PASSWORD: [redacted]"),
        ("access_token=abc&next=/", "access_token=[redacted]&next=/"),
        ("Authorization: Basic dXNlcjpw\nnext line", "Authorization: [redacted]\nnext line"),
        ("sent Bearer abcdefgh", "sent Bearer [redacted]"),
        ("Set-Cookie: a=b; c=d", "Set-Cookie: [redacted]"),
        ("postgres://user:pw@db/shop", "postgres://[redacted]@db/shop"),
        (f"used {TOKEN_PREFIX}abcdefgh_0123456789", "used [redacted]"),
        ("jwt eyJhbGciOi.eyJzdWIiOi.abc here", "jwt [redacted] here"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE", "[redacted]"),
    ]
    for text, clean in cases:
        with subtests.test(text=text, clean=clean):
            assert redacted(text, call) == clean


def test_a_secret_at_the_cut_is_not_sent() -> None:
    text = "x" * 4080 + " postgres://admin:hunter2hunter2@db"
    assert "hunter2" not in redacted(text, call)


def test_a_long_line_is_cut() -> None:
    assert redacted("x" * 10_000, call) == "x" * 4096 + "…"
    assert redacted("x" * 100_000, call) == "x" * 4096 + "…"


def test_hostile_lines_are_cleaned_to_a_bounded_text(subtests: pytest.Subtests) -> None:
    """Repeated beginnings of patterns: a pattern without bounds would take hours here."""
    for part in ["token", "a", "password'", "://", "-----BEGIN ", "eyJ", "token ", '"', "secret="]:
        with subtests.test(part=part):
            assert len(redacted(part * 100_000, call)) <= 4097


def test_patterns_look_at_the_beginning_of_a_line_only(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    class Pattern:
        def sub(self, replacement: str, text: str) -> str:
            lengths.append(len(text))
            return text

    monkeypatch.setattr(redaction, "_PATTERNS", [(Pattern(), "")])
    redacted("x" * 100_000, call)
    assert lengths == [4 * 4096]
