"""Export of calls as CSV and JSON lines, row by row.

The columns are the fields of the model in their order, without the primary key. The arguments are the last one.
"""

import json
from collections.abc import Iterable, Iterator

from django.http import StreamingHttpResponse

from mcp_django.admin.csv_response import build_file_response, format_csv_row
from mcp_django.contrib.control_room.models import CallLogEntry
from mcp_django.protocol.display_text import escape_json

FIELDS = tuple(field.name for field in CallLogEntry._meta.concrete_fields if field.name not in ("id", "arguments"))
CONTENT_TYPES = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl; charset=utf-8"}
"""Content types of the formats."""
FORMATS = tuple(CONTENT_TYPES)


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


def build_export(records: Iterable[CallLogEntry], format: str, *, with_arguments: bool) -> StreamingHttpResponse:
    """Return a file with calls. See `iter_lines`."""
    lines = iter_lines(records, format, with_arguments=with_arguments)
    return build_file_response(lines, f"calls.{format}", CONTENT_TYPES[format])
