"""Loggers of the package: invisible characters in arguments and tracebacks are escaped."""

import ast
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mcp_django
from mcp_django.protocol.log_text import Lines, get_logger

PACKAGE = Path(mcp_django.__file__).parent
HOSTILE = "a\x1b[31mb\u202ec\nd\ud800"
ESCAPED = r"a\x1b[31mb\u202ec\nd\ud800"


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """Formatted records of the logger."""
    written: list[str] = []

    class Writer(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.append(self.format(record))

    handler = Writer()
    logger.addHandler(handler)
    yield written
    logger.removeHandler(handler)


logger = get_logger("mcp_django.test_log_text")


@pytest.mark.parametrize(
    ("message", "arguments", "expected"),
    [
        ("Failed: %s", (HOSTILE,), f"Failed: {ESCAPED}"),
        ("Failed: %s", (ValueError(HOSTILE),), f"Failed: {ESCAPED}"),
        ("Failed: %(name)s", ({"name": HOSTILE},), f"Failed: {ESCAPED}"),
        ("Failed: %r, %s", ("\u202e", HOSTILE), rf"Failed: '\u202e', {ESCAPED}"),
        ("Took %.1f s, %d bytes: %s", (1.5, 3, "Zürich"), "Took 1.5 s, 3 bytes: Zürich"),
        ("Failed:\n%s", (Lines("first\n  \x1bsecond"),), "Failed:\nfirst\n  \\x1bsecond"),
    ],
)
def test_arguments_are_escaped(lines: list[str], message: str, arguments: Any, expected: str) -> None:
    logger.error(message, *arguments)
    assert lines == [expected]


def test_a_traceback_is_escaped_and_keeps_its_lines(lines: list[str]) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logger.exception("Failed")
    [text] = lines
    assert text.splitlines()[0:2] == ["Failed", "Traceback (most recent call last):"]
    assert text.endswith("ValueError: a\\x1b[31mb\\u202ec\nd\\ud800")


def test_the_template_of_a_record_is_kept_for_grouping(caplog: pytest.LogCaptureFixture) -> None:
    logger.error("Failed: %s", HOSTILE)
    assert [record.msg for record in caplog.records] == ["Failed: %s"]


def test_mismatched_log_arguments_do_not_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    logger.error("Failed: %d", "three")


def test_each_logger_of_the_package_has_the_filter() -> None:
    makers = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "getLogger"
    }
    # The filter of secrets is attached to loggers of libraries.
    assert makers == {"protocol/log_text.py", "logs/redaction.py"}
