"""Changes of one member in JSON with comments; other bytes are preserved.

Editors allow comments in their settings (`.vscode/mcp.json`, Zed), which parsing and serializing would lose.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from mcp_django.protocol import jsonrpc

_MAX_DEPTH = 100
_DECODER = json.JSONDecoder()
_BLANKS_AND_COMMENTS = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_ATOM = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")


@dataclass(slots=True)
class JSONMember:
    """A member `"key": value` of an object. Positions are offsets in the text."""

    key: str
    start: int
    value: "JSONValue"
    comma: int | None = None
    """Offset of the comma after the member, if any."""


@dataclass(slots=True)
class JSONValue:
    """A value and its position."""

    data: Any
    start: int
    end: int
    members: list[JSONMember] = field(default_factory=list)
    tail: int = 0
    """Offset of the end of an object's last item or comment before the closing brace."""

    def find(self, key: str) -> JSONMember | None:
        """Return the member of an object, or None."""
        return next((member for member in self.members if member.key == key), None)


def parse(text: str) -> JSONValue:
    """Parse a text.

    Raises ValueError with line and column for syntax errors and duplicate keys.
    """
    parser = _JSONCParser(text)
    value = parser.parse_value(parser.skip_blanks(0), 0)
    if parser.skip_blanks(value.end) != len(text):
        parser.fail(parser.skip_blanks(value.end), "something follows the value")
    return value


def put(text: str, section: str, name: str, entry: Any) -> str:
    """Return `text` with `entry` as member `name` of the object `section`.

    A missing section is created. Raises ValueError.
    """
    if not text.strip():
        return json.dumps({section: {name: entry}}, indent=2, ensure_ascii=False) + "\n"
    root = _require_object(parse(text), "the file")
    style = _TextStyle(text, root)
    found = root.find(section)
    if found is None:
        changed = style.insert(root, section, {name: entry}, 1)
    else:
        servers = _require_object(found.value, f'"{section}"')
        member = servers.find(name)
        changed = style.insert(servers, name, entry, 2) if member is None else style.replace(member, entry, 2)

    expected = dict(root.data)
    expected[section] = {**expected.get(section, {}), name: entry}
    return _check_change(changed, expected)


def drop(text: str, section: str, name: str) -> str:
    """Return `text` without member `name` of `section`, or unchanged if missing.

    Raises ValueError.
    """
    root = _require_object(parse(text), "the file") if text.strip() else None
    found = None if root is None else root.find(section)
    if root is None or found is None:
        return text
    servers = _require_object(found.value, f'"{section}"')
    member = servers.find(name)
    if member is None:
        return text
    expected = {**root.data, section: {key: value for key, value in servers.data.items() if key != name}}
    return _check_change(_remove_member(text, servers, member), expected)


def get(text: str, section: str, name: str) -> Any:
    """Return the entry, or None. Raises ValueError."""
    data = _require_object(parse(text), "the file").data if text.strip() else {}
    servers = data.get(section)
    return servers.get(name) if isinstance(servers, dict) else None


def _check_change(changed: str, expected: Any) -> str:
    """Check the content of the changed text, so that a bug cannot lose data."""
    if parse(changed).data != expected:
        raise ValueError("it could not be changed safely")
    return changed


def _require_object(value: JSONValue, name: str) -> JSONValue:
    if not isinstance(value.data, dict):
        raise ValueError(f"{name} is not an object")
    return value


def _remove_member(text: str, owner: JSONValue, member: JSONMember) -> str:
    start, end = member.start, member.value.end
    before = owner.members[owner.members.index(member) - 1] if member is not owner.members[0] else None
    if member.comma is not None:
        end = member.comma + 1
    # Remove the whole line if it contains nothing else.
    line = text.rfind("\n", 0, start) + 1
    rest = re.compile(r"[ \t]*\r?(?:\n|\Z)").match(text, end)
    if rest and not text[line:start].strip() and line:
        start, end = line, rest.end()
    kept = text[:start] + text[end:]
    if member.comma is None and before is not None and before.comma is not None:
        kept = kept[: before.comma] + kept[before.comma + 1 :]
    return kept


