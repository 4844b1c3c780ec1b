"""Frontmatter: its types, and the texts that are refused."""

import sys
from typing import Any

import pytest

from mcp_django.schema import frontmatter
from mcp_django.schema.frontmatter import FrontmatterError, find_ambiguous_values, parse_frontmatter

HUGE_NUMBERS = [
    *(sign + digits for sign in ("", "-", "+") for digits in ("9" * 5000, "1" + "0" * 400)),
    *(prefix + "7" * digits for prefix in ("0o", "0x") for digits in (50, 400, 5000)),
    "1e99999",
    "-1e99999",
]
"""Numbers that JSON has not, and that Python refuses to convert or to compare with a float."""


def parse(text: str) -> Any:
    return parse_frontmatter(f"---\n{text}\n---\nBody".encode())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("Off", "off".capitalize()),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("2026-01-01", "2026-01-01"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("0777", 777),
        ("0o17", 15),
        ("0x1F", 31),
        ("-12", -12),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("0b11", "0b11"),
        ("'12'", "12"),
        ("<<", "<<"),
        ("0" * 60 + "12", 12),
        ("1." + "9" * 5000, 2.0),
        ("=", "="),
        ("[1, {a: no}]", [1, {"a": "no"}]),
        ("|\n  one\n  two", "one\ntwo\n"),
        (">-\n  one\n  two", "one two"),
    ],
)
def test_values_have_the_types_of_the_core_schema(text: str, value: Any) -> None:
    found = parse(f"key: {text}")["key"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: 1\na: 2", "used twice"),
        ("a: {b: 1, b: 2}", "used twice"),
        ("a: &x 1\nb: *x", "anchors"),
        ("a: !!python/object:os.system x", "anchors, aliases and tags"),
        ("a: !custom 1", "tags"),
        ("a: .inf", "not a number of JSON"),
        ("a: .nan", "not a number of JSON"),
        ("a: 9007199254740993", "not a number of JSON"),
        *((f"a: {number}", "not a number of JSON") for number in HUGE_NUMBERS),
        ('a: "\\ud800"', "half of a character"),
        ('"\\udfff": a', "half of a character"),
        ("<<: {b: c}", "merge keys are not allowed"),
        ("a: {<<: {b: c}}", "merge keys are not allowed"),
        ("1: a", "must be a text"),
        ("? [a]\n: b", "must be a text"),
        ("- a", "must be a mapping"),
        ("", "must be a mapping"),
        ("a: [1", "not YAML"),
        ("a: 'x\u2028y'", "line breaks"),
        ("a: " + "[" * 40 + "]" * 40, "deeper than"),
        ("a: " + "x" * 70_000, "longer than"),
        ("a: b\n...\nc: d", "not YAML"),
    ],
)
def test_ambiguous_texts_are_refused(text: str, reason: str) -> None:
    with pytest.raises(FrontmatterError, match=reason):
        parse(text)


def test_a_quoted_merge_key_is_a_text() -> None:
    assert parse("'<<': {b: c}") == {"<<": {"b": "c"}}


def test_an_exception_of_the_parser_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(node: object) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr(frontmatter, "_convert_scalar", fail)
    with pytest.raises(FrontmatterError, match=r"cannot be read: OverflowError: too large"):
        parse("a: 1")


@pytest.mark.parametrize("data", [b"", b"name: x", b" ---\na: 1\n---\n", b"---\na: 1\n", b"---\na: \xff\n---\n"])
def test_files_without_a_frontmatter_are_refused(data: bytes) -> None:
    with pytest.raises(FrontmatterError):
        parse_frontmatter(data)


def test_line_ends_and_a_byte_order_mark_are_allowed() -> None:
    data = "\ufeff---\r\nname: x\r\ntext: |\r\n  a\r\n  b\r\n---\r\n---\r\n".encode()
    assert parse_frontmatter(data) == {"name": "x", "text": "a\nb\n"}


def test_values_that_yaml_1_1_parsers_type_differently_are_found() -> None:
    data = b"---\na: yes\nb: 2026-01-01\nc: '2026-01-01'\nd: 010\ne: 0o17\nf: plain\ng: 12\nh: 1_0\n---\n"
    assert find_ambiguous_values(data) == ["yes", "2026-01-01", "010", "0o17", "1_0"]


def test_a_missing_parser_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(FrontmatterError, match=r"mcp-django-channels\[skills\]"):
        parse("name: x")
