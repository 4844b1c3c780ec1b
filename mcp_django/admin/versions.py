"""Line-by-line comparison of two versions."""

import base64
import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple

MAX_COMPARED_LINES = 2000
"""Maximum number of differing lines. Comparing more takes too long for a page."""
MAX_SHOWN_LINES = 5000
"""Maximum number of lines on a page."""
CONTEXT_LINES = 3
"""Number of equal lines shown around each difference."""
_FIELD_ORDER = (
    *("role", "kind", "uri", "path", "name", "title", "description", "required", "default", "choices"),
    *("server", "enabled", "permission", "scopes", "tags", "mime_type", "audience", "priority", "text", "data"),
    *("arguments", "messages", "files"),
)
"""Order of the fields. PostgreSQL does not keep the order of a JSON object."""
_LINE_KINDS = {"+": "added", "-": "removed", "@": "place", " ": "same"}


class DiffLine(NamedTuple):
    """Line of a comparison."""

    kind: str
    """`added`, `removed`, `same`, or `place` for the header between two places."""
    text: str


def render_snapshot(data: Mapping[str, Any]) -> list[str]:
    """Render a snapshot as lines of text."""
    lines: list[str] = []
    for name, value in _sort_fields(data):
        if isinstance(value, list) and value and isinstance(value[0], dict):
            for number, part in enumerate(value, start=1):
                lines.append(f"{name} {number}:")
                lines += [f"    {line}" for key, inner in _sort_fields(part) for line in _render_field(key, inner)]
        else:
            lines += _render_field(name, value)
    return lines


def _sort_fields(data: Mapping[str, Any]) -> list[tuple[str, Any]]:
    rank = {name: number for number, name in enumerate(_FIELD_ORDER)}
    return sorted(data.items(), key=lambda item: rank.get(item[0], len(rank)))


def _render_field(name: str, value: Any) -> Iterator[str]:
    if name == "data" and isinstance(value, str):
        content = base64.b64decode(value)
        yield f"file: {len(content)} bytes, SHA-256 {sha256(content).hexdigest()}"
    elif isinstance(value, str) and ("\n" in value or len(value) > 100):
        yield f"{name}:"
        for line in value.splitlines():
            yield f"    {line}"
    elif value not in ("", None, []):
        yield f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"


def compare_snapshots(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[DiffLine] | None:
    """Compare two snapshots line by line.

    Returns:
        No lines if they are equal, None if too many lines differ.
    """
    old, new = render_snapshot(before), render_snapshot(after)
    # Equal lines at both ends are skipped, because the cost is the product of the two lengths.
    start = _count_equal(old, new)
    end = _count_equal(reversed(old[start:]), reversed(new[start:]))
    if max(len(old), len(new)) - start - end > MAX_COMPARED_LINES:
        return None
    start, end = max(start - CONTEXT_LINES, 0), max(end - CONTEXT_LINES, 0)
    diff = difflib.unified_diff(old[start : len(old) - end], new[start : len(new) - end], lineterm="", n=CONTEXT_LINES)
    return [
        DiffLine(_LINE_KINDS[line[0]], line if line[0] == "@" else line[1:])
        for line in islice(diff, 2, MAX_SHOWN_LINES)
    ]


def _count_equal(first: Iterable[str], second: Iterable[str]) -> int:
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count
