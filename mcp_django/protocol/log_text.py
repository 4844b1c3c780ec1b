"""Loggers of the package: arguments and tracebacks of visible characters.

Log records hold text of clients, of other servers and of rows: names, error messages, exceptions. A line break in them
would forge a record, and an escape sequence would change the terminal. Each logger of the package has one filter, so
no call of a logger has to remember this. The template of a message stays as it is, for tools that group by it.
"""

import contextlib
import logging
from collections.abc import Mapping
from typing import Any, Final

from mcp_django.protocol.display_text import escape_invisible


class Lines(str):
    """Argument of a log record that keeps its line breaks, such as a traceback."""

    __slots__ = ()


class _EscapedText(str):
    """Text of an argument with escapes, whose `repr` is that of the argument."""

    __slots__ = ("_repr",)
    _repr: str

    def __new__(cls, argument: object) -> "_EscapedText":
        text = super().__new__(cls, escape_invisible(str(argument)))
        text._repr = escape_invisible(repr(argument))
        return text

    def __repr__(self) -> str:
        return self._repr


class VisibleTextFilter(logging.Filter):
    """Filter that keeps records, and escapes invisible characters in their arguments and tracebacks."""

    def filter(self, record: logging.LogRecord) -> bool:
        # A handler reports a record that cannot be formatted. Its caller must not fail.
        with contextlib.suppress(Exception):
            if record.args and not _is_visible(record.getMessage()):
                record.args = _escape_arguments(record.args)
        if record.exc_info:
            traceback = record.exc_text or logging.Formatter().formatException(record.exc_info)
            if (escaped := escape_lines(traceback)) != traceback:
                record.exc_text = escaped  # Formatters use it in place of their own.
        return True


_FILTER: Final = VisibleTextFilter()


def get_logger(name: str) -> logging.Logger:
    """Return the logger of this name, with the filter."""
    logger = logging.getLogger(name)
    logger.addFilter(_FILTER)  # Idempotent. The filters of parent loggers would not apply.
    return logger


def escape_lines(text: str) -> str:
    """Return a text of several lines with escapes for the invisible characters of each line."""
    return text if _is_visible(text) else "\n".join(map(escape_invisible, text.split("\n")))


def _is_visible(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _escape_arguments(arguments: Any) -> Any:
    if isinstance(arguments, Mapping):
        return {name: _escape_argument(value) for name, value in arguments.items()}
    return tuple(map(_escape_argument, arguments))


def _escape_argument(value: Any) -> Any:
    if isinstance(value, int | float) or _is_visible(text := str(value)):
        return value
    if isinstance(value, Lines):
        return escape_lines(value)
    escaped = _EscapedText(value)
    return value if escaped == text else escaped
