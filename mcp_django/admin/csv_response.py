"""CSV of the admin: files whose values no spreadsheet runs as formulas."""

import csv
import io
import re
from collections.abc import Iterable
from typing import Any

from django.http import StreamingHttpResponse

from mcp_django.protocol.display_text import escape_invisible

_FORMULA = re.compile(r"[\s;,]*(?:[=+\-@\uff1d\uff0b\uff0d\uff20]|(?<=[\t\r\n]))")
"""Beginning of a formula, behind white space and separators. Full-width signs count too."""


def format_csv_row(values: Iterable[Any]) -> str:
    """Return a line of CSV with each value in quotes, which no spreadsheet runs as a formula.

    Without quotes, a reader that separates by semicolons would find cells within a value (OWASP, "CSV Injection").
    Invisible characters and line breaks are backslash escapes, because people and terminals read the file.
    """
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerow(["" if value is None else _guard(value) for value in values])
    return text.getvalue()


def _guard(value: Any) -> Any:
    """Return a number as it is, and other values as text.

    A text that could begin a formula has an apostrophe before it.
    """
    if isinstance(value, int | float):
        return value
    text = str(value)
    guard = "'" if _FORMULA.match(text) else ""
    return guard + escape_invisible(text)


def build_csv_response(rows: Iterable[Iterable[Any]], name: str) -> StreamingHttpResponse:
    """Return a file with rows as CSV."""
    return build_file_response(map(format_csv_row, rows), name, "text/csv; charset=utf-8")


def build_file_response(lines: Iterable[str], name: str, content_type: str) -> StreamingHttpResponse:
    """Return a file with lines, which no cache keeps."""
    response = StreamingHttpResponse(lines, content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["Cache-Control"] = "no-store"
    return response
