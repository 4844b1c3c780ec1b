"""Which paths of a tree of files are served: well-formed ones, not hidden, that fit a pattern.

A path is relative, in Unicode, with "/" between its names, as it stands in a URI.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from mcp_django.schema import DeclarationError

DEPTH = 32
"""Names that a path may have."""
LONGEST_NAME = 255
"""Bytes of one name, which is what file systems allow."""


class Entry(NamedTuple):
    """A file that was found."""

    path: str
    size: int | None = None
    """Bytes, where that was cheap to learn."""
    changed: int | None = None
    """Nanoseconds of its modification time, likewise."""


class TooLarge(Exception):
    """There is more to read than may be read: the limit in bytes is the argument."""


def is_name(name: str) -> bool:
    """Is this one name of a path, which leads to no other place on any system?"""
    if not name or name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
        return False
    try:
        return len(name.encode()) <= LONGEST_NAME
    except UnicodeEncodeError:
        return False  # bytes that are no text, as os.fsdecode() shows them: no URI could name it


class Selection:
    """The paths that `pattern` chooses: `*` and `?` stay within a name, `**` stands for any number of directories.

    Without `recursive` only those of the root; names that begin with a dot only with `hidden`.
    """

    def __init__(self, pattern: str | Sequence[str] = "**/*", *, recursive: bool = True, hidden: bool = False) -> None:
        patterns = (pattern,) if isinstance(pattern, str) else tuple(pattern)
        if not patterns or not all(text and not text.startswith("/") for text in patterns):
            raise DeclarationError(f"{pattern!r} is no pattern of relative paths; write it like '**/*.md'")
        self.recursive, self.hidden = recursive, hidden
        self._expressions = tuple(_expression(text) for text in patterns)

    def parts(self, path: str) -> list[str] | None:
        """The names of a path that is served if there is such a file; None for any other."""
        parts = path.split("/")
        if len(parts) > (DEPTH if self.recursive else 1) or not all(map(self.shows, parts)):
            return None
        return parts if self.fits(path) else None

    def shows(self, name: str) -> bool:
        """May this name be part of a path?"""
        return is_name(name) and (self.hidden or not name.startswith("."))

    def fits(self, path: str) -> bool:
        """Does the pattern choose the path?"""
        return any(expression.fullmatch(path) for expression in self._expressions)


def _expression(pattern: str) -> re.Pattern[str]:
    *directories, last = pattern.split("/")
    text = "".join("(?:[^/]+/)*" if part == "**" else f"{_name(part)}/" for part in directories)
    # Two in a row say no more than one, and would be tried in every division.
    text = re.sub(r"(?:\(\?:\[\^/\]\+/\)\*){2,}", "(?:[^/]+/)*", text)
    return re.compile(text + ("(?:[^/]+/)*[^/]+" if last == "**" else _name(last)), re.DOTALL)


def _name(pattern: str) -> str:
    found, index = "", 0
    while index < len(pattern):
        char, index = pattern[index], index + 1
        if char == "*":
            found += "" if found.endswith("[^/]*") else "[^/]*"
        elif char == "?":
            found += "[^/]"
        elif (
            char == "["
            and (end := pattern.find("]", index + 2 if pattern[index : index + 1] == "!" else index + 1)) > 0
        ):
            chosen = pattern[index:end].replace("\\", "\\\\").replace("[", "\\[")
            chosen = (
                "^/" + chosen[1:] if chosen.startswith("!") else ("\\" + chosen if chosen.startswith("^") else chosen)
            )
            found, index = f"{found}[{chosen}]", end + 1
        else:
            found += re.escape(char)
    return found
