"""Export of calls as CSV and JSON lines, row by row."""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

from django.http import StreamingHttpResponse

from mcp_django.contrib.control_room.models import CallLogEntry

FIELDS = tuple(field.name for field in CallLogEntry._meta.concrete_fields if field.name not in ("id", "arguments"))
FORMATS = ("csv", "jsonl")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def iter_lines(records: Iterable[CallLogEntry], format: str, *, with_arguments: bool) -> Iterator[str]:
    """Yield the lines of an export.

    `format` is "csv", with a line of names first, or "jsonl". `with_arguments` adds the recorded arguments.
    """
    names = (*FIELDS, "arguments") if with_arguments else FIELDS
    if format == "csv":
        yield _format_row(names)
    for record in records:
        values = {name: getattr(record, name) for name in names}
        values["at"] = record.at.isoformat()
        if format == "csv":
            yield _format_row([_guard(value) for value in values.values()])
        else:
            yield json.dumps(values, ensure_ascii=False) + "\n"


def _format_row(values: Iterable[Any]) -> str:
    text = io.StringIO()
    csv.writer(text).writerow(["" if value is None else value for value in values])
    return text.getvalue()


def _guard(value: Any) -> Any:
    """Return a value that no spreadsheet runs as a formula (OWASP, "CSV Injection")."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value


def build_csv_response(rows: Iterable[Iterable[Any]], name: str) -> StreamingHttpResponse:
    """Return a file with rows as CSV."""
    lines = (_format_row(_guard(value) for value in row) for row in rows)
    response = StreamingHttpResponse(lines, content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["Cache-Control"] = "no-store"
    return response
