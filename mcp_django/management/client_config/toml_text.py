"""Changes of one table in TOML text; everything else is preserved."""

import json
import re
import tomllib
from typing import Any

_HEADER = re.compile(r"^[ \t]*\[")
_ASIDE = re.compile(r"^[ \t]*(#|$)")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def put(text: str, section: str, name: str, entry: dict[str, Any]) -> str:
    """Return `text` with `entry` as the table `section.name`.

    Raises ValueError for invalid TOML, or for a notation that prevents the change.
    """
    before = _loads(text)
    expected = {**before, section: {**_table(before, section), name: entry}}
    newline = "\r\n" if "\r\n" in text else "\n"
    kept = _without(text, section, name) if name in _table(before, section) else text
    if kept.strip():
        kept = kept.rstrip("\r\n") + newline * 2
    changed = kept + _dump(section, name, entry).replace("\n", newline)
    return _checked(changed, expected)


def drop(text: str, section: str, name: str) -> str:
    """Return `text` without the table, or unchanged if it is missing.

    Raises ValueError.
    """
    before = _loads(text)
    servers = _table(before, section)
    if name not in servers:
        return text
    rest = {key: value for key, value in servers.items() if key != name}
    expected = {key: value for key, value in before.items() if key != section}
    return _checked(_without(text, section, name), {**expected, section: rest} if rest else expected, section)


def get(text: str, section: str, name: str) -> Any:
    """Return the table, or None. Raises ValueError."""
    return _table(_loads(text), section).get(name)


def _loads(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _checked(changed: str, expected: dict[str, Any], may_be_empty: str = "") -> str:
    """Check the content of the changed text, so that a bug cannot lose data."""
    try:
        found = _loads(changed)
    except ValueError as problem:
        raise ValueError("it is written so that it could not be changed safely") from problem
    if may_be_empty and not found.get(may_be_empty, True):
        del found[may_be_empty]
    if found != expected:
        raise ValueError("it is written so that it could not be changed safely")
    return changed


def _table(data: dict[str, Any], section: str) -> dict[str, Any]:
    found = data.get(section, {})
    if not isinstance(found, dict):
        raise ValueError(f'"{section}" is not a table')
    return found


def _without(text: str, section: str, name: str) -> str:
    """Remove the lines of a table and its subtables.

    The comments before the next table are kept.
    """
    kept: list[str] = []
    held: list[str] = []
    ours = False

    for line in text.splitlines(keepends=True):
        if _HEADER.match(line):
            now = _is_of(line, section, name)
            if not now:
                kept += held
            held, ours = [], now
        if not ours:
            kept.append(line)
        elif _ASIDE.match(line.rstrip("\r\n")):
            held.append(line)
        else:
            held = []
    return "".join(kept)


def _is_of(line: str, section: str, name: str) -> bool:
    try:
        data = _loads(line)
    except ValueError:
        return False
    found = data.get(section)
    return isinstance(found, dict) and list(found) == [name]


def _dump(section: str, name: str, entry: dict[str, Any]) -> str:
    path = f"{section}.{_key(name)}"
    lines = [f"[{path}]"]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in entry.items() if not isinstance(value, dict)]
    for key, value in entry.items():
        if isinstance(value, dict):
            lines += ["", f"[{path}.{_key(key)}]", *(f"{_key(inner)} = {_value(it)}" for inner, it in value.items())]
    return "\n".join(lines) + "\n"


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _value(key)


def _value(value: str | list[str]) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    # Basic strings have the escapes of JSON, and one more character to escape (TOML 1.0, String).
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
