"""Export of calls as CSV and JSON lines, row by row."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from django.http import StreamingHttpResponse

from mcp_django.contrib.control_room.models import CallLogEntry
from mcp_django.protocol.display_text import escape_invisible, escape_json

FIELDS = tuple(field.name for field in CallLogEntry._meta.concrete_fields if field.name not in ("id", "arguments"))
FORMATS = ("csv", "jsonl")
_FORMULA = re.compile(r"[\s;,]*(?:[=+\-@\uff1d\uff0b\uff0d\uff20]|(?<=[\t\r\n]))")
"""Beginning of a formula, behind white space and separators. Full-width signs count too."""


def iter_lines(records: Iterable[CallLogEntry], format: str, *, with_arguments: bool) -> Iterator[str]:
    """Yield the lines of an export.

    `format` is "csv", with a line of names first, or "jsonl". `with_arguments` adds the recorded arguments.
    """
    names = (*FIELDS, "arguments") if with_arguments else FIELDS
    if format == "csv":
        yield format_csv_row(names)
    for record in records:
        values = {name: getattr(record, name) for name in names}
        values["at"] = record.at.isoformat()
        if format == "csv":
            yield format_csv_row(values.values())
        else:
            yield escape_json(json.dumps(values, ensure_ascii=False)) + "\n"


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
    response = StreamingHttpResponse(map(format_csv_row, rows), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["Cache-Control"] = "no-store"
    return response
