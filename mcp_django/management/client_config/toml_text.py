"""Changes of one table in TOML text. tomlkit keeps the style and the comments of everything else.

It needs tomlkit (`pip install mcp-django-channels[codex]`).
"""

import re
import tomllib
from collections.abc import Mapping
from typing import Any

try:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError
    from tomlkit.items import Comment, Table, Whitespace
except ImportError:
    IS_INSTALLED = False
else:
    IS_INSTALLED = True

UNSAFE_MESSAGE = "it is written so that it could not be changed safely"
_PLACEHOLDER = "removed_by_mcp_install"
_PLACEHOLDER_TABLE = re.compile(rf"^[ \t]*\[[^\n]*\n{_PLACEHOLDER} = true\r?\n", re.MULTILINE)


def put(text: str, section: str, name: str, entry: dict[str, Any]) -> str:
    """Return `text` with `entry` as the table `section.name`, at its end.

    Raises ValueError for invalid TOML, or for a notation that prevents the change.
    """
    data = _loads(text)
    expected = {**data, section: {**_get_table(data, section), name: entry}}
    newline = "\r\n" if "\r\n" in text else "\n"
    remaining = _remove_table(text, section, name) if name in _get_table(data, section) else text
    if remaining.strip():
        remaining = remaining.rstrip("\r\n") + newline * 2
    servers = tomlkit.table(is_super_table=True)
    servers.add(name, _build_table(entry))
    return _check_change(remaining + tomlkit.dumps({section: servers}).replace("\n", newline), expected)


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


def _get_table(data: dict[str, Any], section: str) -> dict[str, Any]:
    table = data.get(section, {})
    if not isinstance(table, dict):
        raise ValueError(f'"{section}" is not a table')
    return table


def _build_table(entry: Mapping[str, Any]) -> Any:
    """Return a table with a subtable for each mapping, which come last."""
    table = tomlkit.table()
    for key, value in sorted(entry.items(), key=lambda item: isinstance(item[1], Mapping)):
        table.add(key, _build_table(value) if isinstance(value, Mapping) else value)
    return table


def _remove_table(text: str, section: str, name: str) -> str:
    """Remove a table with its subtables. The comments after it belong to the next table, and are kept."""
    try:
        document: Any = tomlkit.parse(text)
        comments = _list_last_comments(document[section][name])
        del document[section][name]
        if not isinstance(document[section], Table) or not comments:
            return tomlkit.dumps(document)

        # A table with the comments takes its place, and is cut from the text without them.
        document = tomlkit.parse(text)
        placeholder = tomlkit.table()
        placeholder.add(_PLACEHOLDER, True)
        for comment in comments:
            placeholder.add(comment)
        document[section][name] = placeholder
        return _PLACEHOLDER_TABLE.sub("", tomlkit.dumps(document))
    except (RecursionError, TOMLKitError) as problem:
        raise ValueError(UNSAFE_MESSAGE) from problem


def _list_last_comments(item: Any) -> list[Any]:
    """Return the comments and blank lines after the last value of a table, and of its last subtable."""
    if not isinstance(item, Table):
        return []
    found: list[Any] = []
    for _, part in reversed(item.value.body):
        if not isinstance(part, Comment | Whitespace):
            return [*_list_last_comments(part), *reversed(found)]
        found.append(part)
    return list(reversed(found))


def _check_change(changed: str, expected: dict[str, Any], may_be_empty: str = "") -> str:
    """Check the content of the changed text, so that no bug can lose data."""
    try:
        parsed = _loads(changed)
    except ValueError as problem:
        raise ValueError(UNSAFE_MESSAGE) from problem
    if may_be_empty and not parsed.get(may_be_empty, True):
        del parsed[may_be_empty]
    if parsed != expected:
        raise ValueError(UNSAFE_MESSAGE)
    return changed
