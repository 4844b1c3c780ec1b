"""Selection of files by path: valid, not hidden, and matched by a pattern.

A path is relative, in Unicode, with "/" between its names, as in a URI.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from mcp_django.schema import DeclarationError

MAX_PATH_DEPTH = 32
"""Maximum number of names in a path."""
MAX_NAME_BYTES = 255
"""Maximum bytes of one name, the limit of file systems."""


class FileEntry(NamedTuple):
    """A file in a list."""

    path: str
    size: int | None = None
    """Size in bytes; None where it is expensive to get."""
    modified_ns: int | None = None
    """Modification time in nanoseconds; None where it is expensive to get."""


class ContentTooLarge(Exception):
    """The content exceeds the limit, which is the argument, in bytes."""


def is_safe_name(name: str) -> bool:
    """Return True if this is a single name that leads nowhere else on any system."""
    if not name or name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
        return False
    try:
        return len(name.encode()) <= MAX_NAME_BYTES
    except UnicodeEncodeError:
        return False  # Bytes that are not text, as decoded by os.fsdecode(); no URI can name them.


class FileSelection:
    """The paths selected by a pattern.

    `*` and `?` match within a name, `**` any number of directories. Without `recursive` only files of the root are
    selected; names with a leading dot only with `hidden`.
    """

    def __init__(self, pattern: str | Sequence[str] = "**/*", *, recursive: bool = True, hidden: bool = False) -> None:
        patterns = (pattern,) if isinstance(pattern, str) else tuple(pattern)
        if not patterns or not all(text and not text.startswith("/") for text in patterns):
            raise DeclarationError(f"{pattern!r} is an invalid pattern of relative paths; write it like '**/*.md'")
        self.recursive = recursive
        self.hidden = hidden
        self._expressions = tuple(_compile_pattern(text) for text in patterns)

    def split_path(self, path: str) -> list[str] | None:
        """Split a path that may be served into its names; None for any other path."""
        parts = path.split("/")
        if len(parts) > (MAX_PATH_DEPTH if self.recursive else 1) or not all(map(self.is_name_served, parts)):
            return None
        return parts if self.matches_pattern(path) else None

    def is_name_served(self, name: str) -> bool:
        """Return True if this name may be part of a path."""
        return is_safe_name(name) and (self.hidden or not name.startswith("."))

    def matches_pattern(self, path: str) -> bool:
        """Return True if the pattern matches the path."""
        return any(expression.fullmatch(path) for expression in self._expressions)


def _compile_pattern(pattern: str) -> re.Pattern[str]:
    *directories, last = pattern.split("/")
    text = "".join("(?:[^/]+/)*" if part == "**" else f"{_translate_name(part)}/" for part in directories)
    # Two in a row match the same as one, but the regular expression would try every division.
    text = re.sub(r"(?:\(\?:\[\^/\]\+/\)\*){2,}", "(?:[^/]+/)*", text)
    return re.compile(text + ("(?:[^/]+/)*[^/]+" if last == "**" else _translate_name(last)), re.DOTALL)


def _translate_name(pattern: str) -> str:
    expression, index = "", 0
    while index < len(pattern):
        char, index = pattern[index], index + 1
        if char == "*":
            expression += "" if expression.endswith("[^/]*") else "[^/]*"
        elif char == "?":
            expression += "[^/]"
        elif (
            char == "["
            and (end := pattern.find("]", index + 2 if pattern[index : index + 1] == "!" else index + 1)) > 0
        ):
            characters = pattern[index:end].replace("\\", "\\\\").replace("[", "\\[")
            if characters.startswith("!"):
                characters = "^/" + characters[1:]
            elif characters.startswith("^"):
                characters = "\\" + characters
            expression, index = f"{expression}[{characters}]", end + 1
        else:
            expression += re.escape(char)

    return expression
