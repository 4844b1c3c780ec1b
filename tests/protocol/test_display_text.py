"""Text for display: the characters that a person cannot see are removed, in one line or in several."""

import pytest

from mcp_django.protocol.display_text import clean_line, clean_text, escape_invisible, is_visible, truncate

PERSIAN = "\u0645\u06cc\u200c\u062e\u0648\u0645"
LINES = [
    ("plain", "plain"),
    ("  two\n\tlines\u2028of\u0085text  ", "two lines of text"),
    ("Goo\u202egle\u2066\u2069", "Google"),
    ("zero\u200bwidth\ufeff", "zerowidth"),
    ("a\u200cb\u200dc", "abc"),
    ("\x00\x1b[31mred\x7f", "[31mred"),
    ("half\ud800 \ue000private", "half private"),
    ("soft\u00adhyphen", "softhyphen"),
    ("tag\U000e0061\U000e0062", "tag"),
    ("selector\ufe0f\U000e0101", "selector"),
    ("filler\u3164\u115f\u2800", "filler"),
    ("no\u00a0break", "no break"),
    ("größe 日本語 ❤\ufe0f", "größe 日本語 ❤\ufe0f"),
    (PERSIAN, PERSIAN),
    ("क\u094d\u200dष", "क\u094d\u200dष"),
    ("👩\u200d💻", "👩\u200d💻"),
    ("👩\u200d", "👩"),
]


def test_a_line_has_visible_characters_only(subtests: pytest.Subtests) -> None:
    for text, shown in LINES:
        with subtests.test(text=text):
            assert clean_line(text) == shown
            assert clean_line(shown) == shown
            assert is_visible(shown)


def test_a_hidden_character_is_detected() -> None:
    assert [is_visible(text) for text in ("a b", "größe", "a\u202eb", "a\nb", "a\u3164")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_a_text_keeps_line_breaks_and_no_other_hidden_characters() -> None:
    assert clean_text("one\r\n  two\u202e\u2028three\x00\tfour\n") == "one\n  two\nthree   four\n"


def test_a_long_text_is_truncated() -> None:
    assert truncate("n" * 81, 80) == "n" * 79 + "…"
    assert truncate("n" * 80, 80) == "n" * 80
    assert truncate("n" * 200, None) == "n" * 200
    assert truncate("one two", 5) == "one …"
    assert clean_line("n" * 200, 80) == "n" * 79 + "…"
    assert clean_text("ab\ncdef", 5) == "ab\nc…"


def test_a_log_shows_hidden_characters_as_escapes() -> None:
    assert escape_invisible("a\u202eb\u3164\n") == "a\\u202eb\\u3164\\n"
    assert escape_invisible("back\\slash", also="\\") == "back\\\\slash"
    assert escape_invisible("größe") == "größe"
