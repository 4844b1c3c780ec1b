"""Changes of one table in TOML text; everything else is preserved."""

import json
import re
import tomllib
from typing import Any

_HEADER = re.compile(r"^[ \t]*\[")
_COMMENT_OR_BLANK = re.compile(r"^[ \t]*(#|$)")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def put(text: str, section: str, name: str, entry: dict[str, Any]) -> str:
    """Return `text` with `entry` as the table `section.name`.

    Raises ValueError for invalid TOML, or for a notation that prevents the change.
    """
    data = _loads(text)
    expected = {**data, section: {**_get_table(data, section), name: entry}}
    newline = "\r\n" if "\r\n" in text else "\n"
    remaining = _remove_table(text, section, name) if name in _get_table(data, section) else text
    if remaining.strip():
        remaining = remaining.rstrip("\r\n") + newline * 2
    changed = remaining + _dump(section, name, entry).replace("\n", newline)
    return _check_change(changed, expected)


def drop(text: str, section: str, name: str) -> str:
    """Return `text` without the table, or unchanged if it is missing.

    Raises ValueError.
    """
    data = _loads(text)
    servers = _get_table(data, section)
    if name not in servers:
        return text
    rest = {key: value for key, value in servers.items() if key != name}
    expected = {key: value for key, value in data.items() if key != section}
    return _check_change(_remove_table(text, section, name), {**expected, section: rest} if rest else expected, section)


def get(text: str, section: str, name: str) -> Any:
    """Return the table, or None. Raises ValueError."""
    return _get_table(_loads(text), section).get(name)


def _loads(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _check_change(changed: str, expected: dict[str, Any], may_be_empty: str = "") -> str:
    """Check the content of the changed text, so that a bug cannot lose data."""
    try:
        parsed = _loads(changed)
    except ValueError as problem:
        raise ValueError("it is written so that it could not be changed safely") from problem
    if may_be_empty and not parsed.get(may_be_empty, True):
        del parsed[may_be_empty]
    if parsed != expected:
        raise ValueError("it is written so that it could not be changed safely")
    return changed


def _get_table(data: dict[str, Any], section: str) -> dict[str, Any]:
    table = data.get(section, {})
    if not isinstance(table, dict):
        raise ValueError(f'"{section}" is not a table')
    return table


def _remove_table(text: str, section: str, name: str) -> str:
    """Remove the lines of a table and its subtables.

    The comments before the next table are kept.
    """
    kept_lines: list[str] = []
    pending_lines: list[str] = []
    is_in_table = False

    for line in text.splitlines(keepends=True):
        if _HEADER.match(line):
            is_table_header = _is_header_of(line, section, name)
            if not is_table_header:
                kept_lines += pending_lines
            pending_lines, is_in_table = [], is_table_header
        if not is_in_table:
            kept_lines.append(line)
        elif _COMMENT_OR_BLANK.match(line.rstrip("\r\n")):
            pending_lines.append(line)
        else:
            pending_lines = []
    return "".join(kept_lines)


def _is_header_of(line: str, section: str, name: str) -> bool:
    try:
        data = _loads(line)
    except ValueError:
        return False
    tables = data.get(section)
    return isinstance(tables, dict) and list(tables) == [name]


def _dump(section: str, name: str, entry: dict[str, Any]) -> str:
    path = f"{section}.{_format_key(name)}"
    lines = [f"[{path}]"]
    lines += [
        f"{_format_key(key)} = {_format_value(value)}" for key, value in entry.items() if not isinstance(value, dict)
    ]
    for key, value in entry.items():
        if isinstance(value, dict):
            lines += [
                "",
                f"[{path}.{_format_key(key)}]",
                *(f"{_format_key(inner)} = {_format_value(it)}" for inner, it in value.items()),
            ]
    return "\n".join(lines) + "\n"


def _format_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _format_value(key)


def _format_value(value: str | list[str]) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_format_value, value))}]"
    # Basic strings have the escapes of JSON, and one more character to escape (TOML 1.0, String).
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