class _TextStyle:
    """The layout of a text, and changes that follow it."""

    def __init__(self, text: str, root: JSONValue) -> None:
        self._text = text
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._indent = (root.members and self._get_indentation(root.members[0].start)) or "  "

    def _get_indentation(self, offset: int) -> str:
        line = self._text[self._text.rfind("\n", 0, offset) + 1 : offset]
        return line if "\n" in self._text[:offset] and not line.strip() else ""

    def _dump(self, value: Any, depth: int) -> str:
        dumped = json.dumps(value, indent=self._indent, ensure_ascii=False)
        return dumped.replace("\n", self._newline + self._indent * depth)

    def replace(self, member: JSONMember, value: Any, depth: int) -> str:
        return self._text[: member.value.start] + self._dump(value, depth) + self._text[member.value.end :]

    def insert(self, owner: JSONValue, key: str, value: Any, depth: int) -> str:
        text, last = self._text, owner.members[-1] if owner.members else None
        line = self._newline + self._indent * depth
        added = f"{line}{json.dumps(key, ensure_ascii=False)}: {self._dump(value, depth)}"
        rest = text[owner.tail :]
        if "\n" not in rest[: owner.end - owner.tail]:
            rest = self._newline + self._indent * (depth - 1) + rest.lstrip(" \t")
        if last is None or last.comma is not None:
            return text[: owner.tail] + added + rest
        end = last.value.end
        return f"{text[:end]},{text[end : owner.tail]}{added}{rest}"


class _JSONCParser:
    def __init__(self, text: str) -> None:
        self._text = text

    def fail(self, offset: int, problem: str) -> None:
        line = self._text.count("\n", 0, offset) + 1
        column = offset - self._text.rfind("\n", 0, offset)
        raise ValueError(f"line {line}, column {column}: {problem}")

    def skip_blanks(self, offset: int) -> int:
        """Return the next offset that is neither blank nor in a comment."""
        match = _BLANKS_AND_COMMENTS.match(self._text, offset)
        assert match is not None
        return match.end()

    def parse_value(self, offset: int, depth: int) -> JSONValue:
        if depth > _MAX_DEPTH:
            self.fail(offset, "nested too deeply")
        char = self._text[offset : offset + 1]
        if char == "{":
            return self._parse_object(offset, depth)
        if char == "[":
            return self._parse_array(offset, depth)
        if char == '"':
            data, end = self._parse_string(offset)
            return JSONValue(data, offset, end)

        match = _ATOM.match(self._text, offset)
        if match is None:
            self.fail(offset, "a value is missing")
        assert match is not None
        return JSONValue(jsonrpc.loads_exactly(match[0]), offset, match.end())

    def _parse_string(self, offset: int) -> tuple[str, int]:
        if self._text[offset : offset + 1] != '"':
            self.fail(offset, "a name in double quotes is missing")
        try:
            data, end = _DECODER.raw_decode(self._text, offset)
        except json.JSONDecodeError as problem:
            self.fail(problem.pos, "the string is unterminated or contains an invalid character")
        return data, end

    def _parse_object(self, start: int, depth: int) -> JSONValue:
        result, offset = JSONValue({}, start, start), self.skip_blanks(start + 1)
        result.tail = self._find_tail(start + 1, offset)

        while self._text[offset : offset + 1] != "}":
            key, end = self._parse_string(offset)
            if key in result.data:
                self.fail(offset, f"{json.dumps(key)} is a duplicate key")
            colon = self.skip_blanks(end)
            if self._text[colon : colon + 1] != ":":
                self.fail(colon, "a colon is missing")
            value = self.parse_value(self.skip_blanks(colon + 1), depth + 1)
            member = JSONMember(key, offset, value)
            result.members.append(member)
            result.data[key] = value.data
            offset = self._skip_comma(value.end, "}")
            if offset and self._text[offset - 1] == ",":
                member.comma = offset - 1
            item_end = offset if member.comma is not None else value.end
            offset = self.skip_blanks(item_end)
            result.tail = self._find_tail(item_end, offset)

        result.end = offset + 1
        return result

    def _parse_array(self, start: int, depth: int) -> JSONValue:
        items: list[Any] = []
        offset = self.skip_blanks(start + 1)
        while self._text[offset : offset + 1] != "]":
            value = self.parse_value(offset, depth + 1)
            items.append(value.data)
            offset = self.skip_blanks(self._skip_comma(value.end, "]"))
        return JSONValue(items, start, offset + 1)

    def _skip_comma(self, offset: int, close: str) -> int:
        """Return the offset after the comma, or of the closing bracket."""
        offset = self.skip_blanks(offset)
        char = self._text[offset : offset + 1]
        if char == ",":
            return offset + 1
        if char != close:
            self.fail(offset, f'"," or "{close}" is missing')
        return offset

    def _find_tail(self, start: int, end: int) -> int:
        return start + len(self._text[start:end].rstrip())
