"""Changes of one member in JSON with comments; other bytes are preserved.

Editors allow comments in their settings (`.vscode/mcp.json`, Zed), which parsing and serializing would lose.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

_DEPTH = 100
_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_ATOM = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")


@dataclass(slots=True)
class Member:
    """A member `"key": value` of an object. Positions are offsets in the text."""

    key: str
    start: int
    value: "Value"
    comma: int | None = None
    """Offset of the comma after the member, if any."""


@dataclass(slots=True)
class Value:
    """A value and its position."""

    data: Any
    start: int
    end: int
    members: list[Member] = field(default_factory=list)
    tail: int = 0
    """Offset of the end of an object's last item or comment before the closing brace."""

    def find(self, key: str) -> Member | None:
        """Return the member of an object, or None."""
        return next((member for member in self.members if member.key == key), None)


def parse(text: str) -> Value:
    """Parse a text.

    Raises ValueError with line and column for syntax errors and duplicate keys.
    """
    parser = _Parser(text)
    value = parser.value(parser.skip(0), 0)
    if parser.skip(value.end) != len(text):
        parser.fail(parser.skip(value.end), "something follows the value")
    return value


def put(text: str, section: str, name: str, entry: Any) -> str:
    """Return `text` with `entry` as member `name` of the object `section`.

    A missing section is created. Raises ValueError.
    """
    if not text.strip():
        return json.dumps({section: {name: entry}}, indent=2, ensure_ascii=False) + "\n"
    root = _object(parse(text), "the file")
    style = _Style(text, root)
    found = root.find(section)
    if found is None:
        changed = style.insert(root, section, {name: entry}, 1)
    else:
        servers = _object(found.value, f'"{section}"')
        member = servers.find(name)
        changed = style.insert(servers, name, entry, 2) if member is None else style.replace(member, entry, 2)

    expected = dict(root.data)
    expected[section] = {**expected.get(section, {}), name: entry}
    return _checked(changed, expected)


def drop(text: str, section: str, name: str) -> str:
    """Return `text` without member `name` of `section`, or unchanged if missing.

    Raises ValueError.
    """
    root = _object(parse(text), "the file") if text.strip() else None
    found = None if root is None else root.find(section)
    if root is None or found is None:
        return text
    servers = _object(found.value, f'"{section}"')
    member = servers.find(name)
    if member is None:
        return text
    expected = {**root.data, section: {key: value for key, value in servers.data.items() if key != name}}
    return _checked(_cut(text, servers, member), expected)


def get(text: str, section: str, name: str) -> Any:
    """Return the entry, or None. Raises ValueError."""
    data = _object(parse(text), "the file").data if text.strip() else {}
    servers = data.get(section)
    return servers.get(name) if isinstance(servers, dict) else None


def _checked(changed: str, expected: Any) -> str:
    """Check the content of the changed text, so that a bug cannot lose data."""
    if parse(changed).data != expected:
        raise ValueError("it could not be changed safely")
    return changed


def _object(value: Value, what: str) -> Value:
    if not isinstance(value.data, dict):
        raise ValueError(f"{what} is not an object")
    return value


def _cut(text: str, owner: Value, member: Member) -> str:
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


class _Style:
    """The layout of a text, and changes that follow it."""

    def __init__(self, text: str, root: Value) -> None:
        self._text = text
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._unit = (root.members and self._indentation(root.members[0].start)) or "  "

    def _indentation(self, place: int) -> str:
        line = self._text[self._text.rfind("\n", 0, place) + 1 : place]
        return line if "\n" in self._text[:place] and not line.strip() else ""

    def _dump(self, value: Any, depth: int) -> str:
        dumped = json.dumps(value, indent=self._unit, ensure_ascii=False)
        return dumped.replace("\n", self._newline + self._unit * depth)

    def replace(self, member: Member, value: Any, depth: int) -> str:
        return self._text[: member.value.start] + self._dump(value, depth) + self._text[member.value.end :]

    def insert(self, owner: Value, key: str, value: Any, depth: int) -> str:
        text, last = self._text, owner.members[-1] if owner.members else None
        line = self._newline + self._unit * depth
        added = f"{line}{json.dumps(key, ensure_ascii=False)}: {self._dump(value, depth)}"
        rest = text[owner.tail :]
        if "\n" not in rest[: owner.end - owner.tail]:
            rest = self._newline + self._unit * (depth - 1) + rest.lstrip(" \t")
        if last is None or last.comma is not None:
            return text[: owner.tail] + added + rest
        end = last.value.end
        return f"{text[:end]},{text[end : owner.tail]}{added}{rest}"


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text

    def fail(self, place: int, what: str) -> None:
        line = self._text.count("\n", 0, place) + 1
        column = place - self._text.rfind("\n", 0, place)
        raise ValueError(f"line {line}, column {column}: {what}")

    def skip(self, place: int) -> int:
        """Return the next offset that is neither blank nor in a comment."""
        match = _BLANK.match(self._text, place)
        assert match is not None
        return match.end()

    def value(self, place: int, depth: int) -> Value:
        if depth > _DEPTH:
            self.fail(place, "nested too deeply")
        char = self._text[place : place + 1]
        if char == "{":
            return self._object(place, depth)
        if char == "[":
            return self._array(place, depth)
        if char == '"':
            data, end = self._string(place)
            return Value(data, place, end)

        match = _ATOM.match(self._text, place)
        if match is None:
            self.fail(place, "a value is missing")
        assert match is not None
        return Value(json.loads(match[0]), place, match.end())

    def _string(self, place: int) -> tuple[str, int]:
        if self._text[place : place + 1] != '"':
            self.fail(place, "a name in double quotes is missing")
        try:
            data, end = _DECODER.raw_decode(self._text, place)
        except json.JSONDecodeError as problem:
            self.fail(problem.pos, "the string is unterminated or contains an invalid character")
        return data, end

    def _object(self, start: int, depth: int) -> Value:
        found, place = Value({}, start, start), self.skip(start + 1)
        found.tail = self._tail(start + 1, place)

        while self._text[place : place + 1] != "}":
            key, end = self._string(place)
            if key in found.data:
                self.fail(place, f"{json.dumps(key)} is a duplicate key")
            colon = self.skip(end)
            if self._text[colon : colon + 1] != ":":
                self.fail(colon, "a colon is missing")
            value = self.value(self.skip(colon + 1), depth + 1)
            member = Member(key, place, value)
            found.members.append(member)
            found.data[key] = value.data
            place = self._next(value.end, "}")
            if place and self._text[place - 1] == ",":
                member.comma = place - 1
            behind = place if member.comma is not None else value.end
            place = self.skip(behind)
            found.tail = self._tail(behind, place)

        found.end = place + 1
        return found

    def _array(self, start: int, depth: int) -> Value:
        items: list[Any] = []
        place = self.skip(start + 1)
        while self._text[place : place + 1] != "]":
            value = self.value(place, depth + 1)
            items.append(value.data)
            place = self.skip(self._next(value.end, "]"))
        return Value(items, start, place + 1)

    def _next(self, place: int, close: str) -> int:
        """Return the offset after the comma, or of the closing bracket."""
        place = self.skip(place)
        char = self._text[place : place + 1]
        if char == ",":
            return place + 1
        if char != close:
            self.fail(place, f'"," or "{close}" is missing')
        return place

    def _tail(self, start: int, end: int) -> int:
        return start + len(self._text[start:end].rstrip())
